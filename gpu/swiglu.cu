#include "gpu/fit.cuh"
#include "gpu/gpu.h"

template <int FORM, int V>
__global__ void swiglu_forward_kernel(struct view f, struct view g, struct view u,
                                      enum swiglu_kind kind, int64_t cols, unsigned pieces)
{
    int64_t row, col;
    float a[V], b[V];

    grid_place<V>(&row, &col, pieces);
    if (col >= cols)
        return;
    load<FORM, V>(a, g, row * g.stride + col);
    load<FORM, V>(b, u, row * u.stride + col);
#pragma unroll
    for (int i = 0; i < V; i++)
        a[i] = (kind == SWIGLU_SILU ? a[i] * sigmoid(a[i], view_is_bf16<FORM>(f)) : a[i]) * b[i];
    store<FORM, V>(f, row * f.stride + col, a);
}

extern "C" enum status gpu_swiglu_forward(struct device *dev, struct tensor *f,
                                          const struct tensor *g, const struct tensor *u,
                                          enum swiglu_kind kind)
{
    struct fit fit = fit_start(f->rows, f->cols);
    struct view vf = fit_view(&fit, f), vg = fit_view(&fit, g), vu = fit_view(&fit, u);

    if (tensor_count(f) == 0)
        return ST_OK;
    TRY(fit_check(&fit, "swiglu_forward"));
    fit_flatten(&fit);
    fit_launch(&fit, [&](auto form, auto v) {
        struct grid grid = grid_of(&fit, v);

        swiglu_forward_kernel<form, v><<<grid.blocks, grid.threads, 0, gpu_of(dev)->stream>>>(
            vf, vg, vu, kind, fit.cols, grid.pieces);
    });
    return gpu_launched(gpu_of(dev), "swiglu_forward");
}

struct swiglu_args {
    struct view dg, du, df, g, u;
    enum swiglu_kind kind;
    int64_t cols;
};

/* Reads all of its elements before it writes any: outputs may take the place of inputs. */
template <int FORM, int V>
__global__ void swiglu_backward_kernel(struct swiglu_args a, unsigned pieces)
{
    int64_t row, col;
    float d[V], g[V], u[V];

    grid_place<V>(&row, &col, pieces);
    if (col >= a.cols)
        return;
    load<FORM, V>(d, a.df, row * a.df.stride + col);
    load<FORM, V>(g, a.g, row * a.g.stride + col);
    load<FORM, V>(u, a.u, row * a.u.stride + col);
#pragma unroll
    for (int i = 0; i < V; i++) {
        float s = sigmoid(g[i], view_is_bf16<FORM>(a.dg)), out = d[i];

        if (a.kind == SWIGLU_SILU) {
            d[i] = out * u[i] * silu_slope(g[i], s);
            u[i] = out * g[i] * s;
        } else {
            d[i] = out * u[i];
            u[i] = out * g[i];
        }
    }
    store<FORM, V>(a.dg, row * a.dg.stride + col, d);
    store<FORM, V>(a.du, row * a.du.stride + col, u);
}

extern "C" enum status gpu_swiglu_backward(struct device *dev, const struct swiglu_grad *d,
                                           enum swiglu_kind kind)
{
    struct fit f = fit_start(d->df.rows, d->df.cols);
    struct swiglu_args a = {};

    if (tensor_count(&d->df) == 0)
        return ST_OK;
    a.dg = fit_view(&f, &d->dg);
    a.du = fit_view(&f, &d->du);
    a.df = fit_view(&f, &d->df);
    a.g = fit_view(&f, &d->g);
    a.u = fit_view(&f, &d->u);
    a.kind = kind;
    TRY(fit_check(&f, "swiglu_backward"));
    fit_flatten(&f);
    a.cols = f.cols;
    fit_launch(&f, [&](auto form, auto v) {
        struct grid g = grid_of(&f, v);

        swiglu_backward_kernel<form, v>
            <<<g.blocks, g.threads, 0, gpu_of(dev)->stream>>>(a, g.pieces);
    });
    return gpu_launched(gpu_of(dev), "swiglu_backward");
}
