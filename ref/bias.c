/* A bias: the same row added to every token, and its gradient, a sum over tokens. */
#include "ref/ref.h"
#include "ref/rows.h"

#include <string.h>

enum { BLOCK_ROWS = 32 }; /* tokens of a sample that are summed one after the other */

enum status ref_bias_forward(struct device *dev, struct tensor *y, const struct tensor *bias)
{
    TRY(ref_scratch(dev, 0, (size_t)(2 * y->cols) * sizeof(real)));
#pragma omp parallel num_threads(dev->threads)
    {
        real *buf = ref_thread(dev);
        const real *b = row_in(bias, 0, buf + y->cols);

#pragma omp for schedule(static)
        for (int64_t i = 0; i < y->rows; i++) {
            real *out = row_out(y, i, buf);

            row_add(out, row_in(y, i, buf), b, y->cols);
            row_put(y, i, out);
        }
    }
    return ST_OK;
}

/* The sum of each sample and node from those of its blocks of rows, planes[samples * blocks][n]. */
static void join(const struct tensor *dbias, real *planes, int64_t blocks,
                 const struct sample_plan *plan)
{
    int64_t n = dbias->cols;

    for (int32_t s = 0; s < plan->samples; s++)
        ref_tree_planes(planes, n, n, s * blocks, (s + 1) * blocks);
    for (int32_t i = 0; i < plan->nodes; i++) {
        const struct sample_node *node = &plan->node[i];
        real *first = planes + node->first * blocks * n;

        ref_tree_planes(first, blocks * n, n, 0, node->count);
        ref_join(dbias->data, first, n, node, plan->plane);
    }
}

enum status ref_bias_backward(struct device *dev, struct tensor *dbias, const struct tensor *dy,
                              const struct sample_plan *plan)
{
    int64_t n = dy->cols, seq = dy->rows / plan->samples;
    int64_t blocks = (seq + BLOCK_ROWS - 1) / BLOCK_ROWS;
    real *planes;

    TRY(ref_scratch(dev, (size_t)(plan->samples * blocks * n) * sizeof(real),
                    (size_t)n * sizeof(real)));
    planes = ref_shared(dev);
#pragma omp parallel num_threads(dev->threads)
    {
        real *buf = ref_thread(dev);

#pragma omp for schedule(static)
        for (int64_t k = 0; k < plan->samples * blocks; k++) {
            int64_t row = k % blocks * BLOCK_ROWS, sample = k / blocks * seq;
            int64_t end = row + BLOCK_ROWS < seq ? row + BLOCK_ROWS : seq;
            real *sum = planes + k * n;

            memset(sum, 0, (size_t)n * sizeof(real));
            for (; row < end; row++)
                row_add(sum, sum, row_in(dy, sample + row, buf), n);
        }
    }
    join(dbias, planes, blocks, plan);
    return ST_OK;
}
