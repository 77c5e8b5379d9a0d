/* Text from ids that come one by one: whole characters come out, the beginning of one waits for
 * its end. Ids and text of a model that speaks go through here.
 *
 *     struct decoder d = decoder_begin(t, TOKENIZER_PLAIN);
 *     while (...)
 *         TRY(decoder_add(&text, &d, id));
 *     TRY(decoder_end(&text, &d));
 */
#ifndef COMMON_TOKENIZER_DECODER_H
#define COMMON_TOKENIZER_DECODER_H

#include "common/tokenizer/tokenizer.h"

struct decoder {
    const struct tokenizer *t;
    unsigned how;
    int32_t strip; /* spaces still to be left out: the text has not begun */
    int32_t held;  /* bytes that wait */
    char waiting[4];
};

/* A decoder at the beginning of a text; and one in the middle, after other tokens. Nothing needs
 * closing. */
struct decoder decoder_begin(const struct tokenizer *t, unsigned how);
struct decoder decoder_continue(const struct tokenizer *t, unsigned how);

/* Appends the text that id completes; what may be the beginning of a character waits. Bytes that
 * are no UTF-8 come out as they are. Errors: ST_EFORMAT for an id outside the vocabulary,
 * ST_ENOMEM. */
enum status decoder_add(struct byte_list *out, struct decoder *d, int32_t id);

/* Appends what still waits. Errors: ST_ENOMEM. */
enum status decoder_end(struct byte_list *out, struct decoder *d);

#endif
