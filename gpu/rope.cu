#include "gpu/fit.cuh"
#include "gpu/gpu.h"

/* A row has `items` pieces of V pairs; piece k belongs to head k / per_head. */
template <int FORM, int V>
__global__ void rope_kernel(struct view x, struct view table, struct rope rope, unsigned per_head,
                            unsigned items, unsigned pieces)
{
    int64_t row, item, at, angle;
    int64_t half = rope.head_dim / 2;
    float p[V], q[V], c[V], s[V];
    unsigned head;

    grid_place<1>(&row, &item, pieces);
    if (item >= items)
        return;
    head = (unsigned)item / per_head;
    at = (int64_t)((unsigned)item - head * per_head) * V;
    angle = rope.pos0 + (unsigned)row % (unsigned)rope.seq;
    if (rope.starts.data)
        angle -= static_cast<const int32_t *>(rope.starts.data)[row];
    angle = angle * table.stride + at;
    at += row * x.stride + head * rope.head_dim;
    load<FORM, V>(p, x, at);
    load<FORM, V>(q, x, at + half);
    load<FORM, V>(c, table, angle);
    load<FORM, V>(s, table, angle + half);
#pragma unroll
    for (int i = 0; i < V; i++) {
        float turn = rope.inverse ? -s[i] : s[i], first = p[i];

        p[i] = first * c[i] - q[i] * turn;
        q[i] = q[i] * c[i] + first * turn;
    }
    store<FORM, V>(x, at, p);
    store<FORM, V>(x, at + half, q);
}

extern "C" enum status gpu_rope(struct device *dev, struct tensor *x, const struct tensor *table,
                                struct rope rope)
{
    struct fit f = fit_start(x->rows, rope.head_dim / 2);
    struct view vx = fit_view(&f, x), vt = fit_view(&f, table);

    if (tensor_count(x) == 0)
        return ST_OK;
    TRY(fit_check(&f, "rope"));
    fit_launch(&f, [&](auto form, auto v) {
        unsigned per_head = (unsigned)(rope.head_dim / 2 / v);
        unsigned items = per_head * (unsigned)(x->cols / rope.head_dim);
        struct fit pairs = fit_start(x->rows, items);
        struct grid g = grid_of(&pairs, 1);

        rope_kernel<form, v><<<g.blocks, g.threads, 0, gpu_of(dev)->stream>>>(
            vx, vt, rope, per_head, items, g.pieces);
    });
    return gpu_launched(gpu_of(dev), "rope");
}
