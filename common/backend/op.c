#include "common/backend/op.h"

#include "common/backend/op_check.h"
#include "common/backend/trace.h"

/* Calls the backend's slot; a profile sees it under this name. */
#define RUN(slot, device, ...)                                                \
    do {                                                                      \
        trace_open(device, (struct trace_span){.name = #slot, .kind = "op"}); \
        TRY(device->be->math->slot(device, __VA_ARGS__));                     \
        trace_close(device);                                                  \
    } while (0)

enum status op_gemm(struct device *dev, const struct gemm *g, int n)
{
    for (int i = 0; i < n; i++)
        TRY(op_check_gemm(dev, &g[i]));
    RUN(gemm, dev, g, n);
    return ST_OK;
}

enum status op_weight_grad(struct device *dev, const struct weight_grad *w, int n,
                           const struct sample_plan *plan)
{
    for (int i = 0; i < n; i++) {
        CHECK_TENSOR(&w[i].dw, OP_WIDE, w[i].dy.cols, w[i].x.cols);
        CHECK_TENSOR(&w[i].dy, OP_FLOAT, w[i].x.rows, w[i].dw.rows);
        CHECK_TENSOR(&w[i].x, OP_FLOAT, w[i].dy.rows, w[i].dw.cols);
        TRY(op_check_plan(plan, w[i].x.rows, __func__));
    }
    RUN(weight_grad, dev, w, n, plan);
    return ST_OK;
}

enum status op_rms_norm(struct device *dev, struct tensor *h, struct tensor *s,
                        const struct tensor *x, const struct tensor *gain, struct norm norm)
{
    CHECK_TENSOR(h, OP_FLOAT, x->rows, x->cols);
    CHECK_TENSOR(s, OP_WIDE, x->rows, 1);
    CHECK_TENSOR(x, OP_FLOAT, x->rows, x->cols);
    CHECK_TENSOR(gain, OP_FLOAT, 1, x->cols);
    RUN(rms_norm, dev, h, s, x, gain, norm);
    return ST_OK;
}

static enum status check_rms_grad(const struct device *dev, const struct rms_grad *g,
                                  const struct sample_plan *plan)
{
    CHECK_TENSOR(&g->dx, OP_FLOAT, g->x.rows, g->x.cols);
    CHECK_TENSOR(&g->dgain, OP_WIDE, 1, g->x.cols);
    CHECK_TENSOR(&g->t, OP_FLOAT, g->x.rows, g->x.cols);
    CHECK_TENSOR(&g->x, OP_FLOAT, g->x.rows, g->x.cols);
    CHECK_TENSOR(&g->gain, OP_FLOAT, 1, g->x.cols);
    TRY(op_check_plan(plan, g->x.rows, __func__));
    return ST_OK;
}

enum status op_rms_norm_backward(struct device *dev, const struct rms_grad *g,
                                 const struct tensor *s, struct norm norm,
                                 const struct sample_plan *plan)
{
    TRY(check_rms_grad(dev, g, plan));
    CHECK_TENSOR(s, OP_WIDE, g->x.rows, 1);
    RUN(rms_norm_backward, dev, g, s, norm, plan);
    return ST_OK;
}

enum status op_rms_partial(struct device *dev, struct tensor *h, struct tensor *s, struct tensor *l,
                           const struct tensor *x, const struct tensor *gain, struct norm norm)
{
    CHECK_TENSOR(h, OP_FLOAT, x->rows, x->cols);
    CHECK_TENSOR(s, OP_WIDE, x->rows, 1);
    if (l)
        CHECK_TENSOR(l, OP_WIDE, x->rows, x->col_grains);
    CHECK_TENSOR(x, OP_FLOAT, x->rows, x->cols);
    CHECK_TENSOR(gain, OP_FLOAT, 1, x->cols);
    RUN(rms_partial, dev, h, s, l, x, gain, norm);
    return ST_OK;
}

enum status op_rms_stat(struct device *dev, struct tensor *s, const struct tensor *x)
{
    CHECK_TENSOR(s, OP_WIDE, x->rows, 1);
    CHECK_TENSOR(x, OP_FLOAT, x->rows, x->cols);
    RUN(rms_stat, dev, s, x);
    return ST_OK;
}

enum status op_rms_apply(struct device *dev, struct tensor *h, const struct tensor *x,
                         const struct tensor *gain, const struct tensor *s, struct norm norm)
{
    CHECK_TENSOR(h, OP_FLOAT, x->rows, x->cols);
    CHECK_TENSOR(x, OP_FLOAT, x->rows, x->cols);
    CHECK_TENSOR(gain, OP_FLOAT, 1, x->cols);
    CHECK_TENSOR(s, OP_WIDE, x->rows, 1);
    RUN(rms_apply, dev, h, x, gain, s, norm);
    return ST_OK;
}

enum status op_rms_dot(struct device *dev, struct tensor *c, const struct tensor *t,
                       const struct tensor *x, const struct tensor *gain)
{
    CHECK_TENSOR(c, OP_WIDE, x->rows, 1);
    CHECK_TENSOR(t, OP_FLOAT, x->rows, x->cols);
    CHECK_TENSOR(x, OP_FLOAT, x->rows, x->cols);
    CHECK_TENSOR(gain, OP_FLOAT, 1, x->cols);
    RUN(rms_dot, dev, c, t, x, gain);
    return ST_OK;
}

enum status op_rms_coef(struct device *dev, struct tensor *coef, const struct tensor *c,
                        const struct tensor *s, struct norm norm)
{
    CHECK_TENSOR(coef, OP_WIDE, c->rows, 2);
    CHECK_TENSOR(c, OP_WIDE, c->rows, 1);
    CHECK_TENSOR(s, OP_WIDE, c->rows, 1);
    RUN(rms_coef, dev, coef, c, s, norm);
    return ST_OK;
}

enum status op_rms_backward(struct device *dev, const struct rms_grad *g, const struct tensor *coef,
                            const struct sample_plan *plan)
{
    TRY(check_rms_grad(dev, g, plan));
    CHECK_TENSOR(coef, OP_WIDE, g->x.rows, 2);
    RUN(rms_backward, dev, g, coef, plan);
    return ST_OK;
}

enum status op_latent_forward(struct device *dev, struct tensor *z, struct tensor *a,
                              const struct tensor *zsum, const struct tensor *s, struct latent lat)
{
    CHECK_TENSOR(z, OP_FLOAT, zsum->rows, zsum->cols);
    if (a)
        CHECK_TENSOR(a, OP_FLOAT, zsum->rows, zsum->cols);
    CHECK_TENSOR(zsum, OP_FLOAT, zsum->rows, zsum->cols);
    if (s)
        CHECK_TENSOR(s, OP_WIDE, zsum->rows, 1);
    RUN(latent_forward, dev, z, a, zsum, s, lat);
    return ST_OK;
}

enum status op_latent_act(struct device *dev, struct tensor *a, const struct tensor *z,
                          struct latent lat)
{
    CHECK_TENSOR(a, OP_FLOAT, z->rows, z->cols);
    CHECK_TENSOR(z, OP_FLOAT, z->rows, z->cols);
    RUN(latent_act, dev, a, z, lat);
    return ST_OK;
}

enum status op_latent_backward(struct device *dev, struct tensor *u, struct tensor *coef,
                               const struct tensor *da, const struct tensor *z,
                               const struct tensor *s, struct latent lat)
{
    CHECK_TENSOR(u, OP_FLOAT, z->rows, z->cols);
    FAIL_IF(coef && !s, ST_ESHAPE); /* beta is made from the statistic */
    if (coef)
        CHECK_TENSOR(coef, OP_WIDE, z->rows, 2);
    CHECK_TENSOR(da, OP_FLOAT, z->rows, z->cols);
    CHECK_TENSOR(z, OP_FLOAT, z->rows, z->cols);
    if (s)
        CHECK_TENSOR(s, OP_WIDE, z->rows, 1);
    RUN(latent_backward, dev, u, coef, da, z, s, lat);
    return ST_OK;
}

enum status op_rope(struct device *dev, struct tensor *x, const struct tensor *table,
                    struct rope rope)
{
    CHECK_TENSOR(x, OP_FLOAT, x->rows, x->cols);
    CHECK_TENSOR(table, OP_WIDE, table->rows, rope.head_dim);
    FAIL_IF(rope.head_dim < 2 || rope.head_dim % 2 != 0 || x->cols % rope.head_dim != 0, ST_ESHAPE);
    FAIL_IF(rope.seq < 1 || rope.pos0 < 0 || rope.pos0 + rope.seq > table->rows, ST_ESHAPE);
    if (rope.starts.data) {
        CHECK_TENSOR(&rope.starts, OP_I32, x->rows, 1);
        FAIL_IF(!tensor_packed(&rope.starts), ST_ESHAPE);
    }
    RUN(rope, dev, x, table, rope);
    return ST_OK;
}

enum status op_attention_forward(struct device *dev, struct attention *at)
{
    TRY(op_check_attention(dev, at, NULL, __func__));
    RUN(attention_forward, dev, at);
    return ST_OK;
}

enum status op_attention_backward(struct device *dev, const struct attention *at,
                                  struct attention *dat)
{
    TRY(op_check_attention(dev, at, dat, __func__));
    RUN(attention_backward, dev, at, dat);
    return ST_OK;
}

enum status op_swiglu_forward(struct device *dev, struct tensor *f, const struct tensor *g,
                              const struct tensor *u, enum swiglu_kind kind)
{
    CHECK_TENSOR(f, OP_FLOAT, g->rows, g->cols);
    CHECK_TENSOR(g, OP_FLOAT, g->rows, g->cols);
    CHECK_TENSOR(u, OP_FLOAT, g->rows, g->cols);
    RUN(swiglu_forward, dev, f, g, u, kind);
    return ST_OK;
}

enum status op_swiglu_backward(struct device *dev, const struct swiglu_grad *d,
                               enum swiglu_kind kind)
{
    TRY(op_check_swiglu_grad(dev, d, __func__));
    RUN(swiglu_backward, dev, d, kind);
    return ST_OK;
}

enum status op_gemm_swiglu_forward(struct device *dev, const struct gemm g[2], struct tensor *f,
                                   enum swiglu_kind kind)
{
    TRY(op_check_gemm(dev, &g[0]));
    TRY(op_check_gemm(dev, &g[1]));
    CHECK_TENSOR(&g[1].y, OP_FLOAT, g[0].y.rows, g[0].y.cols);
    CHECK_TENSOR(f, OP_FLOAT, g[0].y.rows, g[0].y.cols);
    RUN(gemm_swiglu_forward, dev, g, f, kind);
    return ST_OK;
}

enum status op_gemm_swiglu_backward(struct device *dev, const struct gemm *g,
                                    const struct swiglu_grad *d, enum swiglu_kind kind)
{
    TRY(op_check_gemm(dev, g));
    TRY(op_check_swiglu_grad(dev, d, __func__));
    CHECK_TENSOR(&d->df, OP_FLOAT, g->y.rows, g->y.cols);
    if (g->y.data != d->df.data || g->y.stride != d->df.stride || g->y.dtype != d->df.dtype)
        return fail(ST_ESHAPE, "op_gemm_swiglu_backward: df must be the product's y");
    RUN(gemm_swiglu_backward, dev, g, d, kind);
    return ST_OK;
}

enum status op_add(struct device *dev, struct tensor *y, const struct tensor *a,
                   const struct tensor *b)
{
    CHECK_TENSOR(y, OP_FLOAT, a->rows, a->cols);
    CHECK_TENSOR(a, OP_FLOAT, a->rows, a->cols);
    CHECK_TENSOR(b, OP_FLOAT, a->rows, a->cols);
    RUN(add, dev, y, a, b);
    return ST_OK;
}

enum status op_bias_forward(struct device *dev, struct tensor *y, const struct tensor *bias)
{
    CHECK_TENSOR(y, OP_FLOAT, y->rows, y->cols);
    CHECK_TENSOR(bias, OP_FLOAT, 1, y->cols);
    RUN(bias_forward, dev, y, bias);
    return ST_OK;
}

enum status op_bias_backward(struct device *dev, struct tensor *dbias, const struct tensor *dy,
                             const struct sample_plan *plan)
{
    CHECK_TENSOR(dbias, OP_WIDE, 1, dy->cols);
    CHECK_TENSOR(dy, OP_FLOAT, dy->rows, dy->cols);
    TRY(op_check_plan(plan, dy->rows, __func__));
    RUN(bias_backward, dev, dbias, dy, plan);
    return ST_OK;
}

enum status op_embed_forward(struct device *dev, struct tensor *y, const struct tensor *w,
                             const struct tensor *tokens, int64_t row0)
{
    CHECK_TENSOR(y, OP_FLOAT, tokens->rows, w->cols);
    CHECK_TENSOR(w, OP_FLOAT, w->rows, w->cols);
    CHECK_TENSOR(tokens, OP_I32, tokens->rows, 1);
    RUN(embed_forward, dev, y, w, tokens, row0);
    return ST_OK;
}

enum status op_embed_backward(struct device *dev, struct tensor *dw, const struct tensor *dy,
                              const struct tensor *tokens, int64_t row0,
                              const struct sample_plan *plan)
{
    CHECK_TENSOR(dw, OP_WIDE, dw->rows, dw->cols);
    CHECK_TENSOR(dy, OP_FLOAT, tokens->rows, dw->cols);
    CHECK_TENSOR(tokens, OP_I32, tokens->rows, 1);
    TRY(op_check_plan(plan, tokens->rows, __func__));
    RUN(embed_backward, dev, dw, dy, tokens, row0, plan);
    return ST_OK;
}

enum status op_ce_stats(struct device *dev, struct tensor *st, const struct tensor *logits,
                        const struct tensor *targets, struct vocab_cut cut)
{
    CHECK_TENSOR(st, OP_WIDE, logits->rows, 3);
    CHECK_TENSOR(logits, OP_FLOAT, logits->rows, logits->cols);
    CHECK_TENSOR(targets, OP_I32, logits->rows, 1);
    RUN(ce_stats, dev, st, logits, targets, cut);
    return ST_OK;
}

/* Nonzero when `whole` is one or more times `part`. */
static int multiple(int64_t whole, int64_t part)
{
    return part > 0 && whole >= part && whole % part == 0;
}

enum status op_ce_grad(struct device *dev, struct tensor *loss, struct tensor *logits,
                       const struct tensor *st, const struct tensor *targets, struct vocab_cut cut,
                       double scale)
{
    CHECK_TENSOR(loss, OP_WIDE, logits->rows, 1);
    CHECK_TENSOR(logits, OP_FLOAT, logits->rows, logits->cols);
    CHECK_TENSOR(st, OP_WIDE, st->rows, 3);
    FAIL_IF(!multiple(st->rows, logits->rows), ST_ESHAPE);
    CHECK_TENSOR(targets, OP_I32, logits->rows, 1);
    RUN(ce_grad, dev, loss, logits, st, targets, cut, scale);
    return ST_OK;
}

enum status op_cols_join(struct device *dev, struct tensor *y, const struct tensor *parts)
{
    FAIL_IF(!multiple(parts->rows, y->rows), ST_ESHAPE);
    CHECK_TENSOR(y, OP_FLOAT, y->rows, parts->cols * (parts->rows / y->rows));
    CHECK_TENSOR(parts, OP_FLOAT, parts->rows, parts->cols);
    RUN(cols_join, dev, y, parts);
    return ST_OK;
}

enum status op_cols_split(struct device *dev, struct tensor *parts, const struct tensor *x)
{
    FAIL_IF(!multiple(parts->rows, x->rows), ST_ESHAPE);
    CHECK_TENSOR(parts, OP_FLOAT, parts->rows, parts->cols);
    CHECK_TENSOR(x, OP_FLOAT, x->rows, parts->cols * (parts->rows / x->rows));
    RUN(cols_split, dev, parts, x);
    return ST_OK;
}

enum status op_sum_tree(struct device *dev, struct tensor *s, const struct tensor *parts)
{
    CHECK_TENSOR(s, OP_FLOAT, s->rows, parts->cols);
    CHECK_TENSOR(parts, OP_FLOAT, parts->rows, s->cols);
    FAIL_IF(!multiple(parts->rows, s->rows), ST_ESHAPE);
    RUN(sum_tree, dev, s, parts);
    return ST_OK;
}

enum status op_convert(struct device *dev, struct tensor *y, const struct tensor *x, int n)
{
    for (int i = 0; i < n; i++) {
        FAIL_IF(!tensor_same_shape(&y[i], &x[i]), ST_ESHAPE);
        FAIL_IF((y[i].dtype == DT_I32) != (x[i].dtype == DT_I32), ST_EDTYPE);
    }
    RUN(convert, dev, y, x, n);
    return ST_OK;
}

enum status op_sumsq(struct device *dev, struct tensor *table, const struct tensor *t, int n)
{
    int64_t entries = 0;

    for (int i = 0; i < n; i++) {
        CHECK_TENSOR(&t[i], OP_FLOAT, t[i].rows, t[i].cols);
        entries += (int64_t)t[i].row_grains * t[i].col_grains;
    }
    CHECK_TENSOR(table, OP_F64, entries, 1);
    FAIL_IF(!tensor_packed(table), ST_ESHAPE);
    RUN(sumsq, dev, table, t, n);
    return ST_OK;
}

enum status op_clip(struct device *dev, struct tensor *norm_scale, const struct tensor *table,
                    double limit)
{
    CHECK_TENSOR(norm_scale, OP_F64, 2, 1);
    CHECK_TENSOR(table, OP_F64, table->rows, 1);
    FAIL_IF(!tensor_packed(table) || !tensor_packed(norm_scale), ST_ESHAPE);
    RUN(clip, dev, norm_scale, table, limit);
    return ST_OK;
}

enum status op_adamw(struct device *dev, const struct adamw_item *item, int n,
                     const struct adamw_step *step, const struct tensor *norm_scale)
{
    for (int i = 0; i < n; i++) {
        int64_t rows = item[i].w.rows, cols = item[i].w.cols;

        CHECK_TENSOR(&item[i].w, OP_FLOAT, rows, cols);
        if (item[i].master.data)
            CHECK_TENSOR(&item[i].master, OP_WIDE, rows, cols);
        CHECK_TENSOR(&item[i].m, OP_FLOAT, rows, cols);
        CHECK_TENSOR(&item[i].v, OP_FLOAT, rows, cols);
        CHECK_TENSOR(&item[i].g, OP_WIDE, rows, cols);
    }
    CHECK_TENSOR(norm_scale, OP_F64, 2, 1);
    RUN(adamw, dev, item, n, step, norm_scale);
    return ST_OK;
}
