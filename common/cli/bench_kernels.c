/* The operations that move memory rather than multiply, beside a plain copy of the same machine. */
#include "common/base/log.h"
#include "common/cli/bench.h"

#include <stdlib.h>

enum { LAUNCHES = 16, SETS = 12 };

/* Operands of one launch are carved from the pool at `used`; launches take turns among sets of
 * them, so that a cache holds none of the next one's. */
struct pool {
    struct bench *b;
    struct bench_case *c;
    struct device *dev;
    char *memory;
    size_t size, used;
    double bytes; /* that the launch being described must move */
    int64_t tokens, width, ffn, latent, vocab, rows;
    enum dtype act, wide;
    struct sample_plan plan;
};

enum use { IN = 1, OUT = 1, BOTH = 2 };

/* An operand [rows, cols] that the launch reads, writes, or does both with. */
static struct tensor operand(struct pool *p, enum dtype dt, int64_t rows, int64_t cols,
                             enum use use)
{
    size_t bytes = (size_t)(rows * cols) * dtype_size(dt);
    struct tensor t = tensor_view(p->memory + p->used, dt, rows, cols);

    p->used += (bytes + 255) / 256 * 256;
    p->bytes += (double)use * (double)bytes;
    return rows == p->tokens ? tensor_grained(t, (int32_t)p->c->step.micro, 1) : t;
}

static struct tensor act(struct pool *p, int64_t cols, enum use use)
{
    return operand(p, p->act, p->tokens, cols, use);
}

static struct tensor column(struct pool *p, int64_t cols, enum use use)
{
    return operand(p, p->wide, p->tokens, cols, use);
}

static struct tensor row(struct pool *p, enum dtype dt, enum use use)
{
    return operand(p, dt, 1, p->width, use);
}

static struct norm norm_of(const struct pool *p)
{
    return (struct norm){.width = p->width, .eps = p->c->cfg.model.norm_eps};
}

/* ---- norms ---- */

static enum status rms_norm(struct pool *p)
{
    struct tensor x = act(p, p->width, IN), h = act(p, p->width, OUT);
    struct tensor gain = row(p, p->act, IN), s = column(p, 1, OUT);

    return op_rms_norm(p->dev, &h, &s, &x, &gain, norm_of(p));
}

static enum status rms_partial(struct pool *p)
{
    struct tensor x = act(p, p->width, IN), h = act(p, p->width, OUT);
    struct tensor gain = row(p, p->act, IN), s = column(p, 1, OUT);

    return op_rms_partial(p->dev, &h, &s, NULL, &x, &gain, norm_of(p));
}

static enum status rms_apply(struct pool *p)
{
    struct tensor x = act(p, p->width, IN), h = act(p, p->width, OUT);
    struct tensor gain = row(p, p->act, IN), s = column(p, 1, IN);

    return op_rms_apply(p->dev, &h, &x, &gain, &s, norm_of(p));
}

static struct rms_grad rms_grad(struct pool *p)
{
    return (struct rms_grad){.dx = act(p, p->width, BOTH),
                             .dgain = row(p, p->wide, OUT),
                             .t = act(p, p->width, IN),
                             .x = act(p, p->width, IN),
                             .gain = row(p, p->act, IN)};
}

static enum status rms_norm_backward(struct pool *p)
{
    struct rms_grad g = rms_grad(p);
    struct tensor s = column(p, 1, IN);

    return op_rms_norm_backward(p->dev, &g, &s, norm_of(p), &p->plan);
}

static enum status rms_backward(struct pool *p)
{
    struct rms_grad g = rms_grad(p);
    struct tensor coef = column(p, 2, IN);

    return op_rms_backward(p->dev, &g, &coef, &p->plan);
}

/* ---- the bottleneck ---- */

static struct latent latent_of(const struct pool *p)
{
    return (struct latent){.act = ACT_SILU, .norm = norm_of(p)};
}

static enum status latent_forward(struct pool *p)
{
    struct tensor zsum = act(p, p->latent, IN), z = act(p, p->latent, OUT);
    struct tensor a = act(p, p->latent, OUT), s = column(p, 1, IN);

    return op_latent_forward(p->dev, &z, &a, &zsum, &s, latent_of(p));
}

static enum status latent_act(struct pool *p)
{
    struct tensor z = act(p, p->latent, IN), a = act(p, p->latent, OUT);

    return op_latent_act(p->dev, &a, &z, latent_of(p));
}

static enum status latent_backward(struct pool *p)
{
    struct tensor da = act(p, p->latent, IN), z = act(p, p->latent, IN);
    struct tensor u = act(p, p->latent, OUT), coef = column(p, 2, OUT), s = column(p, 1, IN);

    return op_latent_backward(p->dev, &u, &coef, &da, &z, &s, latent_of(p));
}

/* ---- attention's and the feed-forward's ---- */

static enum status rope(struct pool *p)
{
    int64_t head_dim = p->c->step.model.shape.head_dim;
    struct tensor x = act(p, p->width, BOTH);
    struct tensor table = operand(p, p->wide, p->c->cfg.train.seq, head_dim, IN);
    struct rope turn = {.seq = p->c->cfg.train.seq, .head_dim = head_dim};

    return op_rope(p->dev, &x, &table, turn);
}

static enum status swiglu_forward(struct pool *p)
{
    struct tensor g = act(p, p->ffn, IN), u = act(p, p->ffn, IN), f = act(p, p->ffn, OUT);

    return op_swiglu_forward(p->dev, &f, &g, &u, SWIGLU_SILU);
}

static enum status swiglu_backward(struct pool *p)
{
    struct swiglu_grad d = {.dg = act(p, p->ffn, OUT),
                            .du = act(p, p->ffn, OUT),
                            .df = act(p, p->ffn, IN),
                            .g = act(p, p->ffn, IN),
                            .u = act(p, p->ffn, IN)};

    return op_swiglu_backward(p->dev, &d, SWIGLU_SILU);
}

static enum status add(struct pool *p)
{
    struct tensor a = act(p, p->width, IN), b = act(p, p->width, IN), y = act(p, p->width, OUT);

    return op_add(p->dev, &y, &a, &b);
}

/* ---- both ends ---- */

/* The step's own tokens, of its first micro-batch. */
static struct tensor ids(const struct pool *p, const struct tensor *of)
{
    return tensor_rows(of, 0, p->tokens, (int32_t)p->c->step.micro);
}

static enum status embed_forward(struct pool *p)
{
    struct tensor tokens = ids(p, &p->c->step.tokens),
                  y = act(p, p->width, BOTH); /* and w's rows */
    double counted = p->bytes;
    struct tensor w = operand(p, p->act, p->vocab, p->width, IN);

    p->bytes = counted;
    return op_embed_forward(p->dev, &y, &w, &tokens, 0);
}

static enum status embed_backward(struct pool *p)
{
    struct tensor tokens = ids(p, &p->c->step.tokens), dy = act(p, p->width, IN);
    struct tensor dw = operand(p, p->wide, p->vocab, p->width, OUT);

    return op_embed_backward(p->dev, &dw, &dy, &tokens, 0, &p->plan);
}

static struct vocab_cut whole(const struct pool *p)
{
    return (struct vocab_cut){.valid = p->vocab};
}

static enum status ce_stats(struct pool *p)
{
    struct tensor targets = ids(p, &p->c->step.targets), logits = act(p, p->vocab, IN);
    struct tensor st = column(p, 3, OUT);

    return op_ce_stats(p->dev, &st, &logits, &targets, whole(p));
}

static enum status ce_grad(struct pool *p)
{
    struct tensor targets = ids(p, &p->c->step.targets), logits = act(p, p->vocab, BOTH);
    struct tensor st = column(p, 3, IN), loss = column(p, 1, OUT);

    return op_ce_grad(p->dev, &loss, &logits, &st, &targets, whole(p), 1e-4);
}

/* ---- the optimiser's, on the step's own weights and moments ---- */

static enum status adamw(struct pool *p)
{
    struct optimizer *o = &p->c->step.optimizer;

    for (int i = 0; i < o->items; i++) {
        const struct adamw_item *a = &o->item[i];
        size_t wide = dtype_size(a->m.dtype), moments = 4 * wide + dtype_size(a->g.dtype);
        size_t weights =
            a->master.data ? 2 * wide + dtype_size(a->w.dtype) : 2 * dtype_size(a->w.dtype);

        p->bytes += (double)tensor_count(&a->w) * (double)(moments + weights);
    }
    return optimizer_update(o, p->dev, 1, 1e-6);
}

static enum status sumsq(struct pool *p)
{
    struct optimizer *o = &p->c->step.optimizer;

    for (int i = 0; i < o->items; i++)
        p->bytes += (double)tensor_count(&o->item[i].g) * (double)dtype_size(o->item[i].g.dtype);
    return optimizer_norm(o, p->dev, 1.0);
}

/* ---- times ---- */

static enum status copy(struct pool *p)
{
    struct tensor x = act(p, p->ffn, IN), y = act(p, p->ffn, OUT);

    return device_copy(p->dev, y.data, x.data, (size_t)tensor_count(&x) * dtype_size(x.dtype));
}

/* Seconds of one of LAUNCHES launches, which take turns among `sets` of operands. */
static enum status time_round(struct pool *p, enum status (*run)(struct pool *p), int sets,
                              size_t step, double *seconds)
{
    double start;

    TRY(device_sync(p->dev));
    start = bench_now();
    for (int i = 0; i < LAUNCHES; i++) {
        p->used = (size_t)(i % sets) * step;
        TRY(run(p));
    }
    TRY(device_sync(p->dev));
    *seconds = (bench_now() - start) / LAUNCHES;
    return ST_OK;
}

/* Median seconds of one launch of run, and the bytes that it must move. */
static enum status time_kernel(struct pool *p, enum status (*run)(struct pool *p), double *seconds)
{
    double times[BENCH_ROUNDS], bytes;
    size_t step;
    int sets;

    p->used = 0;
    p->bytes = 0.0;
    TRY(run(p)); /* warms up, and tells its size */
    bytes = p->bytes;
    step = p->used ? p->used : 1;
    sets = p->size / step > SETS ? SETS : (int)(p->size / step);
    for (int round = 0; round < p->b->rounds; round++)
        TRY(time_round(p, run, sets, step, &times[round]));
    *seconds = bench_median(times, p->b->rounds);
    p->bytes = bytes;
    return ST_OK;
}

static const struct {
    const char *name;
    enum status (*run)(struct pool *p);
} kernels[] = {{"copy", copy},
               {"rms_norm", rms_norm},
               {"rms_norm_backward", rms_norm_backward},
               {"rms_partial", rms_partial},
               {"rms_apply", rms_apply},
               {"rms_backward", rms_backward},
               {"latent_forward", latent_forward},
               {"latent_act", latent_act},
               {"latent_backward", latent_backward},
               {"rope", rope},
               {"swiglu_forward", swiglu_forward},
               {"swiglu_backward", swiglu_backward},
               {"add", add},
               {"embed_forward", embed_forward},
               {"embed_backward", embed_backward},
               {"ce_stats", ce_stats},
               {"ce_grad", ce_grad},
               {"sumsq, clip", sumsq},
               {"adamw", adamw}};

static enum status table(struct pool *p)
{
    double rate = 0.0;

    log_info("  %-18s %10s %10s %10s %9s", "operation", "MB", "ms", "GB/s", "of copy");
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        double seconds = 0.0;

        TRY(time_kernel(p, kernels[i].run, &seconds));
        rate = i == 0 ? p->bytes / seconds : rate;
        log_info("  %-18s %10.2f %10.4f %10.1f %8.1f%%", kernels[i].name, 1e-6 * p->bytes,
                 1e3 * seconds, 1e-9 * p->bytes / seconds, 100.0 * p->bytes / seconds / rate);
    }
    log_info("  MB: what must be read and written, each once");
    return ST_OK;
}

static enum status prepare(struct pool *p)
{
    struct step *s = &p->c->step;
    struct step_result r;
    struct sample_tree tree;
    int64_t widest = 5 * p->ffn > p->vocab ? 5 * p->ffn : p->vocab;

    TRY(step_train(s, p->c->tokens, p->c->targets, p->c->cfg.train.batch * p->c->cfg.train.seq, 1,
                   1e-6, &r)); /* gradients and moments are real ones */
    sample_tree_start(&tree, s->begin, s->begin + s->micro, p->c->cfg.parallel.layout_exact);
    sample_plan_next(&p->plan, &tree, s->micro);
    p->plan.plane = 0;
    p->size = (size_t)(p->tokens * (widest + 8)) * dtype_size(p->act) * 2 +
              (size_t)(p->vocab * p->width) * (dtype_size(p->wide) + dtype_size(p->act)) + 65536;
    TRY(device_alloc(p->dev, (void **)&p->memory, p->size));
    return place_fill_random(p->dev, p->memory, p->act, p->size);
}

enum status bench_kernels(struct bench *b)
{
    struct bench_case *c = &b->item[0];
    const struct config_model *m = &c->cfg.model;
    int64_t tp = c->cfg.parallel.tp;
    struct pool p = {.b = b,
                     .c = c,
                     .dev = c->place.at.dev,
                     .tokens = c->step.micro * c->cfg.train.seq,
                     .width = m->width / tp,
                     .ffn = m->ffn / tp,
                     .latent = 3 * (m->rank ? m->rank : m->width / 4),
                     .vocab = m->vocab / tp,
                     .act = c->step.model.params.work,
                     .wide = c->place.at.dev->wide};
    enum status st = prepare(&p);

    if (st == ST_OK)
        st = table(&p);
    if (p.memory)
        device_release(p.dev, p.memory);
    return st;
}
