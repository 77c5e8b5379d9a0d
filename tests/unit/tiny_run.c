#include "tests/unit/tiny_run.h"

#include "common/backend/host.h"
#include "common/base/hash.h"
#include "common/train/place.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#undef fail

#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

void tiny_run_begin(struct host *job)
{
    host_set_timeout(job, 60);
    (void)host_agree(job, host_raised(job) ? ST_EMISMATCH : ST_OK);
    status_clear();
}

enum { VOCAB = 259 }; /* what the tokenizer of bytes has */

#define SHAPE_T                                                                            \
    "model.layers=2", "model.width=64", "model.heads=4", "model.ffn=176", "model.rank=16", \
        "train.seq=32", "train.batch=8", "train.seed=1", "train.steps=20"

const char *const tiny_t[] = {SHAPE_T, "model.kv_heads=2", NULL};
const char *const tiny_t4[] = {SHAPE_T, "model.kv_heads=4", NULL};
const char *const tiny_t8[] = {"model.layers=4",   "model.width=64", "model.heads=8",
                               "model.kv_heads=8", "model.ffn=192",  "model.rank=16",
                               "model.vocab=264",  "train.seq=32",   "train.batch=8",
                               "train.seed=1",     "train.steps=20", NULL};

const struct tiny_form tiny_forms[] = {
    {"full", {"model.layer=full"}},
    {"full, tied, biases", {"model.layer=full", "model.tied=on", "model.qkv_bias=on"}},
    {"cola, btp", {"model.layer=cola"}},
    {"cola, btp, local",
     {"model.layer=cola", "parallel.norm=online_local", "model.tied=on", "model.qkv_bias=on"}},
    {"cola, btp, sync", {"model.layer=cola", "parallel.norm=sync", "parallel.grouping=off"}},
    {"cola, vanilla", {"model.layer=cola", "parallel.strategy=vanilla", "model.qkv_bias=on"}},
    {"cola, released",
     {"model.layer=cola", "parallel.strategy=vanilla", "parallel.vanilla=released",
      "model.qkv_bias=on"}},
    {"svd, btp", {"model.layer=svd", "parallel.recompute=bottleneck"}},
    {NULL, {NULL}}};

static void override_all(struct config *cfg, const char *const *changes)
{
    for (int i = 0; changes && changes[i]; i++)
        OK(config_override(cfg, changes[i]));
}

static int ranks_of(const struct config *cfg)
{
    return (int)(cfg->parallel.tp * cfg->parallel.dp * cfg->parallel.pp);
}

void tiny_run_config(struct config *cfg, const char *const *shape, const char *const *changes,
                     struct tiny_layout layout)
{
    struct config shaped;

    /* `changes` wins over `shape`, although a key may be given once only. */
    config_default(&shaped);
    override_all(&shaped, shape);
    memset(shaped.origin, 0, sizeof shaped.origin);
    *cfg = shaped;
    override_all(cfg, changes);
    cfg->parallel.tp = layout.tp;
    cfg->parallel.dp = layout.dp;
    cfg->train.micro_batch = layout.micro;
    OK(config_resolve(cfg, ranks_of(cfg), VOCAB));
    OK(config_validate(cfg, ranks_of(cfg)));
}

static void open_place(struct tiny_run *r)
{
    int wide = r->cfg.train.precision == PRECISION_FP64, rank = host_rank(r->group);
    struct device_options opt = {
        .threads = 1, .local_rank = rank, .local_size = host_size(r->group)};

    TINY_OK(r->job, device_open(&r->at.dev, wide ? &ref64_backend : &ref_backend, &opt));
    r->at.ledger = &r->ledger;
    TINY_OK(r->job, place_groups_open(&r->at, &r->cfg, r->group));
}

int tiny_run_open(struct tiny_run *r, struct host *job, const char *const *shape,
                  const char *const *changes, struct tiny_layout layout)
{
    struct step_memory memory;
    enum dtype wide;
    struct mesh mesh;
    int ranks;
    size_t n;

    memset(r, 0, sizeof *r);
    r->job = job;
    tiny_run_config(&r->cfg, shape, changes, layout);
    ranks = ranks_of(&r->cfg);
    TINY_OK(r->job, host_split(&r->group, job, host_rank(job) < ranks ? 0 : -1, host_rank(job)));
    if (!r->group)
        return 0;
    open_place(r);
    TINY_OK(r->job, place_mesh(&mesh, &r->cfg, r->group));
    wide = r->cfg.train.precision == PRECISION_FP64 ? DT_F64 : DT_F32;
    TINY_OK(r->job, step_plan_at(&memory, NULL, NULL, &r->cfg, &mesh, wide, 1));
    TINY_OK(r->job, step_open(&r->step, &r->cfg, &r->at, &memory, 1));
    TINY_OK(r->job, step_init(&r->step));
    n = (size_t)((r->step.end - r->step.begin) * r->cfg.train.seq);
    r->tokens = malloc(n * sizeof *r->tokens);
    r->targets = malloc(n * sizeof *r->targets);
    ck_assert(r->tokens && r->targets);
    return 1;
}

void tiny_run_close(struct tiny_run *r)
{
    free(r->tokens);
    free(r->targets);
    if (!r->group)
        return;
    step_close(&r->step);
    place_groups_close(&r->at);
    device_close(r->at.dev);
    host_free(r->group);
}

int32_t tiny_run_token(int64_t batch, int64_t sample, int64_t j)
{
    uint64_t x = (uint64_t)(batch * 1000003 + sample * 1009 + j) * UINT64_C(0x9e3779b97f4a7c15);

    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 32;
    return (int32_t)(x % VOCAB);
}

void tiny_run_batch(struct tiny_run *r, int64_t batch, enum tiny_mask mask)
{
    int64_t seq = r->cfg.train.seq, all = r->cfg.train.batch;

    for (int64_t i = r->step.begin; i < r->step.end; i++)
        for (int64_t j = 0; j < seq; j++) {
            int64_t at = (i - r->step.begin) * seq + j;
            int ignored = mask == TINY_SHORT && i >= all / 2 && j >= 3;

            r->tokens[at] = tiny_run_token(batch, i, j);
            r->targets[at] = ignored ? -1 : tiny_run_token(batch, i, j + 1);
        }
    r->valid = mask == TINY_SHORT ? all / 2 * seq + (all - all / 2) * 3 : all * seq;
}

struct step_result tiny_run_train(struct tiny_run *r, int64_t t, enum tiny_mask mask)
{
    struct step_result result;

    tiny_run_batch(r, t, mask);
    TINY_OK(r->job, step_train(&r->step, r->tokens, r->targets, r->valid, t, 1e-3, &result));
    return result;
}

uint64_t tiny_run_hash(struct tiny_run *r)
{
    uint64_t hash;

    TINY_OK(r->job, params_hash(&hash, &r->step.model.params, r->at.dev, r->at.tp_host));
    return hash;
}

static void *download(struct tiny_run *r, const struct tensor *t)
{
    size_t bytes = (size_t)tensor_count(t) * dtype_size(t->dtype);
    void *raw = malloc(bytes ? bytes : 1);

    ck_assert(raw && tensor_packed(t));
    TINY_OK(r->job, device_download(r->at.dev, raw, t->data, bytes));
    return raw;
}

double *tiny_run_values(struct tiny_run *r, const struct tensor *t)
{
    int64_t n = tensor_count(t);
    void *raw = download(r, t);
    double *values = malloc((size_t)(n ? n : 1) * sizeof *values);

    ck_assert_ptr_nonnull(values);
    for (int64_t i = 0; i < n; i++)
        values[i] = dtype_load(raw, t->dtype, i);
    free(raw);
    return values;
}

uint64_t tiny_run_bytes(struct tiny_run *r, const struct tensor *t)
{
    void *raw = download(r, t);
    uint64_t hash = hash_bytes(raw, (size_t)tensor_count(t) * dtype_size(t->dtype));

    free(raw);
    return hash;
}
