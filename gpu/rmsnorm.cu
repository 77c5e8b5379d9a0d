#include "gpu/fit.cuh"
#include "gpu/gpu.h"

/* What a pass over a row makes of its sum of squares. */
enum rms_kind { RMS_STAT, RMS_SHORT, RMS_SCALED };

struct rms_args {
    struct view h, x, gain;
    struct column s, l; /* l: the rms itself, when wanted */
    struct norm norm;
    int64_t cols;
    enum rms_kind kind;
};

/* One block a row, of any width. The second pass of RMS_SCALED finds the row in the cache. */
template <int FORM, int V> __global__ void rms_kernel(struct rms_args a)
{
    int64_t row = blockIdx.x, x0 = row * a.x.stride, h0 = row * a.h.stride;
    float sum = 0.0f, x[V], g[V], scale;

    for (int64_t col = threadIdx.x * V; col < a.cols; col += blockDim.x * V) {
        load<FORM, V>(x, a.x, x0 + col);
        if (a.kind == RMS_SHORT)
            load<FORM, V>(g, a.gain, col);
#pragma unroll
        for (int i = 0; i < V; i++) {
            sum += x[i] * x[i];
            if (a.kind == RMS_SHORT)
                g[i] *= x[i];
        }
        if (a.kind == RMS_SHORT)
            store<FORM, V>(a.h, h0 + col, g);
    }
    sum = block_sum(sum);
    scale = inverse_rms(sum, a.norm);
    if (threadIdx.x == 0) {
        a.s.data[row * a.s.stride] = sum;
        if (a.l.data)
            a.l.data[row * a.l.stride] = sqrtf(sum / (float)a.norm.width + (float)a.norm.eps);
    }
    if (a.kind != RMS_SCALED)
        return;
    for (int64_t col = threadIdx.x * V; col < a.cols; col += blockDim.x * V) {
        load<FORM, V>(x, a.x, x0 + col);
        load<FORM, V>(g, a.gain, col);
#pragma unroll
        for (int i = 0; i < V; i++)
            x[i] = x[i] * g[i] * scale;
        store<FORM, V>(a.h, h0 + col, x);
    }
}

/* Pieces of eight that a thread holds of its row in the kernel below. */
enum { RMS_PIECES = 4, RMS_HELD = 8 * RMS_PIECES * 256 };

/* The same for rows that a block of at most 256 threads can hold: all of a thread's pieces are on
 * their way at once, and each is read once. Piece k of thread t begins at column 8 (t + k threads).
 */
template <int FORM> __global__ void rms_held_kernel(struct rms_args a)
{
    int64_t row = blockIdx.x, x0 = row * a.x.stride, h0 = row * a.h.stride;
    struct raw<FORM> x[RMS_PIECES], gain;
    float sum = 0.0f, scale = 1.0f, h[8];

#pragma unroll
    for (int k = 0; k < RMS_PIECES; k++) {
        int64_t col = 8 * (threadIdx.x + k * (int64_t)blockDim.x);

        if (col < a.cols)
            raw_load<FORM>(&x[k], a.x, x0 + col);
        else
            x[k] = raw<FORM>{};
    }
#pragma unroll
    for (int k = 0; k < RMS_PIECES; k++)
#pragma unroll
        for (int i = 0; i < 8; i++)
            sum += raw_at<FORM>(x[k], i) * raw_at<FORM>(x[k], i);
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        a.s.data[row * a.s.stride] = sum;
        if (a.l.data)
            a.l.data[row * a.l.stride] = sqrtf(sum / (float)a.norm.width + (float)a.norm.eps);
    }
    if (a.kind == RMS_STAT)
        return;
    if (a.kind == RMS_SCALED)
        scale = inverse_rms(sum, a.norm);
#pragma unroll
    for (int k = 0; k < RMS_PIECES; k++) {
        int64_t col = 8 * (threadIdx.x + k * (int64_t)blockDim.x);

        if (col >= a.cols)
            continue;
        raw_load<FORM>(&gain, a.gain, col);
#pragma unroll
        for (int i = 0; i < 8; i++)
            h[i] = raw_at<FORM>(x[k], i) * raw_at<FORM>(gain, i) * scale;
        store<FORM, 8>(a.h, h0 + col, h);
    }
}

template <int FORM, int V>
static void rms_start(const struct rms_args &a, unsigned rows, cudaStream_t stream)
{
    if constexpr (V == 8) {
        if (a.cols <= RMS_HELD) {
            int64_t spans = (a.cols + V * RMS_PIECES - 1) / (V * RMS_PIECES);
            unsigned threads = row_threads(spans, 1, 256);

            rms_held_kernel<FORM><<<rows, threads, 0, stream>>>(a);
            return;
        }
    }
    rms_kernel<FORM, V><<<rows, row_threads(a.cols, V, 256), 0, stream>>>(a);
}

/* h, gain and l may be NULL where kind has no use for them. */
static enum status rms_launch(struct device *dev, struct rms_args a, struct tensor *h,
                              const struct tensor *x, const struct tensor *gain)
{
    struct fit f = fit_start(x->rows, x->cols);

    if (tensor_count(x) == 0)
        return ST_OK;
    a.x = fit_view(&f, x);
    a.h = h ? fit_view(&f, h) : a.x;
    a.gain = gain ? fit_view(&f, gain, true) : a.x;
    a.cols = x->cols;
    TRY(fit_check(&f, "rms_norm"));
    fit_launch(&f, [&](auto form, auto v) {
        rms_start<form, v>(a, (unsigned)f.rows, gpu_of(dev)->stream);
    });
    return gpu_launched(gpu_of(dev), "rms_norm");
}

extern "C" enum status gpu_rms_norm(struct device *dev, struct tensor *h, struct tensor *s,
                                    const struct tensor *x, const struct tensor *gain,
                                    struct norm norm)
{
    struct rms_args a = {};

    a.norm = norm;
    a.kind = RMS_SCALED;
    TRY(fit_column_alone(&a.s, s));
    return rms_launch(dev, a, h, x, gain);
}

extern "C" enum status gpu_rms_partial(struct device *dev, struct tensor *h, struct tensor *s,
                                       struct tensor *l, const struct tensor *x,
                                       const struct tensor *gain, struct norm norm)
{
    struct rms_args a = {};

    if (l && l->cols != 1)
        return fail(ST_ESHAPE,
                    "rms_partial: rms of %lld grains a row; on the gpu backend a shard is one "
                    "grain (grains of this rank: 1)",
                    (long long)l->cols);
    a.norm = norm;
    a.norm.width = x->cols; /* the local form's own mean; the short form does not use it */
    a.kind = l ? RMS_SCALED : RMS_SHORT;
    TRY(fit_column_alone(&a.s, s));
    TRY(fit_column_alone(&a.l, l));
    return rms_launch(dev, a, h, x, gain);
}

extern "C" enum status gpu_rms_stat(struct device *dev, struct tensor *s, const struct tensor *x)
{
    struct rms_args a = {};

    a.norm.width = x->cols;
    a.kind = RMS_STAT;
    TRY(fit_column_alone(&a.s, s));
    return rms_launch(dev, a, nullptr, x, nullptr);
}

template <int FORM, int V> __global__ void rms_apply_kernel(struct rms_args a, unsigned pieces)
{
    int64_t row, col;
    float x[V], g[V], scale;

    grid_place<V>(&row, &col, pieces);
    if (col >= a.cols)
        return;
    scale = inverse_rms(a.s.data[row * a.s.stride], a.norm);
    load<FORM, V>(x, a.x, row * a.x.stride + col);
    load<FORM, V>(g, a.gain, col);
#pragma unroll
    for (int i = 0; i < V; i++)
        x[i] = x[i] * g[i] * scale;
    store<FORM, V>(a.h, row * a.h.stride + col, x);
}

extern "C" enum status gpu_rms_apply(struct device *dev, struct tensor *h, const struct tensor *x,
                                     const struct tensor *gain, const struct tensor *s,
                                     struct norm norm)
{
    struct fit f = fit_start(x->rows, x->cols);
    struct rms_args a = {};

    if (tensor_count(x) == 0)
        return ST_OK;
    a.norm = norm;
    a.cols = x->cols;
    a.x = fit_view(&f, x);
    a.h = fit_view(&f, h);
    a.gain = fit_view(&f, gain, true);
    a.s = fit_column(&f, s);
    TRY(fit_check(&f, "rms_apply"));
    fit_launch(&f, [&](auto form, auto v) {
        struct grid g = grid_of(&f, v);

        rms_apply_kernel<form, v><<<g.blocks, g.threads, 0, gpu_of(dev)->stream>>>(a, g.pieces);
    });
    return gpu_launched(gpu_of(dev), "rms_apply");
}

template <int FORM, int V>
__global__ void rms_dot_kernel(struct column c, struct view t, struct view x, struct view gain,
                               int64_t cols)
{
    int64_t row = blockIdx.x;
    float sum = 0.0f, p[V], q[V], g[V];

    for (int64_t col = threadIdx.x * V; col < cols; col += blockDim.x * V) {
        load<FORM, V>(p, t, row * t.stride + col);
        load<FORM, V>(q, x, row * x.stride + col);
        load<FORM, V>(g, gain, col);
#pragma unroll
        for (int i = 0; i < V; i++)
            sum += p[i] * g[i] * q[i];
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        c.data[row * c.stride] = sum;
}

extern "C" enum status gpu_rms_dot(struct device *dev, struct tensor *c, const struct tensor *t,
                                   const struct tensor *x, const struct tensor *gain)
{
    struct fit f = fit_start(x->rows, x->cols);
    struct view vt = fit_view(&f, t), vx = fit_view(&f, x), vg = fit_view(&f, gain, true);
    struct column vc = fit_column(&f, c);

    if (tensor_count(x) == 0)
        return ST_OK;
    TRY(fit_check(&f, "rms_dot"));
    fit_launch(&f, [&](auto form, auto v) {
        unsigned threads = row_threads(f.cols, v, 512);

        rms_dot_kernel<form, v>
            <<<(unsigned)f.rows, threads, 0, gpu_of(dev)->stream>>>(vc, vt, vx, vg, f.cols);
    });
    return gpu_launched(gpu_of(dev), "rms_dot");
}

__global__ void rms_coef_kernel(struct column coef, struct column c, struct column s,
                                struct norm norm, int64_t rows)
{
    int64_t row = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    float alpha;

    if (row >= rows)
        return;
    alpha = inverse_rms(s.data[row * s.stride], norm);
    coef.data[row * coef.stride] = alpha;
    coef.data[row * coef.stride + 1] =
        c.data[row * c.stride] * alpha * alpha * alpha / (float)norm.width;
}

extern "C" enum status gpu_rms_coef(struct device *dev, struct tensor *coef, const struct tensor *c,
                                    const struct tensor *s, struct norm norm)
{
    struct fit f = fit_start(coef->rows, 2);
    struct column vk = fit_column(&f, coef), vc = fit_column(&f, c), vs = fit_column(&f, s);

    if (coef->rows == 0)
        return ST_OK;
    TRY(fit_check(&f, "rms_coef"));
    rms_coef_kernel<<<(unsigned)((f.rows + 127) / 128), 128, 0, gpu_of(dev)->stream>>>(
        vk, vc, vs, norm, f.rows);
    return gpu_launched(gpu_of(dev), "rms_coef");
}
