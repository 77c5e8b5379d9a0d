/* Byte-pair encoding: of all neighbouring pairs that may be merged, the one of lowest rank is, the
 * leftmost first, until none is left. n log n in the length of a word.
 */
#ifndef COMMON_TOKENIZER_BPE_H
#define COMMON_TOKENIZER_BPE_H

#include "common/tokenizer/list.h"
#include "common/tokenizer/queue.h"

struct bpe_pair {
    uint64_t key; /* left id in the upper half, right id in the lower; all ones: free */
    int32_t rank, made;
};

/* The merges, by pair; open addressing. */
struct bpe {
    struct bpe_pair *pairs;
    uint64_t mask;
    int shift; /* of a hash, so that it is a slot */
    int64_t count;
};

/* Memory of one thread's merging; start with {0}. */
struct bpe_scratch {
    int32_t *next, *before, *rank; /* by symbol; see bpe.c */
    int64_t room;
    struct queue queue;
};

/* Room for n merges, all to be added. Errors: ST_ENOMEM. */
enum status bpe_open(struct bpe *b, int64_t n);
void bpe_close(struct bpe *b);

/* Says that left and right become `made`, at that rank (0 and up, lower first; ranks may be
 * shared). Returns 0, and changes nothing, when the pair has a merge already. */
int bpe_add(struct bpe *b, int32_t left, int32_t right, int32_t made, int32_t rank);

/* The id that the pair becomes, or -1. */
int32_t bpe_made(const struct bpe *b, int32_t left, int32_t right);

/* Merges symbols ids[0 .. *n) in place; *n is what is left. Any thread with its own scratch.
 * Errors: ST_EFORMAT for a word of 2^31 symbols or more, ST_ENOMEM. */
enum status bpe_run(int32_t *ids, int64_t *n, const struct bpe *b, struct bpe_scratch *s);
void bpe_scratch_free(struct bpe_scratch *s);

#endif
