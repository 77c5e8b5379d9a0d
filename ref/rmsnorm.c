/* RMSNorm: whole, on a shard, and online. Sums over the width run within each grain of x, then
 * over the tree of its grains; those over tokens (dgain) within blocks of rows, then over the tree
 * of a sample's blocks and that of the samples. */
#include "ref/ref.h"
#include "ref/rows.h"

enum { BLOCK_ROWS = 32 }; /* tokens of a sample whose dgain is summed one after the other */

static real *value(const struct tensor *t, int64_t row, int64_t col)
{
    return (real *)t->data + row * t->stride + col;
}

static real sum_tree(const real *v, int64_t lo, int64_t hi)
{
    int64_t mid = row_mid(lo, hi);

    return hi - lo == 1 ? v[lo] : sum_tree(v, lo, mid) + sum_tree(v, mid, hi);
}

static real mean_root(real s, struct norm norm)
{
    return real_sqrt(s / (real)norm.width + (real)norm.eps);
}

/* Sum of squares of a row; part[grains] gets each grain's. */
static real row_stat(real *part, const real *x, const struct tensor *t)
{
    int64_t width = t->cols / t->col_grains;

    for (int32_t g = 0; g < t->col_grains; g++)
        part[g] = row_sumsq(x + g * width, width);
    return sum_tree(part, 0, t->col_grains);
}

static real row_gain_dot(real *part, const real *t, const real *gain, const real *x,
                         const struct tensor *shape)
{
    int64_t width = shape->cols / shape->col_grains;

    for (int32_t g = 0; g < shape->col_grains; g++)
        part[g] = row_rms_dot(t + g * width, gain + g * width, x + g * width, width);
    return sum_tree(part, 0, shape->col_grains);
}

/* Scratch of one thread: a value a grain, then rows. */
static size_t scratch_size(const struct tensor *x, int rows)
{
    return (size_t)(x->col_grains + rows * x->cols) * sizeof(real);
}

enum status ref_rms_norm(struct device *dev, struct tensor *h, struct tensor *s,
                         const struct tensor *x, const struct tensor *gain, struct norm norm)
{
    TRY(ref_scratch(dev, 0, scratch_size(x, 3)));
#pragma omp parallel num_threads(dev->threads)
    {
        real *part = ref_thread(dev), *buf = part + x->col_grains, *out = buf + x->cols;
        const real *scale = row_in(gain, 0, out + x->cols);

#pragma omp for schedule(static)
        for (int64_t i = 0; i < x->rows; i++) {
            const real *in = row_in(x, i, buf);
            real *to = row_out(h, i, out), stat = row_stat(part, in, x);

            *value(s, i, 0) = stat;
            row_rms(to, in, scale, (real)1 / mean_root(stat, norm), x->cols);
            row_put(h, i, to);
        }
    }
    return ST_OK;
}

enum status ref_rms_stat(struct device *dev, struct tensor *s, const struct tensor *x)
{
    TRY(ref_scratch(dev, 0, scratch_size(x, 1)));
#pragma omp parallel num_threads(dev->threads)
    {
        real *part = ref_thread(dev);

#pragma omp for schedule(static)
        for (int64_t i = 0; i < x->rows; i++)
            *value(s, i, 0) = row_stat(part, row_in(x, i, part + x->col_grains), x);
    }
    return ST_OK;
}

enum status ref_rms_apply(struct device *dev, struct tensor *h, const struct tensor *x,
                          const struct tensor *gain, const struct tensor *s, struct norm norm)
{
    TRY(ref_scratch(dev, 0, scratch_size(x, 3)));
#pragma omp parallel num_threads(dev->threads)
    {
        real *buf = ref_thread(dev), *out = buf + x->cols;
        const real *scale = row_in(gain, 0, out + x->cols);

#pragma omp for schedule(static)
        for (int64_t i = 0; i < x->rows; i++) {
            real *to = row_out(h, i, out);

            row_rms(to, row_in(x, i, buf), scale, (real)1 / mean_root(*value(s, i, 0), norm),
                    x->cols);
            row_put(h, i, to);
        }
    }
    return ST_OK;
}

/* h of one row: divided by the rms of each grain, or not at all. */
static void partial_row(real *h, real *l, const real *x, const real *gain, const real *part,
                        const struct tensor *t, struct norm norm)
{
    int64_t width = t->cols / t->col_grains;

    if (!l) {
        row_mul(h, x, gain, t->cols);
        return;
    }
    for (int32_t g = 0; g < t->col_grains; g++) {
        int64_t at = g * width;

        l[g] = mean_root(part[g], (struct norm){.width = width, .eps = norm.eps});
        row_rms(h + at, x + at, gain + at, (real)1 / l[g], width);
    }
}

enum status ref_rms_partial(struct device *dev, struct tensor *h, struct tensor *s,
                            struct tensor *l, const struct tensor *x, const struct tensor *gain,
                            struct norm norm)
{
    TRY(ref_scratch(dev, 0, scratch_size(x, 3)));
#pragma omp parallel num_threads(dev->threads)
    {
        real *part = ref_thread(dev), *buf = part + x->col_grains, *out = buf + x->cols;
        const real *scale = row_in(gain, 0, out + x->cols);

#pragma omp for schedule(static)
        for (int64_t i = 0; i < x->rows; i++) {
            const real *in = row_in(x, i, buf);
            real *to = row_out(h, i, out);

            *value(s, i, 0) = row_stat(part, in, x);
            partial_row(to, l ? value(l, i, 0) : NULL, in, scale, part, x, norm);
            row_put(h, i, to);
        }
    }
    return ST_OK;
}

enum status ref_rms_dot(struct device *dev, struct tensor *c, const struct tensor *t,
                        const struct tensor *x, const struct tensor *gain)
{
    TRY(ref_scratch(dev, 0, scratch_size(x, 3)));
#pragma omp parallel num_threads(dev->threads)
    {
        real *part = ref_thread(dev), *buf = part + x->col_grains, *buf2 = buf + x->cols;
        const real *scale = row_in(gain, 0, buf2 + x->cols);

#pragma omp for schedule(static)
        for (int64_t i = 0; i < x->rows; i++)
            *value(c, i, 0) = row_gain_dot(part, row_in(t, i, buf), scale, row_in(x, i, buf2), x);
    }
    return ST_OK;
}

/* ab = alpha, beta of a row from c = sum t gain x and s = sum x^2. */
static void coefficients(real ab[2], real c, real s, struct norm norm)
{
    ab[0] = (real)1 / mean_root(s, norm);
    ab[1] = c * ab[0] * ab[0] * ab[0] / (real)norm.width;
}

enum status ref_rms_coef(struct device *dev, struct tensor *coef, const struct tensor *c,
                         const struct tensor *s, struct norm norm)
{
    (void)dev;
    for (int64_t i = 0; i < coef->rows; i++) {
        real ab[2];

        coefficients(ab, *value(c, i, 0), *value(s, i, 0), norm);
        *value(coef, i, 0) = ab[0];
        *value(coef, i, 1) = ab[1];
    }
    return ST_OK;
}

/* What the backward of a row needs beside its tensors: coef, or s and norm to make it from. */
struct given {
    const struct tensor *coef, *s;
    struct norm norm;
};

/* Scratch of one thread in the backward. */
struct rows {
    real *part, *dx, *t, *x;
    const real *gain;
};

static void backward_row(const struct rms_grad *g, const struct given *from, const struct rows *b,
                         real *dgain, int64_t i)
{
    const real *t = row_in(&g->t, i, b->t), *x = row_in(&g->x, i, b->x);
    real *dx = row_out(&g->dx, i, b->dx), ab[2];

    if (dx == b->dx)
        (void)row_in(&g->dx, i, dx);
    if (from->s) {
        coefficients(ab, row_gain_dot(b->part, t, b->gain, x, &g->x), *value(from->s, i, 0),
                     from->norm);
    } else {
        ab[0] = *value(from->coef, i, 0);
        ab[1] = *value(from->coef, i, 1);
    }
    row_rms_gain(dgain, t, x, ab[0], g->x.cols);
    row_rms_backward(dx, t, b->gain, x, ab, g->x.cols);
    row_put(&g->dx, i, dx);
}

/* dgain of each sample and node from that of its blocks of rows, planes[samples * blocks][d]. */
static void join_gain(const struct rms_grad *g, real *planes, int64_t blocks,
                      const struct sample_plan *plan)
{
    int64_t d = g->x.cols;

    for (int32_t s = 0; s < plan->samples; s++)
        ref_tree_planes(planes, d, d, s * blocks, (s + 1) * blocks);
    for (int32_t i = 0; i < plan->nodes; i++) {
        const struct sample_node *node = &plan->node[i];
        real *first = planes + node->first * blocks * d;

        ref_tree_planes(first, blocks * d, d, 0, node->count);
        ref_join(g->dgain.data, first, d, node, plan->plane);
    }
}

static enum status backward(struct device *dev, const struct rms_grad *g, struct given from,
                            const struct sample_plan *plan)
{
    int64_t d = g->x.cols, seq = g->x.rows / plan->samples;
    int64_t blocks = (seq + BLOCK_ROWS - 1) / BLOCK_ROWS;
    real *planes;

    TRY(ref_scratch(dev, (size_t)(plan->samples * blocks * d) * sizeof(real),
                    scratch_size(&g->x, 4)));
    planes = ref_shared(dev);
#pragma omp parallel num_threads(dev->threads)
    {
        struct rows b = {.part = ref_thread(dev)};

        b.dx = b.part + g->x.col_grains;
        b.t = b.dx + d;
        b.x = b.t + d;
        b.gain = row_in(&g->gain, 0, b.x + d);
#pragma omp for schedule(static)
        for (int64_t k = 0; k < plan->samples * blocks; k++) {
            int64_t row = k % blocks * BLOCK_ROWS, sample = k / blocks * seq;
            int64_t end = row + BLOCK_ROWS < seq ? row + BLOCK_ROWS : seq;

            memset(planes + k * d, 0, (size_t)d * sizeof(real));
            for (; row < end; row++)
                backward_row(g, &from, &b, planes + k * d, sample + row);
        }
    }
    join_gain(g, planes, blocks, plan);
    return ST_OK;
}

enum status ref_rms_norm_backward(struct device *dev, const struct rms_grad *g,
                                  const struct tensor *s, struct norm norm,
                                  const struct sample_plan *plan)
{
    TRY(backward(dev, g, (struct given){.s = s, .norm = norm}, plan));
    return ST_OK;
}

enum status ref_rms_backward(struct device *dev, const struct rms_grad *g,
                             const struct tensor *coef, const struct sample_plan *plan)
{
    TRY(backward(dev, g, (struct given){.coef = coef}, plan));
    return ST_OK;
}
