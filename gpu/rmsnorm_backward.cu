/* Backward of the norms: one pass over the rows, with the gain's gradient summed beside it. */
#include "gpu/fit.cuh"
#include "gpu/gpu.h"
#include "gpu/reduce.h"
#include "gpu/rms_ring.cuh"

/* Columns of a block at most: so many floats of shared memory; where c is summed by it, too. */
enum { RMS_TILE = 4096, RMS_WHOLE = 12288 };

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

/* Sum over a block of at most 16 warps with one barrier, the same bits in every thread: rows take
 * turns between two halves of `part`, and nobody reaches the row after next before all have read
 * this one's half. Entries of absent warps are zero. */
static __device__ __forceinline__ float piece_sum(float x, float4 (&part)[2][4], int row)
{
    const float4 *own = part[row % 2];
    float sum = 0.0f;

    x = warp_sum(x);
    if (threadIdx.x % 32 == 0)
        reinterpret_cast<float *>(part[row % 2])[threadIdx.x / 32] = x;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i * 128 < blockDim.x)
            sum += (own[i].x + own[i].y) + (own[i].z + own[i].w);
    return sum;
}

/* alpha of a row, with its beta where coefficients are given, else with what its sum c is to be
 * multiplied by; 0 behind the last row. */
static __device__ __forceinline__ float2 piece_coef(const struct rms_back_args &a, int64_t row)
{
    float alpha;

    if (row >= a.rows)
        return make_float2(0.0f, 0.0f);
    if (a.coef.data)
        return make_float2(a.coef.data[row * a.coef.stride], a.coef.data[row * a.coef.stride + 1]);
    alpha = inverse_rms(a.s.data[row * a.s.stride], a.norm);
    return make_float2(alpha, alpha * alpha * alpha / (float)a.norm.width);
}

/* The same where a block's columns are eight a thread: each row is read once, and the next ones are
 * on their way while this one waits for its sum. The statistics of 32 rows are fetched and worked
 * on at once, one a lane, so that no row waits for its own. 2 RMS_TILE columns, of all blocks
 * together, fit on a multiprocessor; rms_busy tells how many blocks are started. */
template <int FORM>
__global__ void __launch_bounds__(RMS_TILE / 8, 2) rms_backward_piece_kernel(struct rms_back_args a)
{
    extern __shared__ float4 staged[];
    __shared__ float4 part[2][4];
    int64_t first = blockIdx.x * a.per, col = blockIdx.y * a.tile + threadIdx.x * 8;
    int64_t out = first * a.dx.stride + col;
    int rows = (int)min(a.per, a.rows - first);
    struct ring<FORM> ring;
    float2 coef = {};
    float g[8], sum[8] = {}, t[8], x[8], dx[8];

    ring_start(&ring, staged, a, first, col);
    for (int k = 0; k < (int)ring.STAGES - 1; k++)
        ring.fetch(a, k < rows);
    load<FORM, 8>(g, a.gain, col);
    if (threadIdx.x < 32)
        reinterpret_cast<float *>(part)[threadIdx.x] = 0.0f;
    __syncthreads();
    for (int row = 0; row < rows; row++, out += a.dx.stride) {
        float alpha, beta, dot = 0.0f;

        if (row % 32 == 0)
            coef = piece_coef(a, first + row + threadIdx.x % 32);
        ring.fetch(a, row + (int)ring.STAGES - 1 < rows);
        __pipeline_wait_prior(ring.STAGES - 1);
        ring.read(t, a.t, 0);
        ring.read(x, a.x, 1);
        alpha = __shfl_sync(0xffffffffu, coef.x, row % 32);
        beta = __shfl_sync(0xffffffffu, coef.y, row % 32);
        if (!a.coef.data) {
#pragma unroll
            for (int i = 0; i < 8; i++)
                dot += t[i] * g[i] * x[i];
            beta *= piece_sum(dot, part, row);
        }
        ring.read(dx, a.dx, 2);
        ring.turn(&ring.got);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            t[i] *= alpha;
            dx[i] = dx[i] + t[i] * g[i] - beta * x[i];
            sum[i] += t[i] * x[i];
        }
        store<FORM, 8>(a.dx, out, dx);
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
        a.partial[blockIdx.x * a.cols + col + i] = sum[i];
}

/* Whether blocks are whole warps of eight columns a thread, so that the kernel above fits. */
static bool rms_in_pieces(const struct rms_back_args &a)
{
    return a.cols % a.tile == 0 && a.tile % (8 * 32) == 0 && a.tile <= RMS_TILE;
}

/* Lets the kernel ask for as much shared memory as it may need, once a device. */
template <int FORM> static enum status rms_allow_ring(struct gpu_device *dev, size_t room)
{
    size_t most = min((size_t)RMS_TILE * RMS_STAGED, room);

    if (dev->rings_allowed >> FORM & 1)
        return ST_OK;
    CUDA_TRY(cudaFuncSetAttribute(rms_backward_piece_kernel<FORM>,
                                  cudaFuncAttributeMaxDynamicSharedMemorySize, (int)most));
    CUDA_TRY(cudaFuncSetAttribute(rms_backward_piece_kernel<FORM>,
                                  cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared));
    dev->rings_allowed |= 1u << FORM;
    return ST_OK;
}

/* Starts it where the device has room for its ring and 1 KiB beside. */
template <int FORM>
static enum status rms_backward_pieces(bool *done, struct gpu_device *dev,
                                       const struct rms_back_args &a, dim3 blocks)
{
    size_t shared = (size_t)a.tile * RMS_STAGED, room = dev->shared_most - 1024;

    *done = shared <= room;
    if (!*done)
        return ST_OK;
    TRY(rms_allow_ring<FORM>(dev, room));
    rms_backward_piece_kernel<FORM><<<blocks, (unsigned)(a.tile / 8), shared, dev->stream>>>(a);
    return ST_OK;
}

/* The kernel that fits: whole warps of eight columns a thread, or any width. */
template <int FORM, int V>
static enum status rms_backward_start(struct gpu_device *dev, const struct rms_back_args &a,
                                      dim3 blocks)
{
    bool done = false;

    if constexpr (V == 8)
        if (rms_in_pieces(a))
            TRY(rms_backward_pieces<FORM>(&done, dev, a, blocks));
    if (!done)
        rms_backward_kernel<FORM, V>
            <<<blocks, row_threads(a.tile, V, 512), (size_t)a.tile * sizeof(float), dev->stream>>>(
                a);
    return ST_OK;
}

/* Blocks that a multiprocessor is given. Each leaves a partial sum of the gain's gradient, to be
 * joined, so they are no more than it takes to keep memory busy: two at least, of which one goes on
 * while the other waits for a row's sum. In bf16 RMS_TILE columns, in pieces, have three rows of t,
 * x and dx under way, 72 KB; whatever fetches less far ahead gets twice as many. */
static int64_t rms_busy(const struct fit *f, const struct rms_back_args &a)
{
    bool ahead = f->wide && !f->f32 && rms_in_pieces(a);
    int64_t blocks = RMS_TILE * (ahead ? 1 : 2) / a.tile;

    return blocks < 2 ? 2 : blocks < 8 ? blocks : 8;
}

static enum status rms_backward_launch(struct gpu_device *dev, struct rms_back_args a,
                                       const struct rms_grad *g, int accumulate)
{
    struct fit f = fit_start(g->x.rows, g->x.cols);
    enum status st = ST_OK;
    struct gpu_parts parts;
    int64_t tiles, busy;

    a.dx = fit_view(&f, &g->dx);
    a.t = fit_view(&f, &g->t);
    a.x = fit_view(&f, &g->x);
    a.gain = fit_view(&f, &g->gain, true);
    TRY(fit_check(&f, "rms_backward"));
    a.rows = f.rows;
    a.cols = f.cols;
    a.tile = a.coef.data && f.cols > RMS_TILE ? (int64_t)RMS_TILE : f.cols;
    tiles = (a.cols + a.tile - 1) / a.tile;
    busy = rms_busy(&f, a) * dev->sms;
    TRY(gpu_parts_of(&parts, dev, a.rows, a.cols, (busy + tiles - 1) / tiles));
    a.per = parts.per;
    a.partial = parts.partial;
    fit_launch(&f, [&](auto form, auto v) {
        st = rms_backward_start<form, v>(dev, a, dim3((unsigned)parts.parts, (unsigned)tiles));
    });
    TRY(st);
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
