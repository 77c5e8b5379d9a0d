/* A priority queue of 64-bit keys, smallest first.
 *
 * Keys that come in rising order, as those of a word of few different letters do, go to one of a
 * few lists that are sorted by themselves; the others to a heap. So such words take linear time,
 * and all others n log n.
 */
#ifndef COMMON_TOKENIZER_QUEUE_H
#define COMMON_TOKENIZER_QUEUE_H

#include "common/base/status.h"

#include <stdint.h>

enum { QUEUE_LISTS = 8 };

/* Keys [head, n) are those that are left; the heap's head is always 0. */
struct queue_keys {
    uint64_t *keys;
    int64_t head, n, room;
};

/* Start with {0}. */
struct queue {
    struct queue_keys lists[QUEUE_LISTS], heap;
};

/* Empties the queue; the memory stays. And releases it. */
void queue_clear(struct queue *q);
void queue_free(struct queue *q);

/* Adds a key. Errors: ST_ENOMEM. */
enum status queue_push(struct queue *q, uint64_t key);

/* Takes out the smallest key; returns 0 when there is none. */
int queue_pop(uint64_t *key, struct queue *q);

#endif
