#include "common/train/trainer.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/checkpoint/weights.h"
#include "common/train/resume.h"
#include "common/train/trainer_data.h"
#include "common/train/trainer_step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double trainer_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int writes(const struct trainer *t)
{
    return host_rank(t->job) == 0;
}

/* ---- opening ---- */

/* Ranks that read different configurations would hang in collectives of different shapes. */
static enum status same_config(struct trainer *t)
{
    int n = host_size(t->job);
    uint64_t mine, *all = malloc((size_t)n * sizeof *all);
    enum status st = all ? config_digest(&mine, &t->cfg) : fail(ST_ENOMEM, "no memory for digests");

    if (st == ST_OK)
        st = host_gather(t->job, all, &mine, sizeof mine);
    for (int i = 0; st == ST_OK && i < n; i++)
        if (all[i] != all[0])
            st = fail(ST_ECONFIG,
                      "rank %d has another configuration than rank 0; start all ranks with the "
                      "same file and arguments",
                      i);
    free(all);
    return st;
}

/* The weights that the run starts from, where they are not drawn; moments and steps begin anew. */
static enum status load_start(void *context)
{
    struct trainer *t = context;
    char path[WEIGHTS_PATH];

    if (t->resumed || !t->cfg.train.init_from[0])
        return ST_OK;
    TRY(weights_find(path, t->cfg.train.init_from));
    TRY(weights_load(&t->step.model, t->place.at.dev, path));
    log_info(
        "weights    of %s, and nothing else: moments begin at zero, the learning rate at step 1 "
        "of %lld (warm-up %lld), the data at the first sample of epoch 1",
        path, (long long)t->cfg.train.steps, (long long)t->cfg.train.warmup);
    return ST_OK;
}

/* The operands of the measurement are given back before the run's memory is taken. */
static enum status open_step(struct trainer *t)
{
    struct step_memory memory;

    TRY(place_measure_peak(&t->place, &t->cfg));
    TRY(step_plan_at(&memory, NULL, NULL, &t->cfg, &t->place.mesh, place_wide(&t->cfg), 1));
    TRY(host_agree(t->job, step_open(&t->step, &t->cfg, &t->place.at, &memory, 1)));
    return step_init(&t->step);
}

/* Nonzero when the run goes on in the folder that its checkpoint is in. */
static int goes_on(const struct trainer *t)
{
    return t->resumed && (!strcmp(t->resume, "auto") || run_dir_holds(&t->cfg, t->from));
}

/* Where a run begins anew, what the one before left is removed. */
static enum status take_dir(void *context)
{
    struct trainer *t = context;

    if (writes(t) && goes_on(t))
        return run_dir_continue(&t->dir, &t->cfg, t->done, t->skipped_damage);
    if (writes(t))
        return run_dir_open(&t->dir, &t->cfg);
    run_dir_path(t->dir.path, &t->cfg);
    return ST_OK;
}

static enum status open_dir(struct trainer *t)
{
    enum status st = host_work(t->job, take_dir, t);

    t->opened_dir = 1;
    t->metrics = (struct metrics){.dir = &t->dir,
                                  .first = t->first,
                                  .last_norm = t->metrics.last_norm,
                                  .flops_per_token = model_flops_per_token(&t->step.model),
                                  .peak = t->place.peak};
    return host_agree(t->job, st);
}

static enum status open_saver(struct trainer *t)
{
    char root[FOLDER_PATH];

    if (!t->cfg.run.save)
        return ST_OK;
    trainer_checkpoints_path(root, t);
    TRY(saver_open(&t->saver, &t->place, &t->step.model.params, &t->cfg, root,
                   goes_on(t) ? t->done : -1));
    t->saving = 1;
    return ST_OK;
}

static void set_lr(struct trainer *t)
{
    const struct config_train *c = &t->cfg.train;

    t->lr = (struct lr){.kind = c->schedule,
                        .peak = c->lr,
                        .min_ratio = c->lr_min,
                        .warmup = c->warmup,
                        .steps = c->steps,
                        .decay = c->decay};
}

/* Sizes and layout first: wrong ones are refused before anything is read or allocated. */
static enum status settle_config(struct trainer *t)
{
    int ranks = host_size(t->job);

    TRY(tokenizer_open(&t->tokenizer, t->cfg.data.tokenizer));
    TRY(config_resolve(&t->cfg, ranks, t->tokenizer.vocab));
    TRY(config_validate(&t->cfg, ranks));
    TRY(config_need_data(&t->cfg));
    set_lr(t);
    return lr_check(&t->lr);
}

static enum status open_all(struct trainer *t)
{
    TRY(host_agree(t->job, settle_config(t)));
    TRY(host_agree(t->job, same_config(t)));
    start_lap(&t->start, START_PROGRAM);
    host_set_timeout(t->job, t->cfg.parallel.timeout);
    TRY(host_agree(t->job, trainer_data_open(t)));
    start_lap(&t->start, START_DATA);
    TRY(place_open(&t->place, &t->cfg, t->job));
    start_lap(&t->start, START_DEVICE);
    TRY(open_step(t));
    if (t->cfg.shadow.every)
        TRY(shadow_open(&t->shadow, &t->cfg, t->job));
    start_lap(&t->start, START_MODEL);
    TRY(resume_run(t));
    TRY(host_agree(t->job, host_work(t->job, load_start, t)));
    TRY(open_dir(t));
    TRY(open_saver(t));
    TRY(host_agree(t->job, trainer_batch_open(t)));
    TRY(host_agree(t->job, trainer_steps_open(t)));
    start_lap(&t->start, START_STATE);
    return ST_OK;
}

/* What was asked for once is not asked for again by the configuration that the run leaves. */
static void take_wishes(struct trainer *t)
{
    snprintf(t->resume, sizeof t->resume, "%s", t->cfg.checkpoint.resume);
    t->cfg.checkpoint.resume[0] = '\0';
    if (t->cfg.checkpoint.stop_after[0])
        t->stop_after = text_seconds(t->cfg.checkpoint.stop_after);
}

enum status trainer_open(struct trainer *t, const struct config *cfg, struct host *job,
                         int (*stop_requested)(void))
{
    enum status st;

    memset(t, 0, sizeof *t);
    start_begin(&t->start);
    t->cfg = *cfg;
    t->job = job;
    t->stop_requested = stop_requested;
    t->best = INFINITY;
    t->opened = trainer_now();
    take_wishes(t);
    st = open_all(t);
    if (st != ST_OK)
        trainer_close(t);
    return st;
}

enum status trainer_close(struct trainer *t)
{
    enum status st = t->opened_dir && writes(t) ? run_dir_close(&t->dir) : ST_OK;

    trainer_steps_close(t);
    if (t->saving)
        saver_close(&t->saver);
    trace_stop(t->trace);
    shadow_close(&t->shadow);
    if (t->step.cfg)
        step_close(&t->step);
    if (t->place.job)
        place_close(&t->place);
    trainer_data_close(t);
    memset(t, 0, sizeof *t);
    return st;
}

void trainer_weights_path(char *out, size_t n, const struct trainer *t, const char *which)
{
    snprintf(out, n, "%s/%s", t->dir.path, which);
}

void trainer_checkpoints_path(char *out, const struct trainer *t)
{
    char dir[CONFIG_TEXT + 16];

    run_dir_path(dir, &t->cfg);
    snprintf(out, FOLDER_PATH, "%s/" CHECKPOINT_FOLDER, dir);
}
