/* The own attention kernels: scores are made tile by tile in shared memory and never stored; all
 * arithmetic is f32; backward adds in a fixed order (one kernel for dk and dv, one for dq, no
 * atomics). They do every shape; for speed in bf16 there is cuDNN.
 *
 * A block has TILE rows of its own (queries, or keys for dk and dv) and walks over tiles of the
 * others (tile.cuh).
 *
 * Within documents (struct attention, starts) a query sees no key before its document. As starts
 * never fall along a sequence, the first query of a tile bounds its keys from below, and a tile of
 * keys has had its last queries where one begins in a later document than its last key.
 */
#include "gpu/attention.h"
#include "gpu/fit.cuh"
#include "gpu/tile.cuh"

struct flash_args {
    struct view q, k, v, o, dq, dk, dv, d_o; /* d_o: gradient of o */
    struct column lse;
    const int32_t *starts; /* [batch * seq]; NULL: all 0 */
    float *delta;          /* [batch * seq, heads]: sum of do * o */
    int seq, kv_rows, pos0, heads, kv_heads, head_dim;
    float scale;
};

/* The first key that query i of the sequence from row `rows` on sees; past its end, what the last
 * one sees. */
static __device__ __forceinline__ int first_key(const struct flash_args &a, int64_t rows, int i)
{
    return a.starts ? a.starts[rows + min(i, a.seq - 1)] : 0;
}

/* Grid: (query tiles, heads, batch), the longest rows first. */
template <int HD, int V>
__global__ void __launch_bounds__(THREADS) flash_forward_kernel(struct flash_args a)
{
    extern __shared__ float4 shared[];
    float *q = reinterpret_cast<float *>(shared), *k = q + TILE * HD, *v = k + TILE * (HD + 1);
    int first = (int)(gridDim.x - 1 - blockIdx.x) * TILE, head = blockIdx.y;
    int last = a.pos0 + min(first + TILE, a.seq) - 1; /* key that the last query sees */
    int lane = threadIdx.x % 32, own = first + threadIdx.x / 32 * OWN;
    int64_t rows = (int64_t)blockIdx.z * a.seq, keys = (int64_t)blockIdx.z * a.kv_rows;
    int64_t col = (int64_t)head * a.head_dim;
    int64_t kv_col = (int64_t)(head * a.kv_heads / a.heads) * a.head_dim;
    struct softmax m[OWN];
    float acc[OWN][HD / 32] = {}, s[OWN];
    int from[OWN];

    for (int r = 0; r < OWN; r++) {
        m[r] = softmax{-INFINITY, 0.0f};
        from[r] = first_key(a, rows, own + r);
    }
    tile_load<HD, V>(q, HD, a.q, rows + first, a.seq - first, col, a.head_dim);
    for (int key = first_key(a, rows, first); key <= last; key += TILE) {
        __syncthreads();
        tile_load<HD, V>(k, HD + 1, a.k, keys + key, last + 1 - key, kv_col, a.head_dim);
        tile_load<HD, V>(v, HD + 1, a.v, keys + key, last + 1 - key, kv_col, a.head_dim);
        __syncthreads();
        tile_dot<HD>(s, q, k);
#pragma unroll
        for (int r = 0; r < OWN; r++)
            s[r] = key + lane >= from[r] && key + lane <= min(a.pos0 + own + r, last)
                       ? s[r] * a.scale
                       : -INFINITY;
        softmax_step<HD>(m, s, acc);
        tile_add<HD>(acc, s, v);
    }
#pragma unroll
    for (int r = 0; r < OWN; r++) {
        if (lane == 0 && own + r < a.seq)
            a.lse.data[(rows + own + r) * a.lse.stride + head] = m[r].most + logf(m[r].sum);
#pragma unroll
        for (int c = 0; c < HD / 32; c++)
            acc[r][c] /= m[r].sum;
    }
    tile_store<HD>(a.o, rows, first, a.seq, col, a.head_dim, acc);
}

/* delta: one warp a row and head. */
__global__ void flash_delta_kernel(struct flash_args a, int64_t rows)
{
    int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    int64_t row = i / a.heads, head = i - row * a.heads;
    float sum = 0.0f, x[1], y[1];

    if (row >= rows)
        return;
    for (int d = threadIdx.x % 32; d < a.head_dim; d += 32) {
        load<FORM_MIXED, 1>(x, a.o, row * a.o.stride + head * a.head_dim + d);
        load<FORM_MIXED, 1>(y, a.d_o, row * a.d_o.stride + head * a.head_dim + d);
        sum += x[0] * y[0];
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        a.delta[i] = sum;
}

/* dq. Grid as forward. Own rows: queries and do; other tiles: keys and values. */
template <int HD, int V>
__global__ void __launch_bounds__(THREADS) flash_dq_kernel(struct flash_args a)
{
    extern __shared__ float4 shared[];
    float *q = reinterpret_cast<float *>(shared), *d_o = q + TILE * HD;
    float *k = d_o + TILE * HD, *v = k + TILE * (HD + 1);
    int first = (int)(gridDim.x - 1 - blockIdx.x) * TILE, head = blockIdx.y;
    int lane = threadIdx.x % 32, own = first + threadIdx.x / 32 * OWN;
    int last = min(first + TILE, a.seq) - 1;
    int64_t rows = (int64_t)blockIdx.z * a.seq, col = (int64_t)head * a.head_dim;
    int64_t kv_col = (int64_t)(head * a.kv_heads / a.heads) * a.head_dim;
    float acc[OWN][HD / 32] = {}, s[OWN], dp[OWN], lse[OWN], delta[OWN];
    int from[OWN];

    for (int r = 0; r < OWN; r++) {
        int64_t row = rows + min(own + r, a.seq - 1);

        from[r] = first_key(a, rows, own + r);
        lse[r] = a.lse.data[row * a.lse.stride + head];
        delta[r] = a.delta[row * a.heads + head];
    }
    tile_load<HD, V>(q, HD, a.q, rows + first, a.seq - first, col, a.head_dim);
    tile_load<HD, V>(d_o, HD, a.d_o, rows + first, a.seq - first, col, a.head_dim);
    for (int key = first_key(a, rows, first); key <= last; key += TILE) {
        __syncthreads();
        tile_load<HD, V>(k, HD + 1, a.k, rows + key, last + 1 - key, kv_col, a.head_dim);
        tile_load<HD, V>(v, HD + 1, a.v, rows + key, last + 1 - key, kv_col, a.head_dim);
        __syncthreads();
        tile_dot<HD>(s, q, k);
        tile_dot<HD>(dp, d_o, v);
#pragma unroll
        for (int r = 0; r < OWN; r++)
            s[r] = key + lane >= from[r] && key + lane <= min(own + r, last)
                       ? expf(s[r] * a.scale - lse[r]) * (dp[r] - delta[r]) * a.scale
                       : 0.0f;
        tile_add<HD>(acc, s, k);
    }
    tile_store<HD>(a.dq, rows, first, a.seq, col, a.head_dim, acc);
}

/* What a block knows of the queries it is at. */
struct flash_place {
    int64_t rows; /* first row of the sequence */
    int query, head, own;
};

/* One tile of queries of one head joins dk and dv; lane j stands for query j. */
template <int HD>
static __device__ __forceinline__ void flash_dkv_step(float (&dk)[OWN][HD / 32],
                                                      float (&dv)[OWN][HD / 32],
                                                      const struct flash_args &a,
                                                      const float *tiles,
                                                      const struct flash_place &at)
{
    const float *k = tiles, *v = k + TILE * HD, *q = v + TILE * HD, *d_o = q + TILE * (HD + 1);
    int i = at.query + threadIdx.x % 32, from = first_key(a, at.rows, i);
    int64_t row = at.rows + min(i, a.seq - 1);
    float lse = a.lse.data[row * a.lse.stride + at.head];
    float delta = a.delta[row * a.heads + at.head], p[OWN], dp[OWN];

    tile_dot<HD>(p, k, q);
    tile_dot<HD>(dp, v, d_o);
#pragma unroll
    for (int r = 0; r < OWN; r++) {
        p[r] =
            i < a.seq && at.own + r >= from && at.own + r <= i ? expf(p[r] * a.scale - lse) : 0.0f;
        dp[r] = p[r] * (dp[r] - delta) * a.scale;
    }
    tile_add<HD>(dv, p, d_o);
    tile_add<HD>(dk, dp, q);
}

/* Grid: (key tiles, key heads, batch). All query heads that read this key head, one by one. */
template <int HD, int V>
__global__ void __launch_bounds__(THREADS) flash_dkv_kernel(struct flash_args a)
{
    extern __shared__ float4 shared[];
    float *k = reinterpret_cast<float *>(shared), *v = k + TILE * HD;
    float *q = v + TILE * HD, *d_o = q + TILE * (HD + 1);
    int first = (int)blockIdx.x * TILE, own = first + threadIdx.x / 32 * OWN;
    int group = a.heads / a.kv_heads, last = min(first + TILE, a.seq) - 1;
    int64_t rows = (int64_t)blockIdx.z * a.seq, kv_col = (int64_t)blockIdx.y * a.head_dim;
    float dk[OWN][HD / 32] = {}, dv[OWN][HD / 32] = {};

    tile_load<HD, V>(k, HD, a.k, rows + first, a.seq - first, kv_col, a.head_dim);
    tile_load<HD, V>(v, HD, a.v, rows + first, a.seq - first, kv_col, a.head_dim);
    for (int head = blockIdx.y * group; head < (int)(blockIdx.y + 1) * group; head++)
        for (int query = first; query < a.seq && first_key(a, rows, query) <= last; query += TILE) {
            int64_t col = (int64_t)head * a.head_dim;

            __syncthreads();
            tile_load<HD, V>(q, HD + 1, a.q, rows + query, a.seq - query, col, a.head_dim);
            tile_load<HD, V>(d_o, HD + 1, a.d_o, rows + query, a.seq - query, col, a.head_dim);
            __syncthreads();
            flash_dkv_step<HD>(dk, dv, a, k, flash_place{rows, query, head, own});
        }
    tile_store<HD>(a.dk, rows, first, a.seq, kv_col, a.head_dim, dk);
    tile_store<HD>(a.dv, rows, first, a.seq, kv_col, a.head_dim, dv);
}

/* Launches with `tiles` tiles of HD + 1 columns in shared memory. */
template <class K>
static enum status flash_launch(struct gpu_device *dev, K kernel, const struct flash_args &a,
                                dim3 blocks, size_t shared)
{
    CUDA_TRY(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
    kernel<<<blocks, THREADS, shared, dev->stream>>>(a);
    return gpu_launched(dev, "attention");
}

/* Calls launch(constant<HD>, constant<V>) for the smallest HD that holds a head. */
template <class L> static enum status flash_form(int head_dim, bool wide, L &&launch)
{
    if (head_dim <= 32)
        return wide ? launch(constant<32>(), constant<8>()) : launch(constant<32>(), constant<1>());
    if (head_dim <= 64)
        return wide ? launch(constant<64>(), constant<8>()) : launch(constant<64>(), constant<1>());
    if (head_dim <= 128)
        return wide ? launch(constant<128>(), constant<8>())
                    : launch(constant<128>(), constant<1>());
    return wide ? launch(constant<256>(), constant<8>()) : launch(constant<256>(), constant<1>());
}

static struct flash_args flash_args_of(struct fit *f, const struct attention *at)
{
    struct flash_args a = {};

    *f = fit_start(at->q.rows, at->head_dim);
    a.q = fit_view(f, &at->q);
    a.k = fit_view(f, &at->k);
    a.v = fit_view(f, &at->v);
    a.o = fit_view(f, &at->o);
    a.lse = fit_column(f, &at->lse);
    a.starts = static_cast<const int32_t *>(at->starts.data);
    a.seq = (int)at->seq;
    a.kv_rows = (int)at->kv_rows;
    a.pos0 = (int)at->pos0;
    a.heads = (int)at->heads;
    a.kv_heads = (int)at->kv_heads;
    a.head_dim = (int)at->head_dim;
    a.scale = 1.0f / sqrtf((float)at->head_dim);
    return a;
}

extern "C" enum status gpu_flash_forward(struct gpu_device *dev, const struct attention *at)
{
    struct fit f;
    struct flash_args a = flash_args_of(&f, at);
    dim3 blocks((unsigned)((at->seq + TILE - 1) / TILE), (unsigned)at->heads, (unsigned)at->batch);

    TRY(fit_check(&f, "attention_forward"));
    return flash_form(a.head_dim, f.wide, [&](auto hd, auto v) {
        return flash_launch(dev, flash_forward_kernel<hd, v>, a, blocks,
                            sizeof(float) * TILE * (3 * hd + 2));
    });
}

extern "C" enum status gpu_flash_backward(struct gpu_device *dev, const struct attention *at,
                                          const struct attention *dat)
{
    struct fit f;
    struct flash_args a = flash_args_of(&f, at);
    unsigned tiles = (unsigned)((at->seq + TILE - 1) / TILE), batch = (unsigned)at->batch;
    int64_t rows = at->batch * at->seq;
    void *p;

    a.dq = fit_view(&f, &dat->q);
    a.dk = fit_view(&f, &dat->k);
    a.dv = fit_view(&f, &dat->v);
    a.d_o = fit_view(&f, &dat->o);
    TRY(fit_check(&f, "attention_backward"));
    TRY(gpu_scratch(dev, &p, (size_t)(rows * at->heads) * sizeof(float)));
    a.delta = static_cast<float *>(p);
    flash_delta_kernel<<<(unsigned)((rows * at->heads + 7) / 8), THREADS, 0, dev->stream>>>(a,
                                                                                            rows);
    TRY(gpu_launched(dev, "attention_backward"));
    return flash_form(a.head_dim, f.wide, [&](auto hd, auto v) {
        size_t shared = sizeof(float) * TILE * (4 * hd + 2);

        TRY(flash_launch(dev, flash_dq_kernel<hd, v>, a, dim3(tiles, (unsigned)at->heads, batch),
                         shared));
        return flash_launch(dev, flash_dkv_kernel<hd, v>, a,
                            dim3(tiles, (unsigned)at->kv_heads, batch), shared);
    });
}
