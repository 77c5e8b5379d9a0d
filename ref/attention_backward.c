/* Backward of causal attention: probabilities are rebuilt from log-sum-exp. One task for each key
 * head of a sequence, which the query heads that read it pass through in order. */
#include "ref/attention.h"
#include "ref/rows.h"

/* Scratch of one thread; blocks of queries, then whole sequences, then scores. */
struct work {
    real *q, *o, *grad_o, *dq;
    real *k, *v, *dk, *dv;
    real *p, *dp;
};

static struct work carve(real *p, int64_t seq, int64_t dim)
{
    int64_t block = ATTENTION_ROWS * dim;
    struct work w;

    w.q = p;
    w.o = w.q + block;
    w.grad_o = w.o + block;
    w.dq = w.grad_o + block;
    w.k = w.dq + block;
    w.v = w.k + seq * dim;
    w.dk = w.v + seq * dim;
    w.dv = w.dk + seq * dim;
    w.p = w.dv + seq * dim;
    w.dp = w.p + ATTENTION_ROWS * seq;
    return w;
}

static size_t work_size(int64_t seq, int64_t dim)
{
    return (size_t)(4 * ATTENTION_ROWS * dim + 4 * seq * dim + 2 * ATTENTION_ROWS * seq) *
           sizeof(real);
}

/* One document (or sequence) and key head: what all its blocks share. */
struct task {
    const struct attention *at;
    struct attention *dat;
    struct work w;
    struct head k, v, dk, dv; /* from the first row of the document on */
    int64_t b, kv, begin, end;
};

/* p becomes the probabilities of the block, dp the gradient of its scores. */
static void score_grads(const struct task *t, struct head o, struct head grad_o, int64_t h,
                        int64_t first, int64_t rows)
{
    int64_t keys = first + rows - t->begin, dim = t->at->head_dim;
    real scale = attention_scale(dim);

    for (int64_t i = 0; i < rows; i++) {
        int64_t seen = first - t->begin + i + 1, row = t->b * t->at->seq + first + i;
        real *p = t->w.p + i * keys, *dp = t->w.dp + i * keys;
        real lse = ((const real *)t->at->lse.data)[row * t->at->lse.stride + h];
        real delta = row_dot(o.p + i * o.ld, grad_o.p + i * grad_o.ld, dim);

        row_exp(p, p, scale, lse, seen);
        row_score_grad(dp, p, dp, delta, scale, seen);
        memset(p + seen, 0, (size_t)(keys - seen) * sizeof(real));
        memset(dp + seen, 0, (size_t)(keys - seen) * sizeof(real));
    }
}

/* c[keys, dim] = beta c + s' x with s[rows, keys]. */
static void add_keys(struct head c, const real *s, struct head x, const int64_t shape[3], real beta)
{
    int rows = (int)shape[0], keys = (int)shape[1], dim = (int)shape[2];

    cblas_rgemm(CblasRowMajor, CblasTrans, CblasNoTrans, keys, dim, rows, 1, s, keys, x.p,
                (int)x.ld, beta, c.p, (int)c.ld);
}

/* Queries [first, first + rows) of head h; beta 0 starts the sums dk and dv. */
static void backward_block(const struct task *t, int64_t h, int64_t first, int64_t rows, real beta)
{
    const struct attention *at = t->at;
    int64_t dim = at->head_dim, row = t->b * at->seq + first, keys = first + rows - t->begin;
    struct head q = attention_load(&at->q, row, rows, h, dim, t->w.q);
    struct head o = attention_load(&at->o, row, rows, h, dim, t->w.o);
    struct head grad_o = attention_load(&t->dat->o, row, rows, h, dim, t->w.grad_o);
    struct head dq = attention_place(&t->dat->q, row, h, dim, t->w.dq);
    struct head p = {.p = t->w.p, .ld = keys}, dp = {.p = t->w.dp, .ld = keys};

    attention_product(p, q, t->k, 1, (const int64_t[3]){rows, keys, dim}, 0);
    attention_product(dp, grad_o, t->v, 1, (const int64_t[3]){rows, keys, dim}, 0);
    score_grads(t, o, grad_o, h, first, rows);
    add_keys(t->dv, t->w.p, grad_o, (const int64_t[3]){rows, keys, dim}, beta);
    add_keys(t->dk, t->w.dp, q, (const int64_t[3]){rows, keys, dim}, beta);
    attention_product(dq, dp, t->k, 0, (const int64_t[3]){rows, dim, keys}, 0);
    attention_store(&t->dat->q, row, rows, h, dim, t->w.dq);
}

/* The last block of queries goes first: it sees all keys and so starts all of dk and dv. */
static void backward_head(const struct task *t)
{
    const struct attention *at = t->at;
    int64_t group = at->heads / at->kv_heads, last = (t->end - t->begin - 1) / ATTENTION_ROWS;

    for (int64_t h = t->kv * group; h < (t->kv + 1) * group; h++)
        for (int64_t i = last; i >= 0; i--) {
            int64_t first = t->begin + i * ATTENTION_ROWS, left = t->end - first;

            backward_block(t, h, first, left < ATTENTION_ROWS ? left : ATTENTION_ROWS,
                           h == t->kv * group && i == last ? 0 : 1);
        }
}

static void run_task(struct device *dev, const struct attention *at, struct attention *dat,
                     int64_t b, int64_t kv)
{
    int64_t row = b * at->seq, seq = at->seq, dim = at->head_dim;
    struct task t = {.at = at, .dat = dat, .b = b, .kv = kv};

    t.w = carve(ref_thread(dev), seq, dim);
    t.k = attention_load(&at->k, row, seq, kv, dim, t.w.k);
    t.v = attention_load(&at->v, row, seq, kv, dim, t.w.v);
    t.dk = attention_place(&dat->k, row, kv, dim, t.w.dk);
    t.dv = attention_place(&dat->v, row, kv, dim, t.w.dv);
    for (; t.begin < seq; t.begin = t.end) {
        struct task document = t;

        t.end = document.end = attention_document(at, b, t.begin);
        document.k.p += t.begin * t.k.ld;
        document.v.p += t.begin * t.v.ld;
        document.dk.p += t.begin * t.dk.ld;
        document.dv.p += t.begin * t.dv.ld;
        backward_head(&document);
    }
    attention_store(&dat->k, row, seq, kv, dim, t.w.dk);
    attention_store(&dat->v, row, seq, kv, dim, t.w.dv);
}

enum status ref_attention_backward(struct device *dev, const struct attention *at,
                                   struct attention *dat)
{
    TRY(ref_scratch(dev, 0, work_size(at->seq, at->head_dim)));
#pragma omp parallel for num_threads(dev->threads) schedule(dynamic, 1)
    for (int64_t i = 0; i < at->batch * at->kv_heads; i++)
        run_task(dev, at, dat, i / at->kv_heads, i % at->kv_heads);
    return ST_OK;
}
