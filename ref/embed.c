/* Rows of the embedding out, and gradients of rows back. */
#include "ref/ref.h"
#include "ref/rows.h"

static int32_t token(const struct tensor *tokens, int64_t i)
{
    return ((const int32_t *)tokens->data)[i * tokens->stride];
}

/* y's row i from the row `from` of w; equal types keep their bits. */
static void copy_row(struct tensor *y, int64_t i, const struct tensor *w, int64_t from, real *buf)
{
    const real *row;

    if (y->dtype == w->dtype) {
        memcpy(tensor_row(y, i), tensor_row(w, from), (size_t)y->cols * dtype_size(y->dtype));
        return;
    }
    row = row_in(w, from, row_out(y, i, buf));
    row_put(y, i, row);
}

enum status ref_embed_forward(struct device *dev, struct tensor *y, const struct tensor *w,
                              const struct tensor *tokens, int64_t row0)
{
    TRY(ref_scratch(dev, 0, (size_t)y->cols * sizeof(real)));
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int64_t i = 0; i < y->rows; i++) {
        int64_t row = token(tokens, i) - row0;

        if (row >= 0 && row < w->rows)
            copy_row(y, i, w, row, ref_thread(dev));
        else
            memset(tensor_row(y, i), 0, (size_t)y->cols * dtype_size(y->dtype));
    }
    return ST_OK;
}

/* The tokens of a node by row of dw: row v has order[start[v] .. start[v + 1]), ascending. */
struct index {
    int64_t *start;
    int32_t *order;
};

static void index_node(struct index *x, const struct tensor *tokens, int64_t rows, int64_t row0,
                       int64_t begin, int64_t end)
{
    int64_t *next = x->start + 1; /* after the second pass each entry stands at its row's end */

    memset(x->start, 0, (size_t)(rows + 2) * sizeof(int64_t));
    for (int64_t i = begin; i < end; i++) {
        int64_t row = token(tokens, i) - row0;

        if (row >= 0 && row < rows)
            next[row + 1]++;
    }
    for (int64_t v = 0; v < rows; v++)
        next[v + 1] += next[v];
    for (int64_t i = begin; i < end; i++) {
        int64_t row = token(tokens, i) - row0;

        if (row >= 0 && row < rows)
            x->order[next[row]++] = (int32_t)i;
    }
}

/* sum = dy of the tokens order[0 .. n) over the tree of samples [lo, hi), of which those without
 * any token add nothing; n > 0. What follows sum is used for right branches. Sums begin with +0,
 * so that none is -0 and what is not there counts as +0. */
static void sum_tokens(real *sum, const struct tensor *dy, const int32_t *order, int64_t n,
                       const int64_t span[3])
{
    int64_t lo = span[0], hi = span[1], seq = span[2], mid = row_mid(lo, hi), left = 0;

    if (hi - lo == 1) {
        memset(sum, 0, (size_t)dy->cols * sizeof(real));
        for (int64_t e = 0; e < n; e++)
            row_add(sum, sum, row_in(dy, order[e], sum + dy->cols), dy->cols);
        return;
    }
    while (left < n && order[left] < mid * seq)
        left++;
    if (left > 0)
        sum_tokens(sum, dy, order, left, (const int64_t[3]){lo, mid, seq});
    if (left < n)
        sum_tokens(left > 0 ? sum + dy->cols : sum, dy, order + left, n - left,
                   (const int64_t[3]){mid, hi, seq});
    if (left > 0 && left < n)
        row_add(sum, sum, sum + dy->cols, dy->cols);
}

static void join_row(struct tensor *dw, const struct tensor *dy, const struct index *x, int64_t v,
                     const struct sample_plan *plan, const struct sample_node *node, real *sum)
{
    int64_t begin = x->start[v], n = x->start[v + 1] - begin;
    int64_t span[3] = {node->first, node->first + node->count, dy->rows / plan->samples};

    if (n == 0 && node->merges == 1 && node->slot == node->merge[0])
        return;
    if (n > 0)
        sum_tokens(sum, dy, x->order + begin, n, span);
    else
        memset(sum, 0, (size_t)dy->cols * sizeof(real));
    ref_join((real *)dw->data + v * dw->stride, sum, dw->cols, node, plan->plane);
}

enum status ref_embed_backward(struct device *dev, struct tensor *dw, const struct tensor *dy,
                               const struct tensor *tokens, int64_t row0,
                               const struct sample_plan *plan)
{
    int64_t seq = dy->rows / plan->samples, levels = 3;
    size_t starts = (size_t)(dw->rows + 2) * sizeof(int64_t);
    struct index x;

    for (int64_t s = plan->samples; s > 1; s = (s + 1) / 2)
        levels++;
    TRY(ref_scratch(dev, starts + (size_t)dy->rows * sizeof(int32_t),
                    (size_t)(levels * dy->cols) * sizeof(real)));
    x.start = ref_shared(dev);
    x.order = (int32_t *)((char *)ref_shared(dev) + starts);
    for (int32_t i = 0; i < plan->nodes; i++) {
        const struct sample_node *node = &plan->node[i];

        index_node(&x, tokens, dw->rows, row0, node->first * seq,
                   (node->first + node->count) * seq);
#pragma omp parallel for num_threads(dev->threads) schedule(static, 64)
        for (int64_t v = 0; v < dw->rows; v++)
            join_row(dw, dy, &x, v, plan, node, ref_thread(dev));
    }
    return ST_OK;
}
