/* Reading protobuf's wire format: fields of a message, one after the other. */
#ifndef COMMON_TOKENIZER_WIRE_H
#define COMMON_TOKENIZER_WIRE_H

#include "common/base/status.h"

#include <stdint.h>

enum wire_type { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* What is left of a message. */
struct wire {
    const unsigned char *at, *end;
};

struct wire_field {
    uint32_t number;
    enum wire_type type;
    uint64_t value;    /* of a number, as its bits */
    struct wire bytes; /* of WIRE_BYTES: a text, or a message again; points into the message */
};

/* Reads the next field; *more = 0, and no field, at the end. Errors: ST_EFORMAT for a message that
 * ends too early, and for what no message has. */
enum status wire_next(struct wire_field *f, int *more, struct wire *w);

/* A WIRE_FIXED32 as the float that it is. */
float wire_float(const struct wire_field *f);

/* Says that field f is to have that type. Errors: ST_EFORMAT. */
enum status wire_expect(const struct wire_field *f, enum wire_type type, const char *what);

#endif
