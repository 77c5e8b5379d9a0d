#include "common/base/log.h"
#include "common/cli/bench.h"

#include <stdio.h>

/* Operands for one product at a time, in a block of device memory of their own. */
struct operands {
    struct device *dev;
    void *memory;
    size_t used, size;
};

static struct tensor carve(struct operands *o, enum dtype dt, int64_t rows, int64_t cols)
{
    struct tensor t = tensor_view((char *)o->memory + o->used, dt, rows, cols);

    o->used += ((size_t)(rows * cols) * dtype_size(dt) + 255) / 256 * 256;
    return t;
}

/* One row of the table: a projection [out, in] of this rank on M tokens. */
struct shape {
    const char *name;
    int64_t in, out;
    int32_t in_grains, out_grains;
};

enum product { FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, PRODUCTS };

static enum status run_product(struct bench_case *c, struct operands *o, const struct shape *s,
                               enum product which)
{
    struct step *st = &c->step;
    int64_t m = st->micro * c->cfg.train.seq;
    enum dtype act = st->model.params.work, wide = c->place.at.dev->wide;
    int32_t samples = (int32_t)st->micro;
    struct sample_tree tree;
    struct sample_plan plan;

    o->used = 0;

    struct tensor x = tensor_grained(carve(o, act, m, s->in), samples, s->in_grains);
    struct tensor y = tensor_grained(carve(o, act, m, s->out), samples, s->out_grains);
    struct tensor w = tensor_grained(carve(o, act, s->out, s->in), s->out_grains, s->in_grains);
    struct tensor dw = tensor_grained(carve(o, wide, s->out, s->in), s->out_grains, s->in_grains);
    struct gemm g = {.y = y, .a = x, .b = w, .kind = GEMM_NT};
    struct weight_grad grad = {.dw = dw, .dy = y, .x = x};

    if (which == INPUT_GRADIENT)
        g = (struct gemm){.y = x, .a = y, .b = w, .kind = GEMM_NN};
    if (which != WEIGHT_GRADIENT)
        return op_gemm(o->dev, &g, 1);
    sample_tree_start(&tree, st->begin, st->begin + st->micro, c->cfg.parallel.layout_exact);
    plan.plane = 0;
    sample_plan_next(&plan, &tree, st->micro);
    return op_weight_grad(o->dev, &grad, 1, &plan);
}

static enum status time_product(struct bench *b, struct bench_case *c, struct operands *o,
                                const struct shape *s, enum product which)
{
    int64_t m = c->step.micro * c->cfg.train.seq;
    double flops = 2.0 * (double)m * (double)s->in * (double)s->out, best;
    static const char *const names[PRODUCTS] = {"forward", "dgrad", "wgrad"};

    TRY(run_product(c, o, s, which));
    for (int i = 0; i < b->rounds; i++) {
        double start;

        TRY(device_sync(o->dev));
        start = bench_now();
        TRY(run_product(c, o, s, which));
        TRY(device_sync(o->dev));
        c->seconds[i] = bench_now() - start;
    }
    best = bench_median(c->seconds, b->rounds);
    log_info("  %-12s %-8s %7lld x %6lld x %6lld %10.3f ms %10.1f GFLOP/s %6.1f%%", s->name,
             names[which], (long long)m, (long long)s->out, (long long)s->in, 1e3 * best,
             1e-9 * flops / best, 100.0 * flops / best / c->place.peak * host_size(b->job));
    return ST_OK;
}

/* The projections of a block and the head, as this rank computes them. */
static int list_shapes(const struct bench_case *c, struct shape s[8])
{
    const struct model *m = &c->step.model;
    const struct block *b = &m->blocks[0];
    const struct tensor *t[] = {&b->qkv.a[0],     &b->qkv.b[0],     &b->wo.a[0],   &b->wo.b[0],
                                &b->gate_up.a[0], &b->gate_up.b[0], &b->down.a[0], &b->down.b[0]};
    static const char *const names[] = {"q A",    "q B",    "o A",    "o B",
                                        "gate A", "gate B", "down A", "down B"};
    int n = 0;

    for (int i = 0; i < 8; i++)
        if (t[i]->data)
            s[n++] = (struct shape){names[i], t[i]->cols, t[i]->rows, t[i]->col_grains,
                                    t[i]->row_grains};
    return n;
}

enum status bench_products(struct bench *b)
{
    struct bench_case *c = &b->item[0];
    const struct tensor *h = &c->step.model.ends.head;
    struct shape shapes[9];
    int n = list_shapes(c, shapes);
    int64_t m = c->step.micro * c->cfg.train.seq, widest = c->cfg.model.width + h->rows;
    struct operands o = {.dev = c->place.at.dev};
    enum status st = ST_OK;

    shapes[n++] = (struct shape){"head", h->cols, h->rows, 1, h->row_grains};
    for (int i = 0; i < n; i++) {
        int64_t w = shapes[i].in + shapes[i].out;

        widest = w > widest ? w : widest;
    }
    o.size = (size_t)(2 * m * widest + 3 * widest * widest) * 8 + 4096;
    TRY(device_alloc(o.dev, &o.memory, o.size));
    st = place_fill_random(o.dev, o.memory, c->step.model.params.work, o.size);
    for (int i = 0; st == ST_OK && i < n; i++)
        for (int k = 0; st == ST_OK && k < PRODUCTS; k++)
            st = time_product(b, c, &o, &shapes[i], (enum product)k);
    device_release(o.dev, o.memory);
    return st;
}

/* ---- attention ---- */

static enum status attention_memory(struct bench_case *c, struct operands *o, struct attention *at,
                                    struct attention *dat)
{
    const struct model_shape *sh = &c->step.model.shape;
    enum dtype act = c->step.model.params.work;
    int64_t m = c->step.micro * c->cfg.train.seq;
    int64_t q = sh->heads_l * sh->head_dim, k = sh->kv_heads_l * sh->head_dim;

    o->size = (size_t)(m * (4 * q + 4 * k + sh->heads_l)) * 8 + 16 * 256;
    TRY(device_alloc(o->dev, &o->memory, o->size));
    TRY(place_fill_random(o->dev, o->memory, act, o->size));
    *at = (struct attention){.batch = c->step.micro,
                             .seq = c->cfg.train.seq,
                             .kv_rows = c->cfg.train.seq,
                             .heads = sh->heads_l,
                             .kv_heads = sh->kv_heads_l,
                             .head_dim = sh->head_dim};
    at->lse = carve(o, c->place.at.dev->wide, m, sh->heads_l);
    *dat = *at;
    for (int i = 0; i < 2; i++) {
        struct attention *a = i ? dat : at;

        a->q = carve(o, act, m, q);
        a->o = carve(o, act, m, q);
        a->k = carve(o, act, m, k);
        a->v = carve(o, act, m, k);
    }
    return ST_OK;
}

/* Median seconds of attention's forward or backward. */
static enum status median_attention(struct bench *b, struct bench_case *c, struct attention *at,
                                    struct attention *dat, double *median)
{
    struct device *dev = c->place.at.dev;
    int backward = dat != NULL;

    for (int i = -1; i < b->rounds; i++) { /* one round warms up */
        double start;

        TRY(device_sync(dev));
        start = bench_now();
        TRY(backward ? op_attention_backward(dev, at, dat) : op_attention_forward(dev, at));
        TRY(device_sync(dev));
        if (i >= 0)
            c->seconds[i] = bench_now() - start;
    }
    *median = bench_median(c->seconds, b->rounds);
    return ST_OK;
}

/* dat: the backward's; NULL times the forward. */
static enum status time_attention(struct bench *b, struct bench_case *c, struct attention *at,
                                  struct attention *dat)
{
    double pairs = 0.5 * (double)at->seq * (double)(at->seq + 1);
    double flops = 4.0 * pairs * (double)(at->batch * at->heads * at->head_dim), t = 0.0;

    TRY(median_attention(b, c, at, dat, &t));
    log_info("  attention %-8s batch %lld seq %lld heads %lld/%lld x %lld %10.3f ms %10.1f "
             "GFLOP/s (causal, counted by half)",
             dat ? "backward" : "forward", (long long)at->batch, (long long)at->seq,
             (long long)at->heads, (long long)at->kv_heads, (long long)at->head_dim, 1e3 * t,
             1e-9 * flops * (dat ? 2.5 : 1.0) / t);
    return ST_OK;
}

enum status bench_attention(struct bench *b)
{
    struct bench_case *c = &b->item[0];
    struct operands o = {.dev = c->place.at.dev};
    struct attention at, dat;
    enum status st = attention_memory(c, &o, &at, &dat);

    if (st == ST_OK)
        st = time_attention(b, c, &at, NULL);
    if (st == ST_OK)
        st = time_attention(b, c, &at, &dat);
    if (o.memory)
        device_release(o.dev, o.memory);
    return st;
}
