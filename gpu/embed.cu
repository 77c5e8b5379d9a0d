#include "gpu/fit.cuh"
#include "gpu/gpu.h"

#include <cub/device/device_radix_sort.cuh>

struct embed_args {
    struct view w, y; /* w: the table or its gradient; y: rows of tokens or their gradient */
    const int32_t *tokens;
    int64_t token_stride, row0, rows, cols;
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
                           y->cols};

    if (tensor_count(y) == 0)
        return ST_OK;
    TRY(embed_check(&f, tokens));
    fit_launch(&f, [&](auto form, auto v) {
        struct grid g = grid_of(&f, v);

        embed_forward_kernel<form, v><<<g.blocks, g.threads, 0, gpu_of(dev)->stream>>>(a, g.pieces);
    });
    return gpu_launched("embed_forward");
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

/* Pairs sorted by row, tokens of one row in their order: the first pair of each row adds up all of
 * them. Rows of dy are fetched GROUP at a time and added one after the other. */
template <int FORM, int V>
__global__ void embed_sum_kernel(struct embed_args a, const uint32_t *key, const uint32_t *place,
                                 unsigned m)
{
    constexpr int GROUP = 4;
    unsigned first = blockIdx.x, row = key[first];
    int64_t col = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V;
    float sum[V] = {}, x[GROUP][V], old[V];

    if (row >= a.rows || col >= a.cols || (first > 0 && key[first - 1] == row))
        return;
    for (unsigned i = first; i < m && key[i] == row; i += GROUP) {
#pragma unroll
        for (int j = 0; j < GROUP; j++)
            if (i + j < m && key[i + j] == row)
                load<FORM, V>(x[j], a.y, (int64_t)place[i + j] * a.y.stride + col);
#pragma unroll
        for (int j = 0; j < GROUP; j++)
            if (i + j < m && key[i + j] == row)
#pragma unroll
                for (int k = 0; k < V; k++)
                    sum[k] += x[j][k];
    }
    load<FORM, V>(old, a.w, row * a.w.stride + col);
#pragma unroll
    for (int k = 0; k < V; k++)
        sum[k] += old[k];
    store<FORM, V>(a.w, row * a.w.stride + col, sum);
}

/* Sorted pairs in scratch. */
struct embed_pairs {
    uint32_t *key, *place, *key_in, *place_in;
    void *temp;
    size_t temp_bytes;
};

static enum status embed_sort(struct embed_pairs *s, struct gpu_device *dev,
                              const struct embed_args *a, int64_t m)
{
    size_t piece = ((size_t)m * sizeof(uint32_t) + 255) / 256 * 256;
    int bits = 1;
    void *p;

    while (bits < 32 && a->rows >> bits)
        bits++;
    s->temp_bytes = 0;
    CUDA_TRY(cub::DeviceRadixSort::SortPairs(nullptr, s->temp_bytes, s->key_in, s->key, s->place_in,
                                             s->place, (int)m, 0, bits, dev->stream));
    TRY(gpu_scratch(dev, &p, 4 * piece + s->temp_bytes));
    s->key = static_cast<uint32_t *>(p);
    s->place = s->key + piece / 4;
    s->key_in = s->place + piece / 4;
    s->place_in = s->key_in + piece / 4;
    s->temp = s->place_in + piece / 4;
    embed_keys_kernel<<<(unsigned)((m + 255) / 256), 256, 0, dev->stream>>>(s->key_in, s->place_in,
                                                                            *a, m);
    TRY(gpu_launched("embed_backward, keys"));
    CUDA_TRY(cub::DeviceRadixSort::SortPairs(s->temp, s->temp_bytes, s->key_in, s->key, s->place_in,
                                             s->place, (int)m, 0, bits, dev->stream));
    return ST_OK;
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
                           dy->cols};
    struct embed_pairs pairs = {};
    size_t size = dtype_size(dw->dtype);
    int accumulate;

    TRY(gpu_plan(&accumulate, plan));
    TRY(embed_check(&f, tokens));
    if (!accumulate && tensor_count(dw) > 0)
        CUDA_TRY(cudaMemset2DAsync(dw->data, (size_t)dw->stride * size, 0, (size_t)dw->cols * size,
                                   (size_t)dw->rows, gpu_of(dev)->stream));
    if (tensor_count(dy) == 0 || dw->rows == 0)
        return ST_OK;
    TRY(embed_sort(&pairs, gpu_of(dev), &a, dy->rows));
    fit_launch(&f, [&](auto form, auto v) {
        struct grid g = grid_of(&f, v);

        embed_sum_kernel<form, v>
            <<<dim3((unsigned)f.rows, g.pieces), g.threads, 0, gpu_of(dev)->stream>>>(
                a, pairs.key, pairs.place, (unsigned)f.rows);
    });
    return gpu_launched("embed_backward");
}
