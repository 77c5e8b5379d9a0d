/* Operations of the recording backend: they compute nothing, count what was asked for, and tell a
 * listener. */
#include "common/backend/record_state.h"

/* A math call: flops, and bytes of widened operands. */
static enum status count(struct device *dev, double flops, size_t bytes)
{
    struct record_device *r = record_state(dev);

    r->flops += flops;
    r->widened = bytes > r->widened ? bytes : r->widened;
    r->calls++;
    if (r->fail_at && r->calls == r->fail_at)
        return fail(ST_EDEVICE, "recording device told to fail at call %lld", (long long)r->calls);
    return ST_OK;
}

/* Bytes of two operands that are narrower than the device computes in, once they are widened. */
static size_t widened(const struct device *dev, const struct tensor *a, const struct tensor *b)
{
    size_t size = dtype_size(dev->wide);
    int64_t n = dtype_size(a->dtype) < size ? tensor_count(a) : 0;

    return (size_t)(n + (dtype_size(b->dtype) < size ? tensor_count(b) : 0)) * size;
}

static enum status gemm(struct device *dev, const struct gemm *g, int n)
{
    const struct record_listener *l = record_state(dev)->listener;
    double flops = 0.0;
    size_t bytes = 0;

    for (int i = 0; i < n; i++) {
        double mn = 2.0 * (double)g[i].y.rows * (double)g[i].y.cols;

        flops += mn * (double)g[i].a.cols;
        bytes += widened(dev, &g[i].a, &g[i].b);
        for (int j = 0; j < g[i].more; j++) {
            flops += mn * (double)g[i].part[j].a.cols;
            bytes += widened(dev, &g[i].part[j].a, &g[i].part[j].b);
        }
    }
    TRY(count(dev, flops, bytes));
    return l ? l->products(l->context, g, n) : ST_OK;
}

static enum status weight_grad(struct device *dev, const struct weight_grad *w, int n,
                               const struct sample_plan *plan)
{
    const struct record_listener *l = record_state(dev)->listener;
    double flops = 0.0;
    size_t bytes = 0;

    for (int i = 0; i < n; i++) {
        flops += 2.0 * (double)w[i].dw.rows * (double)w[i].dw.cols * (double)w[i].dy.rows;
        bytes += widened(dev, &w[i].dy, &w[i].x);
    }
    TRY(count(dev, flops, bytes));
    return l ? l->gradients(l->context, w, n, plan) : ST_OK;
}

/* Two products forward (q k', p v); each query sees half of the keys on average. */
static double attention_flops(const struct attention *at)
{
    double pairs = 0.5 * (double)at->seq * (double)(at->seq + 1) + (double)(at->seq * at->pos0);

    return 4.0 * (double)(at->batch * at->heads * at->head_dim) * pairs;
}

static enum status attention_forward(struct device *dev, struct attention *at)
{
    const struct record_listener *l = record_state(dev)->listener;

    TRY(count(dev, attention_flops(at), 0));
    return l ? l->attention(l->context, at, NULL) : ST_OK;
}

static enum status attention_backward(struct device *dev, const struct attention *at,
                                      struct attention *dat)
{
    const struct record_listener *l = record_state(dev)->listener;

    TRY(count(dev, 2.0 * attention_flops(at), 0));
    return l ? l->attention(l->context, at, dat) : ST_OK;
}

/* ---- what moves memory ---- */

/* Bytes of a tensor; NULL and one without memory have none. */
static double of(const struct tensor *t)
{
    return t && t->data ? (double)tensor_count(t) * (double)dtype_size(t->dtype) : 0.0;
}

static double of_grad(const struct rms_grad *g)
{
    return 2.0 * of(&g->dx) + of(&g->dgain) + of(&g->t) + of(&g->x) + of(&g->gain);
}

/* t is written for each node of the tree over samples, and what waits for one is read. */
static double joined(const struct tensor *t, const struct sample_plan *plan)
{
    double times = 0.0;

    for (int i = 0; i < plan->nodes; i++)
        times += 1.0 + (double)plan->node[i].merges;
    return times * of(t);
}

static double of_list(const struct tensor *t, int n)
{
    double bytes = 0.0;

    for (int i = 0; i < n; i++)
        bytes += of(&t[i]);
    return bytes;
}

static double of_adamw(const struct adamw_item *a, int n)
{
    double bytes = 0.0;

    for (int i = 0; i < n; i++)
        bytes += 2.0 * (of(&a[i].m) + of(&a[i].v)) + of(&a[i].g) +
                 (a[i].master.data ? 2.0 * of(&a[i].master) + of(&a[i].w) : 2.0 * of(&a[i].w));
    return bytes;
}

/* One definition for each signature, with the bytes that must be read and written. What a call does
 * not touch counts too where it is a row or a column. */
#define MOVES(name, bytes, ...)                              \
    static enum status name(struct device *dev, __VA_ARGS__) \
    {                                                        \
        TRY(count(dev, 0.0, 0));                             \
        return record_moved(dev, bytes);                     \
    }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
MOVES(rms_norm, of(h) + of(s) + of(x) + of(gain), struct tensor *h, struct tensor *s,
      const struct tensor *x, const struct tensor *gain, struct norm norm)
MOVES(rms_norm_backward, of_grad(g) + of(s), const struct rms_grad *g, const struct tensor *s,
      struct norm norm, const struct sample_plan *plan)
MOVES(rms_partial, of(h) + of(s) + of(l) + of(x) + of(gain), struct tensor *h, struct tensor *s,
      struct tensor *l, const struct tensor *x, const struct tensor *gain, struct norm norm)
MOVES(rms_stat, of(s) + of(x), struct tensor *s, const struct tensor *x)
MOVES(rms_apply, of(h) + of(x) + of(gain) + of(s), struct tensor *h, const struct tensor *x,
      const struct tensor *gain, const struct tensor *s, struct norm norm)
MOVES(rms_dot, of(c) + of(t) + of(x) + of(gain), struct tensor *c, const struct tensor *t,
      const struct tensor *x, const struct tensor *gain)
MOVES(rms_coef, of(coef) + of(c) + of(s), struct tensor *coef, const struct tensor *c,
      const struct tensor *s, struct norm norm)
MOVES(rms_backward, of_grad(g) + of(coef), const struct rms_grad *g, const struct tensor *coef,
      const struct sample_plan *plan)
MOVES(latent_forward, of(z) + of(a) + of(zsum) + of(s), struct tensor *z, struct tensor *a,
      const struct tensor *zsum, const struct tensor *s, struct latent lat)
MOVES(latent_act, of(a) + of(z), struct tensor *a, const struct tensor *z, struct latent lat)
MOVES(latent_backward, of(u) + of(coef) + of(da) + of(z) + of(s), struct tensor *u,
      struct tensor *coef, const struct tensor *da, const struct tensor *z, const struct tensor *s,
      struct latent lat)
MOVES(rope, 2.0 * of(x) + of(table), struct tensor *x, const struct tensor *table, struct rope r)
MOVES(swiglu_forward, of(f) + of(g) + of(u), struct tensor *f, const struct tensor *g,
      const struct tensor *u, enum swiglu_kind kind)
MOVES(swiglu_backward, of(&d->dg) + of(&d->du) + of(&d->df) + of(&d->g) + of(&d->u),
      const struct swiglu_grad *d, enum swiglu_kind kind)
MOVES(add, of(y) + of(a) + of(b), struct tensor *y, const struct tensor *a, const struct tensor *b)
MOVES(bias_forward, 2.0 * of(y) + of(bias), struct tensor *y, const struct tensor *bias)
MOVES(bias_backward, joined(dbias, plan) + of(dy), struct tensor *dbias, const struct tensor *dy,
      const struct sample_plan *plan)
/* Of w the rows that are looked up. */
MOVES(embed_forward, 2.0 * of(y) + of(tokens), struct tensor *y, const struct tensor *w,
      const struct tensor *tokens, int64_t row0)
MOVES(embed_backward, joined(dw, plan) + of(dy) + of(tokens), struct tensor *dw,
      const struct tensor *dy, const struct tensor *tokens, int64_t row0,
      const struct sample_plan *plan)
MOVES(ce_stats, of(st) + of(logits) + of(targets), struct tensor *st, const struct tensor *logits,
      const struct tensor *targets, struct vocab_cut cut)
/* Without a scale only losses are written. */
MOVES(ce_grad, of(loss) + of(st) + of(targets) + (scale != 0.0 ? 2.0 * of(logits) : 0.0),
      struct tensor *loss, struct tensor *logits, const struct tensor *st,
      const struct tensor *targets, struct vocab_cut cut, double scale)
MOVES(cols_join, of(y) + of(parts), struct tensor *y, const struct tensor *parts)
MOVES(cols_split, of(parts) + of(x), struct tensor *parts, const struct tensor *x)
MOVES(sum_tree, of(s) + of(parts), struct tensor *s, const struct tensor *parts)
MOVES(convert, of_list(y, n) + of_list(x, n), struct tensor *y, const struct tensor *x, int n)
MOVES(sumsq, of_list(t, n) + of(table), struct tensor *table, const struct tensor *t, int n)
MOVES(clip, of(table), struct tensor *norm_scale, const struct tensor *table, double limit)
MOVES(adamw, of_adamw(item, n), const struct adamw_item *item, int n, const struct adamw_step *step,
      const struct tensor *norm_scale)
#pragma GCC diagnostic pop

/* ---- products with their neighbours: what the two ops would be ---- */

static enum status gemm_swiglu_forward(struct device *dev, const struct gemm g[2], struct tensor *f,
                                       enum swiglu_kind kind)
{
    TRY(gemm(dev, g, 2));
    return swiglu_forward(dev, f, &g[0].y, &g[1].y, kind);
}

static enum status gemm_swiglu_backward(struct device *dev, const struct gemm *g,
                                        const struct swiglu_grad *d, enum swiglu_kind kind)
{
    TRY(gemm(dev, g, 1));
    return swiglu_backward(dev, d, kind);
}

const struct math_ops record_math_ops = {.gemm = gemm,
                                         .weight_grad = weight_grad,
                                         .rms_norm = rms_norm,
                                         .rms_norm_backward = rms_norm_backward,
                                         .rms_partial = rms_partial,
                                         .rms_stat = rms_stat,
                                         .rms_apply = rms_apply,
                                         .rms_dot = rms_dot,
                                         .rms_coef = rms_coef,
                                         .rms_backward = rms_backward,
                                         .latent_forward = latent_forward,
                                         .latent_act = latent_act,
                                         .latent_backward = latent_backward,
                                         .rope = rope,
                                         .attention_forward = attention_forward,
                                         .attention_backward = attention_backward,
                                         .swiglu_forward = swiglu_forward,
                                         .swiglu_backward = swiglu_backward,
                                         .gemm_swiglu_forward = gemm_swiglu_forward,
                                         .gemm_swiglu_backward = gemm_swiglu_backward,
                                         .add = add,
                                         .bias_forward = bias_forward,
                                         .bias_backward = bias_backward,
                                         .embed_forward = embed_forward,
                                         .embed_backward = embed_backward,
                                         .ce_stats = ce_stats,
                                         .ce_grad = ce_grad,
                                         .cols_join = cols_join,
                                         .cols_split = cols_split,
                                         .sum_tree = sum_tree,
                                         .convert = convert,
                                         .sumsq = sumsq,
                                         .clip = clip,
                                         .adamw = adamw};
