/* Backward of the norms: one pass over the rows, with the gain's gradient summed beside it. */
#include "gpu/fit.cuh"
#include "gpu/gpu.h"
#include "gpu/reduce.h"

/* Columns of a block of the kernel below: so many floats of shared memory. */
enum { RMS_TILE = 4096, RMS_WHOLE = 12288 };

struct rms_back_args {
    struct view dx, t, x, gain;
    struct column coef; /* alpha and beta of each row; or, with data NULL, from s */
    struct column s;
    struct norm norm;
    int64_t rows, cols, tile, per;
    float *partial; /* [parts, cols] */
};

/* alpha and beta of a row from its statistic, c summed over the row by the whole block. */
template <int FORM, int V>
static __device__ void rms_row_coef(float *alpha, float *beta, const struct rms_back_args &a,
                                    int64_t row)
{
    float sum = 0.0f, t[V], x[V], g[V];

    for (int64_t col = threadIdx.x * V; col < a.cols; col += blockDim.x * V) {
        load<FORM, V>(t, a.t, row * a.t.stride + col);
        load<FORM, V>(x, a.x, row * a.x.stride + col);
        load<FORM, V>(g, a.gain, col);
#pragma unroll
        for (int i = 0; i < V; i++)
            sum += t[i] * g[i] * x[i];
    }
    sum = block_sum(sum);
    *alpha = inverse_rms(a.s.data[row * a.s.stride], a.norm);
    *beta = sum * *alpha * *alpha * *alpha / (float)a.norm.width;
}

/* Sums of the columns that threads own, in shared memory, laid out so that the two float4 of eight
 * columns lie where their neighbours' do: no bank conflicts. */
template <int V>
static __device__ __forceinline__ float4 *gain_slot(float4 *sum, int64_t j, int64_t tile, int half)
{
    return sum + half * (tile / 8) + j / 8;
}

template <int V>
static __device__ __forceinline__ void gain_load(float (&f)[V], float4 *sum, int64_t j,
                                                 int64_t tile)
{
    if constexpr (V == 8) {
        float4 a = *gain_slot<V>(sum, j, tile, 0), b = *gain_slot<V>(sum, j, tile, 1);

        f[0] = a.x, f[1] = a.y, f[2] = a.z, f[3] = a.w;
        f[4] = b.x, f[5] = b.y, f[6] = b.z, f[7] = b.w;
    } else {
        f[0] = reinterpret_cast<float *>(sum)[j];
    }
}

template <int V>
static __device__ __forceinline__ void gain_store(float4 *sum, int64_t j, int64_t tile,
                                                  const float (&f)[V])
{
    if constexpr (V == 8) {
        *gain_slot<V>(sum, j, tile, 0) = make_float4(f[0], f[1], f[2], f[3]);
        *gain_slot<V>(sum, j, tile, 1) = make_float4(f[4], f[5], f[6], f[7]);
    } else {
        reinterpret_cast<float *>(sum)[j] = f[0];
    }
}

/* One row of the kernel below. */
template <int FORM, int V>
static __device__ void rms_backward_row(float4 *gain_sum, const struct rms_back_args &a,
                                        int64_t row, float alpha, float beta)
{
    int64_t col0 = blockIdx.y * a.tile, width = min(a.tile, a.cols - col0);
    float dx[V], t[V], x[V], g[V], sum[V];

    for (int64_t j = threadIdx.x * V; j < width; j += blockDim.x * V) {
        load<FORM, V>(t, a.t, row * a.t.stride + col0 + j);
        load<FORM, V>(x, a.x, row * a.x.stride + col0 + j);
        load<FORM, V>(dx, a.dx, row * a.dx.stride + col0 + j);
        load<FORM, V>(g, a.gain, col0 + j);
        gain_load<V>(sum, gain_sum, j, a.tile);
#pragma unroll
        for (int i = 0; i < V; i++) {
            t[i] *= alpha;
            dx[i] += t[i] * g[i] - beta * x[i];
            sum[i] += t[i] * x[i];
        }
        store<FORM, V>(a.dx, row * a.dx.stride + col0 + j, dx);
        gain_store<V>(gain_sum, j, a.tile, sum);
    }
}

/* Block (i, j): rows [i per, (i+1) per), columns [j tile, (j+1) tile). A thread owns its columns
 * of gain_sum, so that the sum over rows runs in row order without a barrier. */
template <int FORM, int V> __global__ void rms_backward_kernel(struct rms_back_args a)
{
    extern __shared__ float4 gain_sum[];
    int64_t first = blockIdx.x * a.per, last = min(first + a.per, a.rows);
    int64_t col0 = blockIdx.y * a.tile, width = min(a.tile, a.cols - col0);
    float alpha, beta, sum[V] = {};

    for (int64_t j = threadIdx.x * V; j < width; j += blockDim.x * V)
        gain_store<V>(gain_sum, j, a.tile, sum);
    for (int64_t row = first; row < last; row++) {
        if (a.coef.data) {
            alpha = a.coef.data[row * a.coef.stride];
            beta = a.coef.data[row * a.coef.stride + 1];
        } else {
            rms_row_coef<FORM, V>(&alpha, &beta, a, row);
        }
        rms_backward_row<FORM, V>(gain_sum, a, row, alpha, beta);
    }
    for (int64_t j = threadIdx.x * V; j < width; j += blockDim.x * V) {
        float *out = a.partial + blockIdx.x * a.cols + col0 + j;

        gain_load<V>(sum, gain_sum, j, a.tile);
#pragma unroll
        for (int i = 0; i < V; i++)
            out[i] = sum[i];
    }
}

/* What a thread holds of a row in the kernel below: eight columns. */
template <int FORM> struct piece {
    struct raw<FORM> t, x, dx;
};

template <int FORM>
static __device__ __forceinline__ void piece_load(struct piece<FORM> *p,
                                                  const struct rms_back_args &a, int64_t row,
                                                  int64_t col)
{
    raw_load<FORM>(&p->t, a.t, row * a.t.stride + col);
    raw_load<FORM>(&p->x, a.x, row * a.x.stride + col);
    raw_load<FORM>(&p->dx, a.dx, row * a.dx.stride + col);
}

/* block_sum with one barrier: rows take turns between two halves of `part`, and nobody reaches the
 * row after next before all have read this one's half. */
static __device__ __forceinline__ float piece_sum(float x, float (*part)[32], int64_t row)
{
    int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    float *own = part[row % 2];

    x = warp_sum(x);
    if (lane == 0)
        own[threadIdx.x / 32] = x;
    __syncthreads();
    return warp_sum(lane < warps ? own[lane] : 0.0f);
}

/* alpha and beta of the row whose piece every thread of the block holds. */
template <int FORM>
static __device__ __forceinline__ void piece_coef(float *alpha, float *beta,
                                                  const struct rms_back_args &a, int64_t row,
                                                  const struct piece<FORM> &p,
                                                  const struct raw<FORM> &gain, float (*part)[32])
{
    float sum = 0.0f;

    if (a.coef.data) {
        *alpha = a.coef.data[row * a.coef.stride];
        *beta = a.coef.data[row * a.coef.stride + 1];
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        sum += raw_at<FORM>(p.t, i) * raw_at<FORM>(gain, i) * raw_at<FORM>(p.x, i);
    sum = piece_sum(sum, part, row);
    *alpha = inverse_rms(a.s.data[row * a.s.stride], a.norm);
    *beta = sum * *alpha * *alpha * *alpha / (float)a.norm.width;
}

/* The same where a block's columns are eight a thread: everything stays in registers, each row is
 * read once, and the next one is on its way while this one is worked on. Four blocks of 256 threads
 * (two of 512) fit on a multiprocessor, and rms_backward_launch starts so many. */
template <int FORM>
__global__ void __launch_bounds__(RMS_TILE / 8, FORM == FORM_BF16 ? 2 : 1)
    rms_backward_piece_kernel(struct rms_back_args a)
{
    __shared__ float part[2][32];
    int64_t first = blockIdx.x * a.per, last = min(first + a.per, a.rows);
    int64_t col = blockIdx.y * a.tile + threadIdx.x * 8;
    struct piece<FORM> now, next;
    struct raw<FORM> gain;
    float alpha, beta, sum[8] = {}, dx[8];

    raw_load<FORM>(&gain, a.gain, col);
    if (first < last)
        piece_load<FORM>(&now, a, first, col);
    for (int64_t row = first; row < last; row++, now = next) {
        if (row + 1 < last)
            piece_load<FORM>(&next, a, row + 1, col);
        piece_coef<FORM>(&alpha, &beta, a, row, now, gain, part);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float t = raw_at<FORM>(now.t, i) * alpha, x = raw_at<FORM>(now.x, i);

            dx[i] = raw_at<FORM>(now.dx, i) + (t * raw_at<FORM>(gain, i) - beta * x);
            sum[i] += t * x;
        }
        store<FORM, 8>(a.dx, row * a.dx.stride + col, dx);
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        a.partial[blockIdx.x * a.cols + col + i] = sum[i];
}

/* The kernel that fits: whole warps of eight columns a thread, or any width. */
template <int FORM, int V>
static void rms_backward_start(struct gpu_device *dev, const struct rms_back_args &a, dim3 blocks)
{
    bool pieces = V == 8 && a.cols % a.tile == 0 && a.tile % (8 * 32) == 0 && a.tile <= RMS_TILE;
    unsigned threads = row_threads(a.tile, V, 512);

    if (pieces)
        rms_backward_piece_kernel<FORM><<<blocks, (unsigned)(a.tile / 8), 0, dev->stream>>>(a);
    else
        rms_backward_kernel<FORM, V>
            <<<blocks, threads, (size_t)a.tile * sizeof(float), dev->stream>>>(a);
}

static enum status rms_backward_launch(struct gpu_device *dev, struct rms_back_args a,
                                       const struct rms_grad *g, int accumulate)
{
    struct fit f = fit_start(g->x.rows, g->x.cols);
    struct gpu_parts parts;
    int64_t tiles;
    int busy;

    a.dx = fit_view(&f, &g->dx);
    a.t = fit_view(&f, &g->t);
    a.x = fit_view(&f, &g->x);
    a.gain = fit_view(&f, &g->gain, true);
    TRY(fit_check(&f, "rms_backward"));
    a.rows = f.rows;
    a.cols = f.cols;
    a.tile = a.coef.data && f.cols > RMS_TILE ? (int64_t)RMS_TILE : f.cols;
    tiles = (a.cols + a.tile - 1) / a.tile;
    busy = a.tile <= 1024 ? 8 : a.tile <= 2048 ? 4 : 2; /* blocks that a multiprocessor holds */
    TRY(gpu_parts_of(&parts, dev, a.rows, a.cols, (busy * (int64_t)dev->sms + tiles - 1) / tiles));
    a.per = parts.per;
    a.partial = parts.partial;
    fit_launch(&f, [&](auto form, auto v) {
        rms_backward_start<form, v>(dev, a, dim3((unsigned)parts.parts, (unsigned)tiles));
    });
    TRY(gpu_launched(dev, "rms_backward"));
    return gpu_parts_join(dev, &g->dgain, &parts, accumulate);
}

/* Rows too wide for one block: c and the coefficients first, in scratch behind the partial sums. */
static enum status rms_norm_backward_wide(struct device *dev, const struct rms_grad *g,
                                          const struct tensor *s, struct norm norm, int accumulate)
{
    struct rms_back_args a = {};
    size_t bytes = 3 * sizeof(float) * (size_t)g->x.rows;
    struct tensor c, coef;
    void *p;

    TRY(gpu_scratch(gpu_of(dev), &p, bytes + GPU_SCRATCH));
    c = tensor_view(static_cast<char *>(p) + GPU_SCRATCH, DT_F32, g->x.rows, 1);
    coef = tensor_view(static_cast<float *>(c.data) + g->x.rows, DT_F32, g->x.rows, 2);
    TRY(gpu_rms_dot(dev, &c, &g->t, &g->x, &g->gain));
    TRY(gpu_rms_coef(dev, &coef, &c, s, norm));
    a.coef = column{static_cast<float *>(coef.data), 2};
    return rms_backward_launch(gpu_of(dev), a, g, accumulate);
}

extern "C" enum status gpu_rms_norm_backward(struct device *dev, const struct rms_grad *g,
                                             const struct tensor *s, struct norm norm,
                                             const struct sample_plan *plan)
{
    struct rms_back_args a = {};
    int accumulate;

    TRY(gpu_plan(&accumulate, plan));
    if (tensor_count(&g->x) == 0)
        return ST_OK;
    if (g->x.cols > RMS_WHOLE)
        return rms_norm_backward_wide(dev, g, s, norm, accumulate);
    a.norm = norm;
    TRY(fit_column_alone(&a.s, s));
    return rms_backward_launch(gpu_of(dev), a, g, accumulate);
}

extern "C" enum status gpu_rms_backward(struct device *dev, const struct rms_grad *g,
                                        const struct tensor *coef, const struct sample_plan *plan)
{
    struct rms_back_args a = {};
    int accumulate;

    TRY(gpu_plan(&accumulate, plan));
    if (tensor_count(&g->x) == 0)
        return ST_OK;
    TRY(fit_column_alone(&a.coef, coef));
    return rms_backward_launch(gpu_of(dev), a, g, accumulate);
}
