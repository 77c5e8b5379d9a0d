#include "common/model/config.h"

#include "common/model/presets.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int config_low_rank(const struct config *cfg)
{
    return cfg->model.layer != LAYER_FULL;
}

static int64_t round_up(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}

static int64_t at_least_one(int64_t n)
{
    return n > 1 ? n : 1;
}

static void resolve_model(struct config_model *m)
{
    int low_rank = m->layer != LAYER_FULL;

    if (!m->kv_heads)
        m->kv_heads = m->heads;
    if (!m->ffn)
        m->ffn = round_up((8 * m->width + 2) / 3, 64);
    if (!low_rank)
        m->rank = 0;
    else if (!m->rank)
        m->rank = at_least_one(m->width / 4);
    if (m->outer_silu == SILU_AUTO)
        m->outer_silu = m->layer == LAYER_COLA ? SILU_OFF : SILU_ON;
    if (m->init == INIT_AUTO)
        m->init = low_rank ? INIT_COLA : INIT_STANDARD;
}

static enum status resolve_vocab(struct config *cfg, int64_t vocab)
{
    if (!cfg->model.vocab)
        cfg->model.vocab = vocab;
    if (cfg->model.vocab < vocab)
        return fail(ST_ECONFIG,
                    "model.vocab %" PRId64 " is less than the %" PRId64 " tokens of data.tokenizer "
                    "%s: set model.vocab=0 to take the tokenizer's",
                    cfg->model.vocab, vocab, cfg->data.tokenizer);
    return ST_OK;
}

/* The largest power of two up to 8 that divides what a layout may cut. Without layout_exact a rank
 * is one grain, so that any tp that divides the sizes will do; a number that was asked for gives
 * way to it, too, where tp does not divide that. */
static int64_t auto_grains(const struct config *cfg)
{
    const struct config_model *m = &cfg->model;
    int64_t cut_rank = cfg->parallel.strategy == STRATEGY_VANILLA ? m->rank : 0;
    int64_t g = 8;

    if (!cfg->parallel.layout_exact)
        return cfg->parallel.tp;
    while (m->width % g || m->heads % g || m->kv_heads % g || m->ffn % g || cut_rank % g)
        g /= 2;
    return g;
}

static void resolve_parallel(struct config *cfg, int64_t ranks)
{
    struct config_parallel *p = &cfg->parallel;
    int bf16 = cfg->run.backend == BACKEND_GPU && cfg->train.precision == PRECISION_BF16;

    if (!p->dp)
        p->dp = at_least_one(ranks / (p->tp * p->pp));
    if (p->strategy == STRATEGY_AUTO)
        p->strategy = config_low_rank(cfg) ? STRATEGY_BTP : STRATEGY_FULL;
    if (p->tp_payload == PAYLOAD_AUTO)
        p->tp_payload = bf16 ? PAYLOAD_BF16 : PAYLOAD_FP32;
    if (!p->grains || (!p->layout_exact && p->grains % p->tp))
        p->grains = auto_grains(cfg);
}

/* The whole share; in a pipeline the largest part of it that gives every stage four. */
static int64_t auto_micro_batch(int64_t share, int64_t stages)
{
    int64_t parts = stages > 1 ? 4 * stages : 1;

    while (parts < share && share % parts)
        parts++;
    return at_least_one(share / parts);
}

static void resolve_train(struct config_train *t, int64_t dp, int64_t pp)
{
    if (!t->micro_batch)
        t->micro_batch = auto_micro_batch(at_least_one(t->batch / dp), pp);
    if (t->warmup < 0)
        t->warmup = t->steps / 10;
    if (!t->decay && t->schedule == SCHEDULE_WSD)
        t->decay = at_least_one(t->steps / 5);
}

/* A GPU works on while the host does not ask; lines of the log come when they are due. */
static void resolve_reading(struct config *cfg)
{
    int64_t most = cfg->train.log_every < 16 ? cfg->train.log_every : 16;

    if (!cfg->train.read_every)
        cfg->train.read_every = cfg->run.backend == BACKEND_GPU ? most : 1;
}

enum status config_resolve(struct config *cfg, int64_t ranks, int64_t vocab)
{
    TRY(preset_apply(cfg));
    resolve_model(&cfg->model);
    TRY(resolve_vocab(cfg, vocab));
    resolve_parallel(cfg, ranks);
    resolve_train(&cfg->train, cfg->parallel.dp, cfg->parallel.pp);
    resolve_reading(cfg);
    if (!cfg->run.dir[0])
        snprintf(cfg->run.dir, sizeof cfg->run.dir, "runs/%s", cfg->name[0] ? cfg->name : "run");
    return ST_OK;
}

void config_one_rank(struct config *cfg)
{
    struct config_parallel *p = &cfg->parallel;

    p->tp = p->pp = p->dp = p->virtual_stages = 1;
    p->zero = p->stage_memory = 0;
    p->schedule = PIPELINE_1F1B;
    p->stage_layers[0] = '\0';
    if (!p->layout_exact)
        p->grains = 0; /* a rank is one grain */
}

void config_on_ref(struct config *cfg)
{
    cfg->run.backend = BACKEND_REF;
    cfg->run.graph = false;
    cfg->run.deterministic = true;
}

static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t x = a, y = b;

    while (y) {
        int64_t rest = x % y;

        x = y;
        y = rest;
    }
    return a / x * b;
}

int64_t config_vocab_padded(const struct config *cfg)
{
    return round_up(cfg->model.vocab, common_multiple(64, at_least_one(cfg->parallel.grains)));
}

enum { HEAD_BYTES = 512 << 20 }; /* of logits: with more at once products are no faster */

/* Bytes of a sequence's logits on a rank, in the type of activations. */
static int64_t sequence_logits(const struct config *cfg)
{
    static const int value[] = {[PRECISION_FP32] = 4, [PRECISION_BF16] = 2, [PRECISION_FP64] = 8};

    return cfg->train.seq * (config_vocab_padded(cfg) / cfg->parallel.tp) *
           value[cfg->train.precision];
}

int64_t config_head_chunk(const struct config *cfg)
{
    const struct config_train *t = &cfg->train;
    int64_t share = t->batch / at_least_one(cfg->parallel.dp);
    int64_t micro = at_least_one(t->micro_batch ? t->micro_batch : share);
    int64_t chunk = t->head_chunk ? t->head_chunk : at_least_one(HEAD_BYTES / sequence_logits(cfg));

    return chunk < micro ? chunk : micro;
}

int64_t config_head_bytes(const struct config *cfg)
{
    return config_head_chunk(cfg) * sequence_logits(cfg);
}
