#include "common/model/config.h"

#include "common/base/text.h"
#include "common/model/config_layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define N PRId64

static enum status check_heads(const struct config_model *m)
{
    if (m->width % m->heads)
        return fail(ST_ECONFIG,
                    "model.width %" N " is not a multiple of model.heads %" N
                    ": set model.width=%" N,
                    m->width, m->heads, (m->width / m->heads + 1) * m->heads);
    if (m->width / m->heads % 2)
        return fail(ST_ECONFIG,
                    "a head has model.width %" N " / model.heads %" N " = %" N
                    " dimensions, an odd number: rotary embedding turns pairs of them, so "
                    "choose a width that is a multiple of %" N,
                    m->width, m->heads, m->width / m->heads, 2 * m->heads);
    if (m->kv_heads > m->heads || m->heads % m->kv_heads)
        return fail(ST_ECONFIG,
                    "model.kv_heads %" N " does not divide model.heads %" N
                    ": each head of keys serves the same number of heads; set model.kv_heads=0 "
                    "for as many as heads",
                    m->kv_heads, m->heads);
    return ST_OK;
}

static enum status check_kind(const struct config *cfg)
{
    const struct config_model *m = &cfg->model;
    const struct config_parallel *p = &cfg->parallel;
    const char *layer = config_choice_name("model.layer", m->layer);
    const char *strategy = config_choice_name("parallel.strategy", p->strategy);

    if (config_low_rank(cfg) && m->rank >= m->width)
        return fail(ST_ECONFIG,
                    "model.rank %" N " is not below model.width %" N
                    ": a %s layer needs a bottleneck; set model.rank=0 for width / 4, or "
                    "model.layer=full",
                    m->rank, m->width, layer);
    if (!config_low_rank(cfg) && p->strategy != STRATEGY_FULL)
        return fail(ST_ECONFIG,
                    "parallel.strategy %s cuts low-rank layers, but model.layer is full: set "
                    "parallel.strategy=full, or model.layer=cola",
                    strategy);
    if (config_low_rank(cfg) && p->strategy == STRATEGY_FULL)
        return fail(ST_ECONFIG,
                    "parallel.strategy full cuts full-rank layers, but model.layer is %s: set "
                    "parallel.strategy=btp or vanilla, or model.layer=full",
                    layer);
    if (p->recompute == RECOMPUTE_BOTTLENECK && p->strategy != STRATEGY_BTP)
        return fail(ST_ECONFIG,
                    "parallel.recompute bottleneck needs parallel.strategy btp, not %s: set "
                    "parallel.recompute=block",
                    strategy);
    if (m->init == INIT_COLA && !config_low_rank(cfg))
        return fail(ST_ECONFIG, "model.init cola is for factors, but model.layer is full: set "
                                "model.init=auto");
    return ST_OK;
}

static enum status check_precision(const struct config *cfg)
{
    const char *precision = config_choice_name("train.precision", cfg->train.precision);

    if (cfg->train.precision == PRECISION_FP64 && cfg->run.backend != BACKEND_REF)
        return fail(ST_ECONFIG, "train.precision fp64 exists on run.backend ref only, not on gpu: "
                                "set run.backend=ref, or train.precision=fp32");
    if (cfg->train.pure_bf16 && cfg->train.precision != PRECISION_BF16)
        return fail(ST_ECONFIG,
                    "train.pure_bf16 is on, but train.precision is %s: set "
                    "train.precision=bf16, or train.pure_bf16=off",
                    precision);
    if (cfg->parallel.tp_payload == PAYLOAD_BF16 && cfg->train.precision == PRECISION_FP64)
        return fail(ST_ECONFIG, "parallel.tp_payload bf16 would undo train.precision fp64: set "
                                "parallel.tp_payload=auto");
    return ST_OK;
}

/* What one backend alone has. */
static enum status check_backend(const struct config *cfg)
{
    if (!cfg->run.deterministic && cfg->run.backend != BACKEND_GPU)
        return fail(ST_ECONFIG, "run.deterministic off is for a GPU, but run.backend is ref, which "
                                "always repeats: set run.deterministic=on, or run.backend=gpu");
    if (cfg->run.graph && cfg->run.backend != BACKEND_GPU)
        return fail(ST_ECONFIG, "run.graph on records the work of a GPU, but run.backend is ref: "
                                "set run.graph=off, or run.backend=gpu");
    if (!cfg->data.reset_documents)
        return ST_OK;
    if (!cfg->data.packing)
        return fail(ST_ECONFIG, "data.reset_documents on is for packed sequences, but data.packing "
                                "is off, where a sequence is one document: set "
                                "data.reset_documents=off");
    return ST_OK;
}

static enum status check_schedule(const struct config_train *t)
{
    int constant = t->schedule == SCHEDULE_CONSTANT, wsd = t->schedule == SCHEDULE_WSD;

    if (t->warmup > t->steps || (t->warmup == t->steps && !constant))
        return fail(ST_ECONFIG,
                    "train.warmup %" N " leaves nothing of train.steps %" N
                    ": set train.warmup=-1 for a tenth of the steps",
                    t->warmup, t->steps);
    if (wsd && t->decay > t->steps - t->warmup)
        return fail(ST_ECONFIG,
                    "train.warmup %" N " and train.decay %" N " exceed train.steps %" N
                    ": set train.decay=%" N " or less",
                    t->warmup, t->decay, t->steps, t->steps - t->warmup);
    return ST_OK;
}

static enum status check_shadow(const struct config *cfg)
{
    if (cfg->shadow.every && cfg->parallel.virtual_stages > 1)
        return fail(ST_ECONFIG,
                    "shadow.every %" N " replays a single micro-batch, which parallel.schedule "
                    "interleaved (parallel.virtual_stages %" N ") cannot send round: set "
                    "shadow.every=0, or another schedule",
                    cfg->shadow.every, cfg->parallel.virtual_stages);
    return ST_OK;
}

static enum status check_profile(const struct config_profile *p)
{
    if (p->last && p->last < p->first)
        return fail(ST_ECONFIG,
                    "profile.last %" N " is before profile.first %" N
                    ": set profile.last=0 for that "
                    "step alone",
                    p->last, p->first);
    if (p->last && !p->first)
        return fail(ST_ECONFIG, "profile.last %" N " needs profile.first: set profile.first=1",
                    p->last);
    return ST_OK;
}

static enum status check_checkpoint(const struct config_checkpoint *c)
{
    if (!c->stop_after[0] || text_seconds(c->stop_after) > 0.0)
        return ST_OK;
    return fail(ST_ECONFIG,
                "checkpoint.stop_after is '%s': write a time as 3h50m, 90s or 1d12h (whole numbers "
                "with d, h, m, s, in this order)",
                c->stop_after);
}

enum status config_validate(const struct config *cfg, int64_t ranks)
{
    TRY(check_heads(&cfg->model));
    TRY(check_kind(cfg));
    TRY(check_precision(cfg));
    TRY(check_backend(cfg));
    TRY(check_schedule(&cfg->train));
    TRY(check_checkpoint(&cfg->checkpoint));
    TRY(config_check_layout(cfg, ranks));
    TRY(check_shadow(cfg));
    return check_profile(&cfg->profile);
}

enum status config_need_data(const struct config *cfg)
{
    if (!cfg->data.train[0])
        return fail(ST_ECONFIG, "data.train is not set: name the training text in the "
                                "configuration, or give data.train=FILE");
    return ST_OK;
}
