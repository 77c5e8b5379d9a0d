/* Arithmetic on one row of n numbers: what all operations are made of.
 *
 * Sums run over 16 lanes, element i into lane i mod 16, and the lanes over a tree: an order that
 * depends on n alone, and that a compiler can do many at a time. Outputs may be inputs.
 */
#ifndef REF_ROWS_H
#define REF_ROWS_H

#include "common/tensor/tensor.h"
#include "ref/real.h"

/* y = x, bf16 to real and back (rounded to nearest even). */
void row_widen(real *y, const uint16_t *x, int64_t n);
void row_narrow(uint16_t *y, const real *x, int64_t n);

/* y = a + b;   y = a x;   y = a * b by element. */
void row_add(real *y, const real *a, const real *b, int64_t n);
void row_scale(real *y, const real *x, real a, int64_t n);
void row_mul(real *y, const real *a, const real *b, int64_t n);

/* Sum of x; of x^2; of a b. Largest of x (-inf when n is 0; NaN is passed over). */
real row_sum(const real *x, int64_t n);
real row_sumsq(const real *x, int64_t n);
real row_dot(const real *a, const real *b, int64_t n);
real row_max(const real *x, int64_t n);

/* h = x gain alpha;   sum of t gain x;   dx += alpha t gain - beta x;   dgain += alpha t x. */
void row_rms(real *h, const real *x, const real *gain, real alpha, int64_t n);
real row_rms_dot(const real *t, const real *gain, const real *x, int64_t n);
void row_rms_backward(real *dx, const real *t, const real *gain, const real *x, const real *ab,
                      int64_t n);
void row_rms_gain(real *dgain, const real *t, const real *x, real alpha, int64_t n);

/* y = e^(a x - b). */
void row_exp(real *y, const real *x, real a, real b, int64_t n);

/* a = silu(z);   dz = da silu'(z). */
void row_silu(real *a, const real *z, int64_t n);
void row_silu_back(real *dz, const real *da, const real *z, int64_t n);

/* f = silu(g) u;   dg = df u silu'(g), du = df silu(g);   dg = df u, du = df g. */
void row_swiglu(real *f, const real *g, const real *u, int64_t n);
void row_swiglu_back(real *dg, real *du, const real *df, const real *g, const real *u, int64_t n);
void row_product_back(real *dg, real *du, const real *df, const real *g, const real *u, int64_t n);

/* ds = p (dp - delta) a: from the gradient of probabilities to that of scores. */
void row_score_grad(real *ds, const real *p, const real *dp, real delta, real a, int64_t n);

/* (x1, x2) turned by the angles with cosines c and sines s times sign: x1 c - x2 s, x2 c + x1 s. */
void row_rotate(real *x1, real *x2, const real *c, const real *s, real sign, int64_t n);

/* lane[16] += x^2 in float64, element i into lane i mod 16. */
void row_square_lanes(double lane[16], const real *x, int64_t n);

/* AdamW on n elements (op.h). k: scale of g, beta1, 1 - beta1, beta2, 1 - beta2, 1 / bias1,
 * 1 / bias2, eps, 1 - lr weight_decay. */
void row_adamw(real *w, real *m, real *v, const real *g, const real k[9], real lr, int64_t n);

/* The middle of every tree: [lo, hi) is [lo, mid) and [mid, hi). */
static inline int64_t row_mid(int64_t lo, int64_t hi)
{
    return lo + (hi - lo) / 2;
}

/* Row i of t for reading: its own memory, or converted into buf[cols]. */
static inline const real *row_in(const struct tensor *t, int64_t i, real *buf)
{
    if (t->dtype == REAL_DTYPE)
        return (const real *)t->data + i * t->stride;
    row_widen(buf, (const uint16_t *)t->data + i * t->stride, t->cols);
    return buf;
}

/* Where row i of t is to be computed: its own memory, or buf; then row_put(t, i, that). */
static inline real *row_out(const struct tensor *t, int64_t i, real *buf)
{
    return t->dtype == REAL_DTYPE ? (real *)t->data + i * t->stride : buf;
}

/* Rounds a row computed in a buffer into t; nothing to do for a wide t. */
static inline void row_put(const struct tensor *t, int64_t i, const real *row)
{
    if (t->dtype != REAL_DTYPE)
        row_narrow((uint16_t *)t->data + i * t->stride, row, t->cols);
}

#endif
