/* The product between the two halves of a feed-forward layer. */
#include "ref/ref.h"
#include "ref/rows.h"

enum status ref_swiglu_forward(struct device *dev, struct tensor *f, const struct tensor *g,
                               const struct tensor *u, enum swiglu_kind kind)
{
    TRY(ref_scratch(dev, 0, (size_t)(3 * f->cols) * sizeof(real)));
#pragma omp parallel num_threads(dev->threads)
    {
        real *buf = ref_thread(dev);

#pragma omp for schedule(static)
        for (int64_t i = 0; i < f->rows; i++) {
            const real *gate = row_in(g, i, buf), *up = row_in(u, i, buf + f->cols);
            real *out = row_out(f, i, buf + 2 * f->cols);

            if (kind == SWIGLU_SILU)
                row_swiglu(out, gate, up, f->cols);
            else
                row_mul(out, gate, up, f->cols);
            row_put(f, i, out);
        }
    }
    return ST_OK;
}

static void backward_row(const struct swiglu_grad *d, enum swiglu_kind kind, int64_t i, real *buf)
{
    int64_t n = d->df.cols;
    const real *df = row_in(&d->df, i, buf), *g = row_in(&d->g, i, buf + n);
    const real *u = row_in(&d->u, i, buf + 2 * n);
    real *dg = row_out(&d->dg, i, buf + 3 * n), *du = row_out(&d->du, i, buf + 4 * n);

    if (kind == SWIGLU_SILU)
        row_swiglu_back(dg, du, df, g, u, n);
    else
        row_product_back(dg, du, df, g, u, n);
    row_put(&d->dg, i, dg);
    row_put(&d->du, i, du);
}

enum status ref_swiglu_backward(struct device *dev, const struct swiglu_grad *d,
                                enum swiglu_kind kind)
{
    TRY(ref_scratch(dev, 0, (size_t)(5 * d->df.cols) * sizeof(real)));
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int64_t i = 0; i < d->df.rows; i++)
        backward_row(d, kind, i, ref_thread(dev));
    return ST_OK;
}

enum status ref_gemm_swiglu_forward(struct device *dev, const struct gemm g[2], struct tensor *f,
                                    enum swiglu_kind kind)
{
    TRY(ref_gemm(dev, g, 2));
    return ref_swiglu_forward(dev, f, &g[0].y, &g[1].y, kind);
}

enum status ref_gemm_swiglu_backward(struct device *dev, const struct gemm *g,
                                     const struct swiglu_grad *d, enum swiglu_kind kind)
{
    TRY(ref_gemm(dev, g, 1));
    return ref_swiglu_backward(dev, d, kind);
}
