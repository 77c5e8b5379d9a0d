/* Changes to a text before it is cut into words: normal forms, and marks for spaces.
 */
#ifndef COMMON_TOKENIZER_EDIT_H
#define COMMON_TOKENIZER_EDIT_H

#include "common/tokenizer/list.h"

enum edit_kind {
    EDIT_NFC,
    EDIT_NFD,
    EDIT_NFKC,
    EDIT_NFKD,
    EDIT_PREPEND,  /* `to` goes before a text that is not empty */
    EDIT_LEAD,     /* the same, unless the text begins with it */
    EDIT_REPLACE,  /* each `from` becomes `to` */
    EDIT_ONE_SPACE /* no spaces at the ends, one between words */
};

struct edit {
    enum edit_kind kind;
    char from[16], to[16];
    int from_n, to_n;
    int first_only; /* only where the text that the user gave begins */
};

enum { EDITS = 8 };

struct edits {
    struct edit list[EDITS];
    int count;
};

/* Puts one more edit at the end. Errors: ST_EFORMAT when there are too many, or for texts that are
 * too long. */
enum status edit_add(struct edits *e, enum edit_kind kind, const char *from, const char *to);

/* Whether that normal form (EDIT_NFC to EDIT_NFKD) neither changes a character, given as its code
 * point, nor joins it with one before it. Not all such characters are known here. */
int edit_inert(int32_t code, enum edit_kind kind);

/* Applies all edits to the *n bytes at *text, which point to the result then: still the text itself
 * when no edit changed it, else one of the two buffers. first: the text is the beginning of what
 * the user gave. Errors: ST_ENOMEM. */
enum status edit_run(const unsigned char **text, int64_t *n, const struct edits *e,
                     struct byte_list buffer[2], int first);

#endif
