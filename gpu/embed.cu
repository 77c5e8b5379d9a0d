#include "gpu/fit.cuh"
#include "gpu/gpu.h"

#include <cub/device/device_radix_sort.cuh>

struct embed_args {
    struct view w, y; /* w: the table or its gradient; y: rows of tokens or their gradient */
    const int32_t *tokens;
    int64_t token_stride, row0, rows, cols;
    int accumulate; /* a gradient joins what w holds; else w was set to zero */
};

template <int FORM, int V>
__global__ void embed_forward_kernel(struct embed_args a, unsigned pieces)
{
    int64_t row, col, from;
    float x[V] = {};

    grid_place<V>(&row, &col, pieces);
    if (col >= a.cols)
        return;
    from = a.tokens[row * a.token_stride] - a.row0;
    if (from >= 0 && from < a.rows)
        load<FORM, V>(x, a.w, from * a.w.stride + col);
    store<FORM, V>(a.y, row * a.y.stride + col, x);
}

static enum status embed_check(const struct fit *f, const struct tensor *tokens)
{
    if (tokens->dtype != DT_I32)
        return fail(ST_EDTYPE, "tokens of type %s; they are i32", dtype_name(tokens->dtype));
    return fit_check(f, "embed");
}

extern "C" enum status gpu_embed_forward(struct device *dev, struct tensor *y,
                                         const struct tensor *w, const struct tensor *tokens,
                                         int64_t row0)
{
    struct fit f = fit_start(y->rows, y->cols);
    struct embed_args a = {fit_view(&f, w),
                           fit_view(&f, y),
                           static_cast<const int32_t *>(tokens->data),
                           tokens->stride,
                           row0,
                           w->rows,
                           y->cols,
                           0};

    if (tensor_count(y) == 0)
        return ST_OK;
    TRY(embed_check(&f, tokens));
    fit_launch(&f, [&](auto form, auto v) {
        struct grid g = grid_of(&f, v);

        embed_forward_kernel<form, v><<<g.blocks, g.threads, 0, gpu_of(dev)->stream>>>(a, g.pieces);
    });
    return gpu_launched(gpu_of(dev), "embed_forward");
}

/* Tokens as (row of dw, place) pairs; rows of other ranks get the number behind the last one. */
__global__ void embed_keys_kernel(uint32_t *key, uint32_t *place, struct embed_args a, int64_t m)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row;

    if (i >= m)
        return;
    row = a.tokens[i * a.token_stride] - a.row0;
    key[i] = (uint32_t)(row >= 0 && row < a.rows ? row : a.rows);
    place[i] = (uint32_t)i;
}

/* Pairs sorted by row, tokens of one row in their order, are cut into segments of `per`: a frequent
 * token's run spans many, whose sums are joined in order by a second kernel. */
struct embed_segments {
    const uint32_t *key, *place;
    float *part; /* [segments, 2, cols]: of a run that came in from before; that goes on behind */
    unsigned pairs, per;
};

static __device__ __forceinline__ bool embed_same(const struct embed_segments &s, unsigned i,
                                                  unsigned j)
{
    return s.key[i] == s.key[j];
}

/* Nonzero when the run of pair i goes on behind pair i. */
static __device__ __forceinline__ bool embed_goes_on(const struct embed_segments &s, unsigned i)
{
    return i + 1 < s.pairs && embed_same(s, i, i + 1);
}

template <int FORM, int V>
static __device__ void embed_join(const struct embed_args &a, int64_t row, int64_t col,
                                  const float (&sum)[V])
{
    float old[V] = {};

    if (row >= a.rows)
        return;
    if (a.accumulate)
        load<FORM, V>(old, a.w, row * a.w.stride + col);
#pragma unroll
    for (int k = 0; k < V; k++)
        old[k] += sum[k];
    store<FORM, V>(a.w, row * a.w.stride + col, old);
}

template <int V>
static __device__ void embed_leave(const struct embed_segments &s, int64_t cols, int64_t col,
                                   int behind, const float (&sum)[V])
{
    float *out = s.part + (2 * (int64_t)blockIdx.x + behind) * cols + col;

#pragma unroll
    for (int k = 0; k < V; k++)
        out[k] = sum[k];
}

/* One segment a block. Rows of dy are fetched GROUP at a time and added one after the other. */
template <int FORM, int V>
__global__ void embed_sum_kernel(struct embed_args a, struct embed_segments s)
{
    constexpr unsigned GROUP = 4;
    unsigned begin = blockIdx.x * s.per, end = min(begin + s.per, s.pairs);
    int64_t col = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V;
    float sum[V] = {}, x[GROUP][V];
    bool from_before = begin > 0 && embed_same(s, begin, begin - 1);

    if (col >= a.cols)
        return;
    for (unsigned i = begin; i < end; i += GROUP) {
#pragma unroll
        for (unsigned j = 0; j < GROUP; j++)
            if (i + j < end && s.key[i + j] < a.rows)
                load<FORM, V>(x[j], a.y, (int64_t)s.place[i + j] * a.y.stride + col);
#pragma unroll
        for (unsigned j = 0; j < GROUP; j++) {
            unsigned at = i + j;

            if (at >= end)
                break;
#pragma unroll
            for (int k = 0; k < V; k++)
                sum[k] += x[j][k];
            if (embed_goes_on(s, at) && at + 1 < end)
                continue;
            if (from_before || embed_goes_on(s, at))
                embed_leave<V>(s, a.cols, col, !from_before, sum);
            else
                embed_join<FORM, V>(a, s.key[at], col, sum);
            from_before = false;
#pragma unroll
            for (int k = 0; k < V; k++)
                sum[k] = 0.0f;
        }
    }
}

/* The run that begins within segment blockIdx.x and goes on behind it, if there is one. */
template <int FORM, int V>
__global__ void embed_run_kernel(struct embed_args a, struct embed_segments s)
{
    unsigned segment = blockIdx.x, begin = segment * s.per, last = begin + s.per - 1;
    int64_t col = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V;
    const float *part = s.part + (2 * (int64_t)segment + 1) * a.cols + col;
    float sum[V];

    if (col >= a.cols || last >= s.pairs || !embed_goes_on(s, last) ||
        (begin > 0 && embed_same(s, begin - 1, last)))
        return;
#pragma unroll
    for (int k = 0; k < V; k++)
        sum[k] = part[k];
    do {
        part = s.part + 2 * (int64_t)++segment * a.cols + col;
#pragma unroll
        for (int k = 0; k < V; k++)
            sum[k] += part[k];
        begin += s.per;
        last = min(begin + s.per, s.pairs) - 1;
    } while (embed_same(s, begin, last) && embed_goes_on(s, last));
    embed_join<FORM, V>(a, s.key[begin], col, sum);
}

/* Sorted pairs in scratch. */
struct embed_pairs {
    uint32_t *key, *place, *key_in, *place_in;
    void *temp;
    size_t temp_bytes;
    struct embed_segments cut;
};

/* Pairs of a segment: at most EMBED_SEGMENTS of them, so that what they leave stays small. */
enum { EMBED_LEAST = 32, EMBED_SEGMENTS = 512 };

static unsigned embed_per(int64_t pairs)
{
    int64_t per = (pairs + EMBED_SEGMENTS - 1) / EMBED_SEGMENTS;

    return (unsigned)(per < EMBED_LEAST ? (int64_t)EMBED_LEAST : per);
}

static unsigned embed_segments_of(const struct embed_segments *s)
{
    return (s->pairs + s->per - 1) / s->per;
}

static enum status embed_sort(struct embed_pairs *s, struct gpu_device *dev,
                              const struct embed_args *a, int64_t m)
{
    size_t piece = ((size_t)m * sizeof(uint32_t) + 255) / 256 * 256, parts;
    int bits = 1;
    void *p;

    s->cut.pairs = (unsigned)m;
    s->cut.per = embed_per(m);
    parts = 2 * sizeof(float) * (size_t)embed_segments_of(&s->cut) * (size_t)a->cols;
    parts = (parts + 255) / 256 * 256;

    while (bits < 32 && a->rows >> bits)
        bits++;
    s->temp_bytes = 0;
    CUDA_TRY(cub::DeviceRadixSort::SortPairs(nullptr, s->temp_bytes, s->key_in, s->key, s->place_in,
                                             s->place, (int)m, 0, bits, dev->stream));
    TRY(gpu_scratch(dev, &p, parts + 4 * piece + s->temp_bytes));
    s->cut.part = static_cast<float *>(p);
    s->key = reinterpret_cast<uint32_t *>(static_cast<char *>(p) + parts);
    s->place = s->key + piece / 4;
    s->key_in = s->place + piece / 4;
    s->place_in = s->key_in + piece / 4;
    s->temp = s->place_in + piece / 4;
    s->cut.key = s->key;
    s->cut.place = s->place;
    embed_keys_kernel<<<(unsigned)((m + 255) / 256), 256, 0, dev->stream>>>(s->key_in, s->place_in,
                                                                            *a, m);
    TRY(gpu_launched(dev, "embed_backward, keys"));
    CUDA_TRY(cub::DeviceRadixSort::SortPairs(s->temp, s->temp_bytes, s->key_in, s->key, s->place_in,
                                             s->place, (int)m, 0, bits, dev->stream));
    return gpu_put(dev, GPU_PUT_SORT);
}

extern "C" enum status gpu_embed_backward(struct device *dev, struct tensor *dw,
                                          const struct tensor *dy, const struct tensor *tokens,
                                          int64_t row0, const struct sample_plan *plan)
{
    struct fit f = fit_start(dy->rows, dy->cols);
    struct embed_args a = {fit_view(&f, dw),
                           fit_view(&f, dy),
                           static_cast<const int32_t *>(tokens->data),
                           tokens->stride,
                           row0,
                           dw->rows,
                           dy->cols,
                           0};
    struct embed_pairs pairs = {};
    size_t size = dtype_size(dw->dtype);
    int accumulate;

    TRY(gpu_plan(&accumulate, plan));
    TRY(embed_check(&f, tokens));
    a.accumulate = accumulate;
    if (!accumulate && tensor_count(dw) > 0)
        CUDA_TRY(cudaMemset2DAsync(dw->data, (size_t)dw->stride * size, 0, (size_t)dw->cols * size,
                                   (size_t)dw->rows, gpu_of(dev)->stream));
    if (tensor_count(dy) == 0 || dw->rows == 0)
        return ST_OK;
    TRY(embed_sort(&pairs, gpu_of(dev), &a, dy->rows));
    fit_launch(&f, [&](auto form, auto v) {
        struct grid g = grid_of(&f, v);
        dim3 blocks(embed_segments_of(&pairs.cut), g.pieces);

        embed_sum_kernel<form, v><<<blocks, g.threads, 0, gpu_of(dev)->stream>>>(a, pairs.cut);
        embed_run_kernel<form, v><<<blocks, g.threads, 0, gpu_of(dev)->stream>>>(a, pairs.cut);
    });
    return gpu_launched(gpu_of(dev), "embed_backward");
}
