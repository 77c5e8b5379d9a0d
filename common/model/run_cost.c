/* What a run of blocks costs, from the configuration alone. */
#include "common/model/runs.h"

#include "common/tensor/sample_plan.h"

#include <stdlib.h>

/* Elements of a block's weights, of the whole model. */
static double block_weights(const struct config *cfg)
{
    const struct config_model *m = &cfg->model;
    int64_t head_dim = m->width / m->heads;
    double d = (double)m->width, k = (double)(m->kv_heads * head_dim);
    double f = (double)m->ffn, r = (double)m->rank;

    if (!config_low_rank(cfg))
        return 2 * d * d + 2 * d * k + 3 * d * f;
    return r * (4 * d + 2 * (d + k) + 3 * (d + f));
}

static double vocab_weights(const struct config *cfg)
{
    return (double)config_vocab_padded(cfg) * (double)cfg->model.width;
}

/* Bytes of a value in each role (params_types). */
struct widths {
    double wide, work, master, moments;
};

static struct widths widths_of(const struct config *cfg)
{
    int bf16 = cfg->train.precision == PRECISION_BF16, pure = bf16 && cfg->train.pure_bf16;
    double wide = cfg->train.precision == PRECISION_FP64 ? 8 : 4;

    return (struct widths){.wide = wide,
                           .work = bf16 ? 2 : wide,
                           .master = bf16 && !pure ? wide : 0,
                           .moments = 2 * (pure ? 2 : wide)};
}

/* Bytes of all slots of a gradient (sample_plan.h) to which `samples` are added at once. */
static double gradient_bytes(const struct config *cfg, int64_t samples)
{
    return widths_of(cfg).wide * sample_slots(0, cfg->train.batch / cfg->parallel.dp, samples,
                                              cfg->parallel.layout_exact);
}

/* Bytes of a weight on the rank that holds it: itself, its gradients, master and moments. */
static double weight_bytes(const struct config *cfg)
{
    const struct config_parallel *p = &cfg->parallel;
    struct widths w = widths_of(cfg);
    double gradient = gradient_bytes(cfg, cfg->train.micro_batch);

    if (!p->zero || p->dp == 1)
        return w.work + gradient + w.master + w.moments;
    return w.work + gradient + (w.wide + w.master + w.moments) / (double)p->dp;
}

/* What ZeRO-1 packs for the road: a bucket of gradients, and of weights with this rank's share. It
 * is in whole layers; a stage that is smaller than a bucket is one. */
static void add_bucket(struct run_cost *c, const struct config *cfg, double block, double ends)
{
    const struct config_parallel *p = &cfg->parallel;
    struct widths w = widths_of(cfg);
    double each = w.wide + w.work * (1 + 1 / (double)p->dp);
    double stage = block * (double)cfg->model.layers / (double)p->pp + ends;
    double bucket = (double)p->bucket * 1048576.0 / w.wide + (ends > block ? ends : block);

    if (!p->zero || p->dp == 1)
        return;
    if (bucket < stage) {
        c->bytes_else += bucket * each / (double)p->virtual_stages;
        return;
    }
    c->bytes += block * each;
    c->bytes_else += ends * each;
}

/* Columns of a block's activations on one rank, for a token (stage_carve.c): a stream, the latents,
 * and the rest, which recomputation makes again. */
struct columns {
    double stream, latents, rest;
    double again; /* what recompute: none keeps and others make again: normalised inputs, act(z) */
    double late;  /* temporaries of backward that have no counterpart in these */
};

static struct columns columns_of(const struct config *cfg)
{
    const struct config_model *m = &cfg->model;
    const struct config_parallel *p = &cfg->parallel;
    double tp = (double)p->tp, d = (double)m->width, f = (double)m->ffn, r = (double)m->rank;
    double heads = (double)m->heads, k = d / heads * (double)m->kv_heads;
    int vanilla = p->strategy == STRATEGY_VANILLA;
    int cut = !vanilla || p->vanilla == VANILLA_STRONG; /* heads */
    double stream = p->strategy == STRATEGY_BTP ? d / tp : d;
    double whole = vanilla && cut && tp > 1 ? d : 0; /* heads, gathered for the output's A */
    double latents = 7 * r / (vanilla ? tp : 1);
    int act = m->layer == LAYER_COLA, local = p->norm == NORM_ONLINE_LOCAL;
    struct widths w = widths_of(cfg);

    return (struct columns){.stream = stream,
                            .latents = latents + 2 * w.wide / w.work,
                            .rest = (2 * d + 2 * k + heads * w.wide / w.work) / (cut ? tp : 1) +
                                    stream + 3 * (vanilla ? f : f / tp) + whole,
                            .again = (local ? 0 : 2 * stream) + (act ? latents : 0),
                            .late = vanilla ? f + (cut ? 5 * d + d / tp : 0) : 0};
}

/* Columns that a micro-batch leaves in each block, and in a run beside them. With ZB-H1 the
 * temporaries of backward stay until the weight gradients have run. */
static void kept_columns(double *block, double *run, const struct config *cfg)
{
    struct columns c = columns_of(cfg);

    *block = *run = c.stream;
    switch (cfg->parallel.recompute) {
    case RECOMPUTE_BLOCK:
        *run += c.latents + c.rest;
        break;
    case RECOMPUTE_BOTTLENECK:
        *block += c.latents;
        *run += c.rest;
        break;
    case RECOMPUTE_NONE:
        *block += c.latents + c.rest + c.again;
        break;
    default:
        *block += c.latents + c.rest;
    }
    if (cfg->parallel.schedule == PIPELINE_ZB_H1)
        *block += c.rest + 2 * c.latents + 5 * c.stream + c.late -
                  (cfg->parallel.recompute == RECOMPUTE_NONE ? c.again : 0);
}

enum schedule_order runs_order(const struct config *cfg)
{
    static const enum schedule_order orders[] = {[PIPELINE_GPIPE] = ORDER_GPIPE,
                                                 [PIPELINE_1F1B] = ORDER_1F1B,
                                                 [PIPELINE_INTERLEAVED] = ORDER_INTERLEAVED,
                                                 [PIPELINE_ZB_H1] = ORDER_ZB_H1};

    return orders[cfg->parallel.schedule];
}

/* live[runs]: micro-batches whose activations each run has room for. */
static enum status count_live(int *live, const struct config *cfg, int runs)
{
    const struct config_parallel *p = &cfg->parallel;
    int micros = (int)(cfg->train.batch / p->dp / cfg->train.micro_batch);
    struct schedule_shape s = {.order = runs_order(cfg),
                               .stages = (int)p->pp,
                               .chunks = (int)p->virtual_stages,
                               .micro_batches = micros};

    for (; s.stage < s.stages; s.stage++) {
        struct schedule list;

        TRY(schedule_open(&list, &s));
        for (int k = s.stage; k < runs; k += s.stages)
            live[k] = list.slots[k / s.stages];
        schedule_close(&list);
    }
    return ST_OK;
}

/* Elements of a chunk's logits, their input and its gradient, beyond the temporaries of a block,
 * which are given back before. */
static double head_elements(const struct config *cfg)
{
    double d = (double)cfg->model.width, tp = (double)cfg->parallel.tp;
    int gathers = cfg->parallel.strategy == STRATEGY_BTP && tp > 1;
    double columns = (double)config_vocab_padded(cfg) / tp + (gathers ? 5 : 2) * d;
    double head = columns * (double)(config_head_chunk(cfg) * cfg->train.seq);
    double block = cfg->parallel.schedule == PIPELINE_ZB_H1 ? 0 : columns_of(cfg).rest;

    block *= (double)(cfg->train.micro_batch * cfg->train.seq);
    return head > block ? head - block : 0;
}

/* Bytes of the head's gradient that weight_bytes does not have: its slots are as many as chunks
 * want; a tied matrix has it beside that of the look-up, on the first stage one slot of it. */
static double head_gradient(const struct config *cfg, int last)
{
    double slots = gradient_bytes(cfg, config_head_chunk(cfg));

    if (cfg->model.tied)
        return last ? slots : widths_of(cfg).wide;
    return last ? slots - gradient_bytes(cfg, cfg->train.micro_batch) : 0;
}

static struct run_cost cost_of(const struct config *cfg, int k, int runs, int live)
{
    double d = (double)cfg->model.width, block = block_weights(cfg), vocab = vocab_weights(cfg);
    double tokens = (double)(cfg->train.micro_batch * cfg->train.seq);
    double tp = (double)cfg->parallel.tp, held = weight_bytes(cfg), in_block, in_run;
    int first = k == 0, last = k == runs - 1, both = first && last && !cfg->model.tied;
    double ends = (first || last) * (1 + both) * vocab / tp;
    struct run_cost c = {.stage = k % (int)cfg->parallel.pp};
    struct widths w = widths_of(cfg);

    kept_columns(&in_block, &in_run, cfg);
    c.flops = 2 * block + 2 * d * (double)(cfg->train.seq + 1);
    c.flops_else = last ? 2 * vocab : 0;
    c.bytes = held * block / tp + live * tokens * in_block * w.work;
    c.bytes_else = held * ends + live * tokens * in_run * w.work;
    if (first || last)
        c.bytes_else += head_gradient(cfg, last) * vocab / tp;
    if (last)
        c.bytes_else += head_elements(cfg) * w.work;
    add_bucket(&c, cfg, block / tp, ends);
    return c;
}

enum status run_costs(struct run_cost *cost, const struct config *cfg, int runs)
{
    int *live = calloc((size_t)runs, sizeof *live);
    enum status st = live ? count_live(live, cfg, runs)
                          : fail(ST_ENOMEM, "no memory for the costs of %d runs", runs);

    for (int k = 0; st == ST_OK && k < runs; k++)
        cost[k] = cost_of(cfg, k, runs, live[k]);
    free(live);
    return st;
}
