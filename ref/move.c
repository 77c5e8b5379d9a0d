/* Adding up, converting, and rearranging. */
#include "ref/ref.h"
#include "ref/rows.h"

enum status ref_add(struct device *dev, struct tensor *y, const struct tensor *a,
                    const struct tensor *b)
{
    TRY(ref_scratch(dev, 0, (size_t)(3 * y->cols) * sizeof(real)));
#pragma omp parallel num_threads(dev->threads)
    {
        real *buf = ref_thread(dev);

#pragma omp for schedule(static)
        for (int64_t i = 0; i < y->rows; i++) {
            real *out = row_out(y, i, buf);

            row_add(out, row_in(a, i, buf + y->cols), row_in(b, i, buf + 2 * y->cols), y->cols);
            row_put(y, i, out);
        }
    }
    return ST_OK;
}

/* Columns of any type to any other; equal types keep their bits. */
static void convert_row(struct tensor *y, int64_t yrow, const struct tensor *x, int64_t xrow)
{
    void *to = tensor_row(y, yrow);
    const void *from = tensor_row(x, xrow);

    if (y->dtype == x->dtype)
        memmove(to, from, (size_t)y->cols * dtype_size(y->dtype));
    else if (y->dtype == REAL_DTYPE && x->dtype == DT_BF16)
        row_widen(to, from, y->cols);
    else if (y->dtype == DT_BF16 && x->dtype == REAL_DTYPE)
        row_narrow(to, from, y->cols);
    else
        for (int64_t j = 0; j < y->cols; j++)
            dtype_store(to, y->dtype, j, dtype_load(from, x->dtype, j));
}

enum status ref_cols_join(struct device *dev, struct tensor *y, const struct tensor *parts)
{
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int64_t i = 0; i < parts->rows; i++) {
        struct tensor to = tensor_cols(y, i / y->rows * parts->cols, parts->cols, 1);

        convert_row(&to, i % y->rows, parts, i);
    }
    return ST_OK;
}

enum status ref_cols_split(struct device *dev, struct tensor *parts, const struct tensor *x)
{
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int64_t i = 0; i < parts->rows; i++) {
        struct tensor from = tensor_cols(x, i / x->rows * parts->cols, parts->cols, 1);

        convert_row(parts, i, &from, i % x->rows);
    }
    return ST_OK;
}

/* sum = parts [lo, hi) of row i over the tree; what follows sum is used for right branches. */
static void sum_parts(real *sum, const struct tensor *parts, int64_t rows, int64_t i, int64_t lo,
                      int64_t hi)
{
    int64_t mid = row_mid(lo, hi), n = parts->cols;

    if (hi - lo == 1) {
        const real *x = row_in(parts, lo * rows + i, sum);

        if (x != sum)
            memcpy(sum, x, (size_t)n * sizeof(real));
        return;
    }
    sum_parts(sum, parts, rows, i, lo, mid);
    sum_parts(sum + n, parts, rows, i, mid, hi);
    row_add(sum, sum, sum + n, n);
}

enum status ref_sum_tree(struct device *dev, struct tensor *s, const struct tensor *parts)
{
    int64_t p = parts->rows / s->rows, levels = 2;

    for (int64_t k = p; k > 1; k = (k + 1) / 2)
        levels++;
    TRY(ref_scratch(dev, 0, (size_t)(levels * s->cols) * sizeof(real)));
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int64_t i = 0; i < s->rows; i++) {
        real *sum = ref_thread(dev);

        sum_parts(sum, parts, s->rows, i, 0, p);
        if (s->dtype == REAL_DTYPE)
            memcpy(tensor_row(s, i), sum, (size_t)s->cols * sizeof(real));
        else
            row_put(s, i, sum);
    }
    return ST_OK;
}

enum status ref_convert(struct device *dev, struct tensor *y, const struct tensor *x, int n)
{
    for (int t = 0; t < n; t++) {
#pragma omp parallel for num_threads(dev->threads) schedule(static)
        for (int64_t i = 0; i < y[t].rows; i++)
            convert_row(&y[t], i, &x[t], i);
    }
    return ST_OK;
}
