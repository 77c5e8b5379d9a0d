/* From bytes to token ids and back.
 *
 * A tokenizer is a table of functions over its own data, so that code which uses one need not know
 * its kind. Today there is one kind: "bytes", whose ids 0 to 255 are the bytes and 256, 257, 258
 * mean begin, end of document, and padding (259 ids). Every byte string survives the round trip.
 */
#ifndef COMMON_DATA_TOKENIZER_H
#define COMMON_DATA_TOKENIZER_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum {
    TOKENIZER_BYTE_BEGIN = 256,
    TOKENIZER_BYTE_END = 257,
    TOKENIZER_BYTE_PAD = 258,
    TOKENIZER_BYTE_VOCAB = 259
};

struct tokenizer {
    const char *kind;        /* "bytes" */
    int32_t vocab;           /* ids are 0 .. vocab - 1 */
    int32_t begin, end, pad; /* special ids: start of text, end of document, padding; -1: none */
    void *data;              /* what the kind needs; owned, NULL for "bytes" */

    /* See tokenizer_encode, tokenizer_decode, tokenizer_close; sizes are checked before. */
    enum status (*encode)(int32_t *ids, int64_t *count, const struct tokenizer *t,
                          const void *bytes, int64_t n);
    enum status (*decode)(char *bytes, int64_t *count, const struct tokenizer *t,
                          const int32_t *ids, int64_t n);
    int64_t (*encode_room)(const struct tokenizer *t, int64_t n);
    int64_t (*decode_room)(const struct tokenizer *t, int64_t n);
    void (*close)(struct tokenizer *t);
};

/* The tokenizer of that kind ("bytes"). Release with tokenizer_close. Errors: ST_ECONFIG for a kind
 * that is not known; the message lists those that are. */
enum status tokenizer_open(struct tokenizer *t, const char *kind);
void tokenizer_close(struct tokenizer *t);

/* An upper bound of the ids that n bytes give, and of the bytes that n ids give. */
int64_t tokenizer_encode_room(const struct tokenizer *t, int64_t n);
int64_t tokenizer_decode_room(const struct tokenizer *t, int64_t n);

/* Writes the ids of n bytes and their number. ids holds tokenizer_encode_room(t, n) of them. No
 * special id is added, and none can come out of text. Errors: those of the kind; "bytes" has
 * none. */
enum status tokenizer_encode(int32_t *ids, int64_t *count, const struct tokenizer *t,
                             const void *bytes, int64_t n);

/* Writes the bytes of n ids and their number; special ids give none. bytes holds
 * tokenizer_decode_room(t, n); no closing zero is added. Errors: ST_EFORMAT for an id outside the
 * vocabulary, with its place. */
enum status tokenizer_decode(char *bytes, int64_t *count, const struct tokenizer *t,
                             const int32_t *ids, int64_t n);

/* The name of an id for people, in out (cut to size bytes): "<begin>", "<end>", "<pad>", the text
 * itself where it is printable ASCII, else "\x0a" and the like. Errors: as tokenizer_decode. */
enum status tokenizer_name(char *out, size_t size, const struct tokenizer *t, int32_t id);

#endif
