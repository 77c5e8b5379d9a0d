#include "common/cli/checkpoint_export.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/weights.h"
#include "common/train/place.h"

#include <stdlib.h>

struct exporter {
    struct manifest m;
    struct config cfg; /* on one rank, of the wide type */
    struct place place;
    struct model model;
    void *weights; /* device memory */
};

/* One rank of the reference, and no type that is narrower than the masters. */
static enum status settle(struct exporter *e)
{
    e->cfg = e->m.cfg;
    config_one_rank(&e->cfg);
    config_on_ref(&e->cfg);
    if (e->cfg.train.precision == PRECISION_BF16) {
        e->cfg.train.precision = PRECISION_FP32;
        e->cfg.train.pure_bf16 = false;
    }
    TRY(config_resolve(&e->cfg, 1, e->cfg.model.vocab));
    return config_validate(&e->cfg, 1);
}

static enum status open_model(struct exporter *e, struct host *job)
{
    struct arena plan = arena_plan("weights"), weights;

    TRY(place_open(&e->place, &e->cfg, job));
    TRY(model_open(&e->model, &e->cfg, 0, 1, place_wide(&e->cfg)));
    TRY(params_carve(&e->model.params, &plan, 0));
    TRY(device_alloc(e->place.at.dev, &e->weights, plan.peak));
    weights = arena_over("weights", e->weights, plan.peak);
    return params_carve(&e->model.params, &weights, 0);
}

static enum status export_weights(struct exporter *e, struct host *job, const char *output,
                                  const char *from)
{
    struct checkpoint_read count;
    char size[TEXT_NUMBER];

    TRY(settle(e));
    TRY(open_model(e, job));
    TRY(checkpoint_load_weights(&e->model.params, e->place.at.dev, from, &e->m, &count));
    TRY(weights_save(output, &e->model, e->place.at.dev, e->place.at.tp_host));
    log_info("step %lld of %s (%s read) is in %s", (long long)e->m.state.step, from,
             text_bytes(size, (double)count.read), output);
    return ST_OK;
}

enum status checkpoint_export(struct host *job, const char *output, const char *from)
{
    struct exporter *e = calloc(1, sizeof *e);
    enum status st;

    if (!e)
        return fail(ST_ENOMEM, "no memory for an export");
    st = manifest_read(&e->m, from);
    if (st == ST_OK)
        st = export_weights(e, job, output, from);
    if (e->weights)
        device_release(e->place.at.dev, e->weights);
    if (e->model.cfg)
        model_close(&e->model);
    if (e->place.job)
        place_close(&e->place);
    manifest_free(&e->m);
    free(e);
    return st;
}
