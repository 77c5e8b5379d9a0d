#include "gpu/fit.cuh"
#include "gpu/gpu.h"

struct embed_args {
    struct view w, y;
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
    return gpu_launched(gpu_of(dev), "embed_forward");
}
