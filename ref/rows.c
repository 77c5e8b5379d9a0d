#include "ref/rows.h"

#include "ref/vmath.h"

enum { LANES = 16 };

/* Lanes add up in halves: j + (j + 8), then + 4, + 2, + 1. */
static inline real lanes_total(real *lane)
{
    for (int w = LANES / 2; w > 0; w /= 2)
        for (int j = 0; j < w; j++)
            lane[j] += lane[j + w];
    return lane[0];
}

REF_CLONES void row_widen(real *y, const uint16_t *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = (real)bf16_to_float(x[i]);
}

REF_CLONES void row_narrow(uint16_t *y, const real *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = bf16_from_float((float)x[i]);
}

REF_CLONES void row_add(real *y, const real *a, const real *b, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

REF_CLONES void row_scale(real *y, const real *x, real a, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * a;
}

REF_CLONES void row_mul(real *y, const real *a, const real *b, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] * b[i];
}

REF_CLONES real row_sum(const real *x, int64_t n)
{
    real lane[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += x[i + j];
    for (int j = 0; i + j < n; j++)
        lane[j] += x[i + j];
    return lanes_total(lane);
}

REF_CLONES real row_dot(const real *a, const real *b, int64_t n)
{
    real lane[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += a[i + j] * b[i + j];
    for (int j = 0; i + j < n; j++)
        lane[j] += a[i + j] * b[i + j];
    return lanes_total(lane);
}

real row_sumsq(const real *x, int64_t n)
{
    return row_dot(x, x, n);
}

REF_CLONES real row_max(const real *x, int64_t n)
{
    real lane[LANES];
    int64_t i = 0;

    for (int j = 0; j < LANES; j++)
        lane[j] = (real)-INFINITY;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    for (int j = 0; i + j < n; j++)
        lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
    for (int w = LANES / 2; w > 0; w /= 2)
        for (int j = 0; j < w; j++)
            lane[j] = lane[j + w] > lane[j] ? lane[j + w] : lane[j];
    return lane[0];
}

REF_CLONES void row_rms(real *h, const real *x, const real *gain, real alpha, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        h[i] = x[i] * gain[i] * alpha;
}

REF_CLONES real row_rms_dot(const real *t, const real *gain, const real *x, int64_t n)
{
    real lane[LANES] = {0};
    int64_t i = 0;

    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lane[j] += t[i + j] * gain[i + j] * x[i + j];
    for (int j = 0; i + j < n; j++)
        lane[j] += t[i + j] * gain[i + j] * x[i + j];
    return lanes_total(lane);
}

REF_CLONES void row_rms_backward(real *dx, const real *t, const real *gain, const real *x,
                                 const real *ab, int64_t n)
{
    real alpha = ab[0], beta = ab[1];

#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dx[i] += alpha * t[i] * gain[i] - beta * x[i];
}

REF_CLONES void row_rms_gain(real *dgain, const real *t, const real *x, real alpha, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dgain[i] += alpha * t[i] * x[i];
}

REF_CLONES void row_exp(real *y, const real *x, real a, real b, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = vmath_exp(x[i] * a - b);
}

REF_CLONES void row_silu(real *a, const real *z, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        a[i] = z[i] * vmath_sigmoid(z[i]);
}

REF_CLONES void row_silu_back(real *dz, const real *da, const real *z, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        real s = vmath_sigmoid(z[i]);

        dz[i] = da[i] * (s * ((real)1 + z[i] * ((real)1 - s)));
    }
}

REF_CLONES void row_swiglu(real *f, const real *g, const real *u, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        f[i] = g[i] * vmath_sigmoid(g[i]) * u[i];
}

REF_CLONES void row_swiglu_back(real *dg, real *du, const real *df, const real *g, const real *u,
                                int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        real s = vmath_sigmoid(g[i]), d = df[i], slope = s * ((real)1 + g[i] * ((real)1 - s));
        real up = d * (g[i] * s), gate = d * u[i] * slope;

        dg[i] = gate;
        du[i] = up;
    }
}

REF_CLONES void row_product_back(real *dg, real *du, const real *df, const real *g, const real *u,
                                 int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        real up = df[i] * g[i], gate = df[i] * u[i];

        dg[i] = gate;
        du[i] = up;
    }
}

REF_CLONES void row_score_grad(real *ds, const real *p, const real *dp, real delta, real a,
                               int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        ds[i] = p[i] * (dp[i] - delta) * a;
}

REF_CLONES void row_rotate(real *x1, real *x2, const real *c, const real *s, real sign, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        real a = x1[i], b = x2[i], sine = s[i] * sign;

        x1[i] = a * c[i] - b * sine;
        x2[i] = b * c[i] + a * sine;
    }
}

REF_CLONES void row_square_lanes(double lane[16], const real *x, int64_t n)
{
    double sum[LANES];
    int64_t i = 0;

    memcpy(sum, lane, sizeof sum);
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            sum[j] += (double)x[i + j] * (double)x[i + j];
    for (int j = 0; i + j < n; j++)
        sum[j] += (double)x[i + j] * (double)x[i + j];
    memcpy(lane, sum, sizeof sum);
}

REF_CLONES void row_adamw(real *w, real *m, real *v, const real *g, const real k[9], real lr,
                          int64_t n)
{
    real scale = k[0], b1 = k[1], c1 = k[2], b2 = k[3], c2 = k[4];
    real bias1 = k[5], bias2 = k[6], eps = k[7], keep = k[8];

#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        real grad = g[i] * scale, m1 = b1 * m[i] + c1 * grad, v1 = b2 * v[i] + c2 * (grad * grad);

        m[i] = m1;
        v[i] = v1;
        w[i] = w[i] * keep - lr * (m1 * bias1) / (real_sqrt(v1 * bias2) + eps);
    }
}
