/* Causal attention, a block of queries of one head at a time: scores against all keys that the
 * last of them sees, softmax row by row, then the product with the values. */
#include "ref/attention.h"
#include "ref/rows.h"

#include "common/base/elementary.h"

struct head attention_place(const struct tensor *t, int64_t row, int64_t h, int64_t dim, real *buf)
{
    if (t->dtype == REAL_DTYPE)
        return (struct head){.p = (real *)t->data + row * t->stride + h * dim, .ld = t->stride};
    return (struct head){.p = buf, .ld = dim};
}

struct head attention_load(const struct tensor *t, int64_t row, int64_t rows, int64_t h,
                           int64_t dim, real *buf)
{
    struct head x = attention_place(t, row, h, dim, buf);

    if (t->dtype == REAL_DTYPE)
        return x;
    for (int64_t i = 0; i < rows; i++)
        row_widen(buf + i * dim, (const uint16_t *)tensor_row(t, row + i) + h * dim, dim);
    return x;
}

void attention_store(const struct tensor *t, int64_t row, int64_t rows, int64_t h, int64_t dim,
                     const real *buf)
{
    for (int64_t i = 0; t->dtype != REAL_DTYPE && i < rows; i++)
        row_narrow((uint16_t *)tensor_row(t, row + i) + h * dim, buf + i * dim, dim);
}

/* Scratch of one thread. */
struct work {
    real *q, *k, *v, *o, *scores, *inverse;
};

static struct work carve(real *p, const struct attention *at)
{
    int64_t keys = at->pos0 + at->seq, block = ATTENTION_ROWS * at->head_dim;
    struct work w;

    w.q = p;
    w.o = w.q + block;
    w.k = w.o + block;
    w.v = w.k + keys * at->head_dim;
    w.scores = w.v + keys * at->head_dim;
    w.inverse = w.scores + ATTENTION_ROWS * keys;
    return w;
}

static size_t work_size(const struct attention *at)
{
    int64_t keys = at->pos0 + at->seq, block = ATTENTION_ROWS * at->head_dim;

    return (size_t)(2 * block + 2 * keys * at->head_dim + ATTENTION_ROWS * (keys + 1)) *
           sizeof(real);
}

/* Scores of one query become exp(scale (score - largest)), 0 where it does not see; returns
 * log-sum-exp of the scaled scores, *inverse 1 / their sum. A NaN score makes the sum NaN. */
static real softmax_row(real *s, real *inverse, int64_t seen, int64_t keys, real scale)
{
    real top = row_max(s, seen) * scale, sum;

    row_exp(s, s, scale, top, seen);
    memset(s + seen, 0, (size_t)(keys - seen) * sizeof(real));
    sum = row_sum(s, seen);
    *inverse = (real)1 / sum;
    return top + (real)elementary_log((double)sum);
}

/* Queries [first, first + rows) of head h of sequence b, which see keys from `from` on. */
static void forward_block(struct attention *at, const struct work *w, int64_t b, int64_t h,
                          int64_t first, int64_t rows, int64_t from)
{
    int64_t dim = at->head_dim, row = b * at->seq + first, keys = at->pos0 + first + rows - from;
    struct head scores = {.p = w->scores, .ld = keys};
    struct head q = attention_load(&at->q, row, rows, h, dim, w->q);
    struct head o = attention_place(&at->o, row, h, dim, w->o);
    int64_t kv = h * at->kv_heads / at->heads;
    struct head k = attention_place(&at->k, b * at->kv_rows, kv, dim, w->k);
    struct head v = attention_place(&at->v, b * at->kv_rows, kv, dim, w->v);

    k.p += from * k.ld;
    v.p += from * v.ld;
    attention_product(scores, q, k, 1, (const int64_t[3]){rows, keys, dim}, 0);
    for (int64_t i = 0; i < rows; i++)
        ((real *)at->lse.data)[(row + i) * at->lse.stride + h] =
            softmax_row(scores.p + i * keys, &w->inverse[i], at->pos0 + first - from + i + 1, keys,
                        attention_scale(dim));
    attention_product(o, scores, v, 0, (const int64_t[3]){rows, dim, keys}, 0);
    for (int64_t i = 0; i < rows; i++)
        row_scale(o.p + i * o.ld, o.p + i * o.ld, w->inverse[i], dim);
    attention_store(&at->o, row, rows, h, dim, w->o);
}

static void forward_head(struct device *dev, struct attention *at, int64_t b, int64_t h)
{
    struct work w = carve(ref_thread(dev), at);
    int64_t kv = h * at->kv_heads / at->heads, keys = at->pos0 + at->seq;

    (void)attention_load(&at->k, b * at->kv_rows, keys, kv, at->head_dim, w.k);
    (void)attention_load(&at->v, b * at->kv_rows, keys, kv, at->head_dim, w.v);
    for (int64_t begin = 0, end; begin < at->seq; begin = end) {
        end = attention_document(at, b, begin);
        for (int64_t i = begin; i < end; i += ATTENTION_ROWS)
            forward_block(at, &w, b, h, i, end - i < ATTENTION_ROWS ? end - i : ATTENTION_ROWS,
                          begin);
    }
}

enum status ref_attention_forward(struct device *dev, struct attention *at)
{
    TRY(ref_scratch(dev, 0, work_size(at)));
#pragma omp parallel for num_threads(dev->threads) schedule(dynamic, 1)
    for (int64_t i = 0; i < at->batch * at->heads; i++)
        forward_head(dev, at, i / at->heads, i % at->heads);
    return ST_OK;
}
