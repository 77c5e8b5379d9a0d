#include "tests/unit/tiny_model.h"

#include <check.h>
#include <stdio.h>

#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

void tiny_model_config(struct config *cfg, const char *const *changes, int ranks)
{
    static const char *const shape[] = {"model.width=32",   "model.layers=2", "model.heads=4",
                                        "model.kv_heads=2", "model.ffn=48",   "model.rank=8",
                                        "model.vocab=70",   "train.seq=64",   "train.batch=4"};

    config_default(cfg);
    for (int i = 0; changes && changes[i]; i++)
        OK(config_override(cfg, changes[i]));
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        char key[64];

        ck_assert_int_eq(sscanf(shape[i], "%63[^=]", key), 1);
        if (cfg->origin[config_find(key) - config_keys()] == ORIGIN_DEFAULT)
            OK(config_override(cfg, shape[i]));
    }
    OK(config_resolve(cfg, ranks, 0));
    OK(config_validate(cfg, ranks));
}

void tiny_model_open(struct tiny_model *t, int rank, int size, int training, uint64_t seed)
{
    int wide = t->cfg.train.precision == PRECISION_FP64;
    struct device_options opt = {.threads = 1, .local_size = 1};
    struct arena plan = arena_plan("weights");
    void *memory;

    OK(device_open(&t->dev, wide ? &ref64_backend : &ref_backend, &opt));
    OK(model_open(&t->m, &t->cfg, rank, size, wide ? DT_F64 : DT_F32));
    OK(params_carve(&t->m.params, &plan, training));
    OK(device_alloc(t->dev, &memory, plan.peak));
    t->state = arena_over("weights", memory, plan.peak);
    OK(params_carve(&t->m.params, &t->state, training));
    OK(params_init(&t->m.params, t->dev, seed));
}

void tiny_model_close(struct tiny_model *t)
{
    device_release(t->dev, t->state.base);
    model_close(&t->m);
    device_close(t->dev);
}
