/* Rotary position embedding. */
#include "ref/ref.h"
#include "ref/rows.h"

static void rotate_row(struct tensor *x, const struct tensor *table, const struct rope *rope,
                       int64_t i, real *buf)
{
    int64_t half = rope->head_dim / 2, position = rope->pos0 + i % rope->seq;
    int64_t start = rope->starts.data ? ((const int32_t *)rope->starts.data)[i] : 0;
    const real *cosine = (const real *)table->data + (position - start) * table->stride;
    real *row = row_out(x, i, buf);

    if (row == buf)
        (void)row_in(x, i, buf);
    for (int64_t h = 0; h < x->cols; h += rope->head_dim)
        row_rotate(row + h, row + h + half, cosine, cosine + half, rope->inverse ? -1 : 1, half);
    row_put(x, i, row);
}

enum status ref_rope(struct device *dev, struct tensor *x, const struct tensor *table,
                     struct rope rope)
{
    TRY(ref_scratch(dev, 0, (size_t)x->cols * sizeof(real)));
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int64_t i = 0; i < x->rows; i++)
        rotate_row(x, table, &rope, i, ref_thread(dev));
    return ST_OK;
}
