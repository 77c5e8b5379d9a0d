#include "common/tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

#define BPE_FREE UINT64_MAX

enum {
    NONE = INT32_MAX, /* the rank of a pair that is not merged */
    SHORT = 32        /* symbols of a word for which looking at all pairs is quicker than a queue */
};

/* ---- the merges ---- */

static uint64_t slot_of(const struct bpe *b, uint64_t key)
{
    uint64_t slot =
        (key * UINT64_C(0x9e3779b97f4a7c15)) >> b->shift; /* the top depends on all bits */

    while (b->pairs[slot].key != key && b->pairs[slot].key != BPE_FREE)
        slot = (slot + 1) & b->mask;
    return slot;
}

static uint64_t key_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

enum status bpe_open(struct bpe *b, int64_t n)
{
    uint64_t size = 16;
    int bits = 4;

    for (; size < 2 * (uint64_t)n; bits++)
        size *= 2;
    *b = (struct bpe){.mask = size - 1, .shift = 64 - bits};
    b->pairs = malloc(size * sizeof *b->pairs);
    if (!b->pairs)
        return fail(ST_ENOMEM, "no memory for %lld merges", (long long)n);
    for (uint64_t i = 0; i < size; i++)
        b->pairs[i] = (struct bpe_pair){BPE_FREE, NONE, -1};
    return ST_OK;
}

void bpe_close(struct bpe *b)
{
    free(b->pairs);
    *b = (struct bpe){0};
}

int bpe_add(struct bpe *b, int32_t left, int32_t right, int32_t made, int32_t rank)
{
    uint64_t key = key_of(left, right), slot = slot_of(b, key);

    if (b->pairs[slot].key == key)
        return 0;
    b->pairs[slot] = (struct bpe_pair){key, rank, made};
    b->count++;
    return 1;
}

static int32_t rank_of(const struct bpe *b, int32_t left, int32_t right)
{
    return b->pairs[slot_of(b, key_of(left, right))].rank;
}

int32_t bpe_made(const struct bpe *b, int32_t left, int32_t right)
{
    return b->pairs[slot_of(b, key_of(left, right))].made;
}

/* ---- short words ---- */

static void run_short(int32_t *ids, int64_t *count, const struct bpe *b)
{
    int32_t rank[SHORT]; /* of the pair that begins at i */
    int64_t n = *count;

    for (int64_t i = 0; i + 1 < n; i++)
        rank[i] = rank_of(b, ids[i], ids[i + 1]);
    for (;;) {
        int64_t at = 0;

        for (int64_t i = 1; i + 1 < n; i++)
            at = rank[i] < rank[at] ? i : at;
        if (n < 2 || rank[at] == NONE)
            break;
        ids[at] = bpe_made(b, ids[at], ids[at + 1]);
        n--;
        memmove(ids + at + 1, ids + at + 2, (size_t)(n - at - 1) * sizeof *ids);
        memmove(rank + at, rank + at + 1, (size_t)(n - at - 1) * sizeof *rank);
        if (at + 1 < n)
            rank[at] = rank_of(b, ids[at], ids[at + 1]);
        if (at > 0)
            rank[at - 1] = rank_of(b, ids[at - 1], ids[at]);
    }
    *count = n;
}

/* ---- long words: a queue of (rank, place) ---- */

static enum status reserve(struct bpe_scratch *s, int64_t n)
{
    if (n <= s->room)
        return ST_OK;
    free(s->next);
    free(s->before);
    free(s->rank);
    s->room = 0;
    s->next = malloc((size_t)n * sizeof *s->next);
    s->before = malloc((size_t)n * sizeof *s->before);
    s->rank = malloc((size_t)n * sizeof *s->rank);
    if (!s->next || !s->before || !s->rank)
        return fail(ST_ENOMEM, "no memory for a word of %lld bytes", (long long)n);
    s->room = n;
    return ST_OK;
}

/* Looks up the pair that begins at place and queues it if it can be merged. */
static enum status consider(struct bpe_scratch *s, const struct bpe *b, const int32_t *ids,
                            int64_t place)
{
    int32_t right = s->next[place];

    s->rank[place] = right < 0 ? NONE : rank_of(b, ids[place], ids[right]);
    if (s->rank[place] == NONE)
        return ST_OK;
    return queue_push(&s->queue, (uint64_t)(uint32_t)s->rank[place] << 32 | (uint32_t)place);
}

/* Symbols are a list with links; a pair is at the place of its left symbol, and rank[place] is
 * NONE where there is none, so that what the queue holds about a pair of the past is noticed. */
static enum status run_long(int32_t *ids, int64_t *count, const struct bpe *b,
                            struct bpe_scratch *s)
{
    int64_t n = *count, left = 0;
    uint64_t top;

    TRY(reserve(s, n));
    queue_clear(&s->queue);
    for (int64_t i = 0; i < n; i++) {
        s->next[i] = (int32_t)(i + 1 < n ? i + 1 : -1);
        s->before[i] = (int32_t)(i - 1);
    }
    for (int64_t i = 0; i < n; i++)
        TRY(consider(s, b, ids, i));
    while (queue_pop(&top, &s->queue)) {
        int32_t at = (int32_t)(uint32_t)top, right;

        if (s->rank[at] != (int32_t)(top >> 32))
            continue;
        right = s->next[at];
        ids[at] = bpe_made(b, ids[at], ids[right]);
        s->rank[right] = NONE;
        s->next[at] = s->next[right];
        if (s->next[at] >= 0)
            s->before[s->next[at]] = at;
        TRY(consider(s, b, ids, at));
        if (s->before[at] >= 0)
            TRY(consider(s, b, ids, s->before[at]));
    }
    for (int64_t i = 0; i >= 0; i = s->next[i])
        ids[left++] = ids[i];
    *count = left;
    return ST_OK;
}

enum status bpe_run(int32_t *ids, int64_t *n, const struct bpe *b, struct bpe_scratch *s)
{
    if (*n <= SHORT) {
        run_short(ids, n, b);
        return ST_OK;
    }
    if (*n >= INT32_MAX)
        return fail(ST_EFORMAT, "a word of %lld symbols; at most %d are possible, cut the text",
                    (long long)*n, INT32_MAX - 1);
    return run_long(ids, n, b, s);
}

void bpe_scratch_free(struct bpe_scratch *s)
{
    free(s->next);
    free(s->before);
    free(s->rank);
    queue_free(&s->queue);
    *s = (struct bpe_scratch){0};
}
