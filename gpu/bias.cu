/* A bias: the same row added to every token, and its gradient, a sum over tokens. */
#include "gpu/fit.cuh"
#include "gpu/gpu.h"
#include "gpu/reduce.h"

template <int FORM, int V>
__global__ void bias_kernel(struct view y, struct view bias, int64_t cols, unsigned pieces)
{
    int64_t row, col;
    float p[V], b[V];

    grid_place<V>(&row, &col, pieces);
    if (col >= cols)
        return;
    load<FORM, V>(p, y, row * y.stride + col);
    load<FORM, V>(b, bias, col);
#pragma unroll
    for (int i = 0; i < V; i++)
        p[i] += b[i];
    store<FORM, V>(y, row * y.stride + col, p);
}

extern "C" enum status gpu_bias_forward(struct device *dev, struct tensor *y,
                                        const struct tensor *bias)
{
    struct fit f = fit_start(y->rows, y->cols);
    struct view vy = fit_view(&f, y), vb = fit_view(&f, bias, true);

    if (tensor_count(y) == 0)
        return ST_OK;
    TRY(fit_check(&f, "bias"));
    fit_launch(&f, [&](auto form, auto v) {
        struct grid g = grid_of(&f, v);

        bias_kernel<form, v>
            <<<g.blocks, g.threads, 0, gpu_of(dev)->stream>>>(vy, vb, f.cols, g.pieces);
    });
    return gpu_launched(gpu_of(dev), "bias");
}

struct bias_back_args {
    struct view dy;
    int64_t rows, cols, per;
    float *partial; /* [parts, cols] */
};

/* Block (i, j): rows [i per, (i + 1) per), and of columns those of its threads, added in row
 * order. */
template <int FORM, int V> __global__ void bias_backward_kernel(struct bias_back_args a)
{
    int64_t first = blockIdx.x * a.per, last = min(first + a.per, a.rows);
    int64_t col = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V;
    float sum[V] = {}, d[V];

    if (col >= a.cols)
        return;
    for (int64_t row = first; row < last; row++) {
        load<FORM, V>(d, a.dy, row * a.dy.stride + col);
#pragma unroll
        for (int i = 0; i < V; i++)
            sum[i] += d[i];
    }
#pragma unroll
    for (int i = 0; i < V; i++)
        a.partial[blockIdx.x * a.cols + col + i] = sum[i];
}

extern "C" enum status gpu_bias_backward(struct device *dev, struct tensor *dbias,
                                         const struct tensor *dy, const struct sample_plan *plan)
{
    struct fit f = fit_start(dy->rows, dy->cols);
    struct bias_back_args a = {fit_view(&f, dy), dy->rows, dy->cols, 0, nullptr};
    struct gpu_parts parts;
    int accumulate;

    TRY(gpu_plan(&accumulate, plan));
    if (tensor_count(dy) == 0)
        return ST_OK;
    TRY(fit_check(&f, "bias_backward"));
    TRY(gpu_parts_of(&parts, gpu_of(dev), a.rows, a.cols, 4 * (int64_t)gpu_of(dev)->sms));
    a.per = parts.per;
    a.partial = parts.partial;
    fit_launch(&f, [&](auto form, auto v) {
        unsigned threads = row_threads(a.cols, v, 256);
        int64_t span = (int64_t)threads * v;
        dim3 blocks((unsigned)parts.parts, (unsigned)((a.cols + span - 1) / span));

        bias_backward_kernel<form, v><<<blocks, threads, 0, gpu_of(dev)->stream>>>(a);
    });
    TRY(gpu_launched(gpu_of(dev), "bias_backward"));
    return gpu_parts_join(gpu_of(dev), dbias, &parts, accumulate);
}
