#include "common/tokenizer/queue.h"

#include <stdlib.h>

void queue_clear(struct queue *q)
{
    for (int i = 0; i < QUEUE_LISTS; i++)
        q->lists[i].head = q->lists[i].n = 0;
    q->heap.n = 0;
}

void queue_free(struct queue *q)
{
    for (int i = 0; i < QUEUE_LISTS; i++)
        free(q->lists[i].keys);
    free(q->heap.keys);
    *q = (struct queue){0};
}

static enum status grow(struct queue_keys *k)
{
    int64_t room = 2 * k->room + 1024;
    uint64_t *bigger;

    if (k->n < k->room)
        return ST_OK;
    bigger = realloc(k->keys, (size_t)room * sizeof *bigger);
    if (!bigger)
        return fail(ST_ENOMEM, "no memory to sort %lld pairs of a word", (long long)k->n);
    k->keys = bigger;
    k->room = room;
    return ST_OK;
}

static void heap_push(struct queue_keys *h, uint64_t key)
{
    int64_t i = h->n++;

    for (; i > 0 && h->keys[(i - 1) / 4] > key; i = (i - 1) / 4)
        h->keys[i] = h->keys[(i - 1) / 4];
    h->keys[i] = key;
}

static uint64_t heap_pop(struct queue_keys *h)
{
    uint64_t top = h->keys[0], key = h->keys[--h->n];
    int64_t n = h->n, i = 0;

    for (;;) {
        int64_t child = 4 * i + 1, least = child, end = child + 4 < n ? child + 4 : n;

        if (child >= n)
            break;
        for (int64_t c = child + 1; c < end; c++)
            least = h->keys[c] < h->keys[least] ? c : least;
        if (h->keys[least] >= key)
            break;
        h->keys[i] = h->keys[least];
        i = least;
    }
    h->keys[i] = key;
    return top;
}

static enum status append(struct queue_keys *list, uint64_t key)
{
    TRY(grow(list));
    list->keys[list->n++] = key;
    return ST_OK;
}

enum status queue_push(struct queue *q, uint64_t key)
{
    for (int i = 0; i < QUEUE_LISTS; i++) {
        struct queue_keys *list = &q->lists[i];

        if (list->head == list->n)
            list->head = list->n = 0;
        if (list->n == 0 || list->keys[list->n - 1] <= key)
            return append(list, key);
    }
    TRY(grow(&q->heap));
    heap_push(&q->heap, key);
    return ST_OK;
}

int queue_pop(uint64_t *key, struct queue *q)
{
    struct queue_keys *best = q->heap.n > 0 ? &q->heap : NULL;

    for (int i = 0; i < QUEUE_LISTS; i++) {
        struct queue_keys *list = &q->lists[i];

        if (list->head < list->n &&
            (!best || list->keys[list->head] < best->keys[best == &q->heap ? 0 : best->head]))
            best = list;
    }
    if (!best)
        return 0;
    *key = best == &q->heap ? heap_pop(best) : best->keys[best->head++];
    return 1;
}
