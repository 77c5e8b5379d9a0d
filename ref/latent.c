/* Between A and B of a low-rank projection: scale by 1/rms, activation, and their backward. */
#include "ref/ref.h"
#include "ref/rows.h"

static real value(const struct tensor *t, int64_t row)
{
    return ((const real *)t->data)[row * t->stride];
}

static real one_over_rms(const struct tensor *s, int64_t row, struct norm norm)
{
    return (real)1 / real_sqrt(value(s, row) / (real)norm.width + (real)norm.eps);
}

/* a = act(z), z as it is stored: what recomputation will start from. */
static void act_row(struct tensor *a, int64_t i, const real *z, real *buf, enum act act)
{
    real *out = row_out(a, i, buf);

    if (act == ACT_SILU)
        row_silu(out, z, a->cols);
    else if (out != z)
        memcpy(out, z, (size_t)a->cols * sizeof(real));
    row_put(a, i, out);
}

enum status ref_latent_forward(struct device *dev, struct tensor *z, struct tensor *a,
                               const struct tensor *zsum, const struct tensor *s, struct latent lat)
{
    TRY(ref_scratch(dev, 0, (size_t)(2 * z->cols) * sizeof(real)));
#pragma omp parallel num_threads(dev->threads)
    {
        real *buf = ref_thread(dev), *buf2 = buf + z->cols;

#pragma omp for schedule(static)
        for (int64_t i = 0; i < z->rows; i++) {
            real *out = row_out(z, i, buf);

            row_scale(out, row_in(zsum, i, buf), s ? one_over_rms(s, i, lat.norm) : 1, z->cols);
            row_put(z, i, out);
            if (a)
                act_row(a, i, row_in(z, i, buf), buf2, lat.act);
        }
    }
    return ST_OK;
}

enum status ref_latent_act(struct device *dev, struct tensor *a, const struct tensor *z,
                           struct latent lat)
{
    TRY(ref_scratch(dev, 0, (size_t)(2 * z->cols) * sizeof(real)));
#pragma omp parallel num_threads(dev->threads)
    {
        real *buf = ref_thread(dev), *buf2 = buf + z->cols;

#pragma omp for schedule(static)
        for (int64_t i = 0; i < z->rows; i++)
            act_row(a, i, row_in(z, i, buf), buf2, lat.act);
    }
    return ST_OK;
}

static real dot_tree(const real *a, const real *b, int64_t width, int64_t lo, int64_t hi)
{
    int64_t mid = row_mid(lo, hi);

    if (hi - lo == 1)
        return row_dot(a + lo * width, b + lo * width, width);
    return dot_tree(a, b, width, lo, mid) + dot_tree(a, b, width, mid, hi);
}

/* Scratch of one thread in the backward, a row each. */
struct rows {
    const real *da, *z;
    real *dz, *u;
};

/* dz = da act'(z); coef and u from it. The products are taken before u is rounded. */
static void backward_row(struct tensor *u, struct tensor *coef, real alpha, int64_t i,
                         const struct rows *b, const struct latent *lat)
{
    int64_t width = u->cols / u->col_grains;
    real *out = row_out(u, i, b->u);

    if (lat->act == ACT_SILU)
        row_silu_back(b->dz, b->da, b->z, u->cols);
    else
        memcpy(b->dz, b->da, (size_t)u->cols * sizeof(real));
    if (coef) {
        real *ab = (real *)coef->data + i * coef->stride;

        ab[0] = 1;
        ab[1] =
            dot_tree(b->dz, b->z, width, 0, u->col_grains) * alpha * alpha / (real)lat->norm.width;
    }
    row_scale(out, b->dz, alpha, u->cols);
    row_put(u, i, out);
}

enum status ref_latent_backward(struct device *dev, struct tensor *u, struct tensor *coef,
                                const struct tensor *da, const struct tensor *z,
                                const struct tensor *s, struct latent lat)
{
    TRY(ref_scratch(dev, 0, (size_t)(4 * z->cols) * sizeof(real)));
#pragma omp parallel num_threads(dev->threads)
    {
        real *buf = ref_thread(dev);

#pragma omp for schedule(static)
        for (int64_t i = 0; i < z->rows; i++) {
            struct rows b = {.dz = buf, .u = buf + z->cols};

            b.da = row_in(da, i, buf + 2 * z->cols);
            b.z = row_in(z, i, buf + 3 * z->cols);
            backward_row(u, coef, s ? one_over_rms(s, i, lat.norm) : 1, i, &b, &lat);
        }
    }
    return ST_OK;
}
