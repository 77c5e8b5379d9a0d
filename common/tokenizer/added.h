/* Added tokens: texts that stand for one id wherever they occur, found before anything else.
 *
 * As in Hugging Face's files: at each place the longest wins, and what lies in between is text.
 */
#ifndef COMMON_TOKENIZER_ADDED_H
#define COMMON_TOKENIZER_ADDED_H

#include "common/tokenizer/list.h"

struct added_token {
    int32_t id;
    int32_t n;
    char *text;         /* owned */
    int special;        /* found only where the caller asks for special tokens */
    int single_word;    /* not next to a letter, digit or underscore */
    int lstrip, rstrip; /* takes the white space before and after it along */
};

/* Those that are looked for at the same time. Start with {0}. */
struct added {
    struct added_token *tokens; /* sorted by text once sealed */
    int32_t count, room;
    int32_t first[257]; /* by first byte: tokens first[b] .. first[b + 1] - 1 */
    int plain;          /* there is one that is not special */
};

/* Adds one; t->text is copied. Errors: ST_EFORMAT for an empty text, ST_ENOMEM. */
enum status added_put(struct added *a, const struct added_token *t);

/* Sorts. Errors: ST_EFORMAT for a text given twice. */
enum status added_seal(struct added *a);
void added_close(struct added *a);

/* The first one in text[at .. n): *begin, *end and the return value, or NULL and *begin = *end = n.
 * special: special tokens are looked for too. What stands before `at` is
 * not taken along. */
const struct added_token *added_next(int64_t *begin, int64_t *end, const struct added *a,
                                     const unsigned char *text, int64_t n, int64_t at, int special);

/* Bytes of the longest text; 0 when all are special. */
int64_t added_longest(const struct added *a);

/* Whether the text of one, special or not, goes across text[at], ends or begins there. Never when
 * all are special. at + added_longest(a) <= n. */
int added_touches(const struct added *a, const unsigned char *text, int64_t n, int64_t at);

#endif
