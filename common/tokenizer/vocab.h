/* The tokens of a tokenizer: what each id matches, and what it is written as.
 *
 * The key is the text that the model works on (in SentencePiece's files a space is U+2581); the
 * text is what decoding gives. They are the same unless vocab_text was called.
 */
#ifndef COMMON_TOKENIZER_VOCAB_H
#define COMMON_TOKENIZER_VOCAB_H

#include "common/tokenizer/list.h"

enum { VOCAB_MOST = 1 << 24 }; /* ids of a tokenizer */

struct vocab_entry {
    int64_t key, text; /* offsets in bytes */
    int32_t key_n, text_n;
    unsigned char present; /* this id was put */
    unsigned char special; /* stands for no text */
    unsigned char hidden;  /* vocab_find does not find it: control and byte tokens */
};

struct vocab {
    struct byte_list bytes; /* of all keys and texts */
    struct vocab_entry *entries;
    int32_t size, room; /* largest id + 1; entries that fit */
    int32_t *slots;     /* id + 1 by hash of the key, 0 = free; open addressing */
    uint64_t mask;
};

/* Adds a token; entries[id] may then be marked special or hidden. Start with {0}. Errors:
 * ST_EFORMAT for an id that is out of range or was put before, ST_ENOMEM. */
enum status vocab_put(struct vocab *v, int64_t id, const void *key, int64_t n);

/* Gives token id another text than its key. Errors: ST_ENOMEM. */
enum status vocab_text(struct vocab *v, int32_t id, const void *text, int64_t n);

/* Builds what vocab_find needs, of the tokens put so far. Errors: ST_EFORMAT for two visible tokens
 * with the same key; ST_ENOMEM. */
enum status vocab_index(struct vocab *v);

/* The same when all tokens were put. Errors: ST_EFORMAT too for an id that is missing below the
 * largest one, and for no tokens at all. */
enum status vocab_seal(struct vocab *v);
void vocab_close(struct vocab *v);

/* The visible token with that key, or -1. After vocab_index or vocab_seal. */
int32_t vocab_find(const struct vocab *v, const void *key, int64_t n);

/* The key and the text of an id, not closed by a zero; their lengths stand in the entry. */
const char *vocab_key_of(const struct vocab *v, int32_t id);
const char *vocab_text_of(const struct vocab *v, int32_t id);

#endif
