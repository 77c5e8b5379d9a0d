/* One word to ids, with a memory of the words that were met before. */
#ifndef COMMON_TOKENIZER_WORD_H
#define COMMON_TOKENIZER_WORD_H

#include "common/tokenizer/recipe.h"

enum {
    WORD_KEY = 15, /* bytes of the longest word that is remembered */
    WORD_IDS = 11, /* ids of it, at most */
    WORD_SLOTS = 1 << 15
};

/* A remembered word; a cache line. */
struct word_slot {
    uint64_t key[2]; /* the bytes, then zeros; the last byte is their number. 0, 0: free */
    int32_t count;
    int32_t ids[WORD_IDS];
};

/* What one thread needs to encode; see recipe_encode.c. */
struct recipe_worker {
    struct recipe_worker *next; /* in the list of idle ones */
    struct word_slot *slots;
    struct bpe_scratch scratch;
    struct token_list symbols;
    struct pattern_scratch patterns[CUTS];
    struct byte_list edits[2], lead[2];
};

/* Appends the ids of a word of n bytes, n > 0; `limit` is the end of the memory that may be read.
 * Errors: ST_EFORMAT for characters that have no token, ST_ENOMEM. */
enum status word_encode(struct token_list *out, struct recipe_worker *w, const struct recipe *r,
                        const unsigned char *word, int64_t n, const unsigned char *limit);

#endif
