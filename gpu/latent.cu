#include "gpu/fit.cuh"
#include "gpu/gpu.h"

struct latent_args {
    struct view z, a, zsum; /* a.data NULL: z alone */
    struct column s;        /* data NULL: no statistic */
    struct latent lat;
    int64_t cols;
};

static __device__ __forceinline__ float act(float z, enum act kind, bool coarse)
{
    return kind == ACT_SILU ? z * sigmoid(z, coarse) : z;
}

/* a is the activation of z as stored, not as computed: latent_act must find the same. */
template <int FORM, int V>
__global__ void latent_forward_kernel(struct latent_args p, unsigned pieces)
{
    int64_t row, col;
    float z[V], scale = 1.0f;

    grid_place<V>(&row, &col, pieces);
    if (col >= p.cols)
        return;
    if (p.s.data)
        scale = inverse_rms(p.s.data[row * p.s.stride], p.lat.norm);
    load<FORM, V>(z, p.zsum, row * p.zsum.stride + col);
#pragma unroll
    for (int i = 0; i < V; i++)
        z[i] = rounded<FORM>(p.z, z[i] * scale);
    store<FORM, V>(p.z, row * p.z.stride + col, z);
    if (!p.a.data)
        return;
#pragma unroll
    for (int i = 0; i < V; i++)
        z[i] = act(z[i], p.lat.act, view_is_bf16<FORM>(p.z));
    store<FORM, V>(p.a, row * p.a.stride + col, z);
}

extern "C" enum status gpu_latent_forward(struct device *dev, struct tensor *z, struct tensor *a,
                                          const struct tensor *zsum, const struct tensor *s,
                                          struct latent lat)
{
    struct fit f = fit_start(z->rows, z->cols);
    struct latent_args p = {};

    if (tensor_count(z) == 0)
        return ST_OK;
    p.z = fit_view(&f, z);
    p.zsum = fit_view(&f, zsum);
    if (a)
        p.a = fit_view(&f, a);
    p.s = fit_column(&f, s);
    p.lat = lat;
    TRY(fit_check(&f, "latent_forward"));
    if (!s)
        fit_flatten(&f);
    p.cols = f.cols;
    fit_launch(&f, [&](auto form, auto v) {
        struct grid g = grid_of(&f, v);

        latent_forward_kernel<form, v>
            <<<g.blocks, g.threads, 0, gpu_of(dev)->stream>>>(p, g.pieces);
    });
    return gpu_launched(gpu_of(dev), "latent_forward");
}

template <int FORM, int V>
__global__ void latent_act_kernel(struct view a, struct view z, enum act kind, int64_t cols,
                                  unsigned pieces)
{
    int64_t row, col;
    float x[V];

    grid_place<V>(&row, &col, pieces);
    if (col >= cols)
        return;
    load<FORM, V>(x, z, row * z.stride + col);
#pragma unroll
    for (int i = 0; i < V; i++)
        x[i] = act(x[i], kind, view_is_bf16<FORM>(z));
    store<FORM, V>(a, row * a.stride + col, x);
}

extern "C" enum status gpu_latent_act(struct device *dev, struct tensor *a, const struct tensor *z,
                                      struct latent lat)
{
    struct fit f = fit_start(z->rows, z->cols);
    struct view va = fit_view(&f, a), vz = fit_view(&f, z);

    if (tensor_count(z) == 0)
        return ST_OK;
    TRY(fit_check(&f, "latent_act"));
    fit_flatten(&f);
    fit_launch(&f, [&](auto form, auto v) {
        struct grid g = grid_of(&f, v);

        latent_act_kernel<form, v>
            <<<g.blocks, g.threads, 0, gpu_of(dev)->stream>>>(va, vz, lat.act, f.cols, g.pieces);
    });
    return gpu_launched(gpu_of(dev), "latent_act");
}

struct latent_back_args {
    struct view u, da, z;
    struct column s, coef; /* data NULL: none */
    struct latent lat;
    int64_t cols;
};

/* One block a row: u needs no sum, so one pass does both. */
template <int FORM, int V> __global__ void latent_backward_kernel(struct latent_back_args p)
{
    int64_t row = blockIdx.x;
    float sum = 0.0f, scale = 1.0f, d[V], z[V];

    if (p.s.data)
        scale = inverse_rms(p.s.data[row * p.s.stride], p.lat.norm);
    for (int64_t col = threadIdx.x * V; col < p.cols; col += blockDim.x * V) {
        load<FORM, V>(d, p.da, row * p.da.stride + col);
        load<FORM, V>(z, p.z, row * p.z.stride + col);
#pragma unroll
        for (int i = 0; i < V; i++) {
            if (p.lat.act == ACT_SILU)
                d[i] *= silu_slope(z[i], sigmoid(z[i], view_is_bf16<FORM>(p.u)));
            sum += d[i] * z[i];
            d[i] *= scale;
        }
        store<FORM, V>(p.u, row * p.u.stride + col, d);
    }
    if (!p.coef.data)
        return;
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        p.coef.data[row * p.coef.stride] = 1.0f;
        p.coef.data[row * p.coef.stride + 1] = sum * scale * scale / (float)p.lat.norm.width;
    }
}

extern "C" enum status gpu_latent_backward(struct device *dev, struct tensor *u,
                                           struct tensor *coef, const struct tensor *da,
                                           const struct tensor *z, const struct tensor *s,
                                           struct latent lat)
{
    struct fit f = fit_start(z->rows, z->cols);
    struct latent_back_args p = {};

    if (tensor_count(z) == 0)
        return ST_OK;
    p.u = fit_view(&f, u);
    p.da = fit_view(&f, da);
    p.z = fit_view(&f, z);
    p.s = fit_column(&f, s);
    p.coef = fit_column(&f, coef);
    p.lat = lat;
    p.cols = f.cols;
    TRY(fit_check(&f, "latent_backward"));
    fit_launch(&f, [&](auto form, auto v) {
        unsigned threads = row_threads(f.cols, v, 512);

        latent_backward_kernel<form, v><<<(unsigned)f.rows, threads, 0, gpu_of(dev)->stream>>>(p);
    });
    return gpu_launched(gpu_of(dev), "latent_backward");
}
