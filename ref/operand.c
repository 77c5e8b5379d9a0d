/* Operands of matrix products as reals, and sums over samples: what several operations share. */
#include "ref/ref.h"
#include "ref/rows.h"

#include <cblas.h>

enum { ALIGN = 64 };

size_t ref_operand_size(const struct tensor *t)
{
    size_t bytes = (size_t)tensor_count(t) * sizeof(real);

    return t->dtype == REAL_DTYPE ? 0 : (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

struct ref_operand ref_operand(struct device *dev, const struct tensor *t, char **at)
{
    struct ref_operand o = {.p = t->data, .ld = t->stride};

    if (t->dtype == REAL_DTYPE)
        return o;
    o.p = (real *)*at;
    o.ld = t->cols;
    *at += ref_operand_size(t);
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int64_t i = 0; i < t->rows; i++)
        row_widen(o.p + i * o.ld, (const uint16_t *)tensor_row(t, i), t->cols);
    return o;
}

void ref_join(real *dst, real *sum, int64_t width, const struct sample_node *node, int64_t plane)
{
    real *out = (real *)((char *)dst + node->slot * plane);

    if (node->merges == 0) {
        memcpy(out, sum, (size_t)width * sizeof(real));
        return;
    }
    for (int32_t i = 0; i < node->merges; i++) {
        const real *waiting = (const real *)((const char *)dst + node->merge[i] * plane);

        row_add(i == node->merges - 1 ? out : sum, waiting, sum, width);
    }
}

void ref_tree_planes(real *p, int64_t stride, int64_t width, int64_t lo, int64_t hi)
{
    int64_t mid = row_mid(lo, hi);

    if (hi - lo < 2)
        return;
    ref_tree_planes(p, stride, width, lo, mid);
    ref_tree_planes(p, stride, width, mid, hi);
    row_add(p + lo * stride, p + lo * stride, p + mid * stride, width);
}
