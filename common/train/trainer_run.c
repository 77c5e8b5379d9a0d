/* The run itself: steps, validations, saves. */
#include "common/train/trainer.h"

#include "common/backend/planted.h"
#include "common/base/log.h"
#include "common/checkpoint/weights.h"
#include "common/train/resume.h"
#include "common/train/trainer_data.h"
#include "common/train/trainer_step.h"

#include <stdlib.h>
#include <unistd.h>

static int writes(const struct trainer *t)
{
    return host_rank(t->job) == 0;
}

/* The first replica writes; the others wait for its word. */
static enum status save(struct trainer *t, const char *which)
{
    char path[CONFIG_TEXT + 64];
    enum status st = ST_OK;

    if (!t->cfg.run.save)
        return ST_OK;
    trainer_weights_path(path, sizeof path, t, which);
    if (t->place.at.dp->rank == 0 || weights_shared_save(&t->step.model))
        st = weights_save(path, &t->step.model, t->place.at.dev, t->place.at.tp_host);
    return host_agree(t->job, st);
}

enum status trainer_validate(struct trainer *t, double *loss, int64_t *valid)
{
    double sum = 0.0;

    *valid = 0;
    for (int64_t b = 0; b < mixture_batches(&t->data.validation); b++) {
        double batch_sum = 0.0;
        int64_t counted = 0;
        enum status st = trainer_validation_batch(t, b, &counted);

        if (st == ST_OK && counted)
            st = step_evaluate(&t->step, t->batch.tokens, t->batch.targets, &batch_sum);
        if (st != ST_OK)
            host_raise(t->job, st);
        TRY(host_agree(t->job, st));
        sum += batch_sum;
        *valid += counted;
        if (!counted)
            break;
    }
    *loss = sum / (double)*valid;
    if (PLANTED(PLANTED_EVALUATION))
        *loss *= (double)mixture_batches(&t->data.validation) /
                 (double)(mixture_batches(&t->data.validation) + 1);
    return ST_OK;
}

static enum status validate(struct trainer *t)
{
    double loss, start;
    int64_t valid;
    int best;
    enum status st = ST_OK;

    TRY(trainer_catch_up(t));
    start = trainer_now();
    TRY(trainer_validate(t, &loss, &valid));
    best = loss < t->best;
    if (writes(t))
        st = metrics_validation(&t->metrics, t->done, loss, valid, trainer_now() - start, best);
    TRY(host_agree(t->job, st));
    if (!best)
        return ST_OK;
    t->best = loss;
    return save(t, "best");
}

/* Writes the profile once its last step, or the run, is over. */
static enum status end_profile(struct trainer *t, int over)
{
    const struct config_profile *p = &t->cfg.profile;
    char path[CONFIG_TEXT + 64];

    if (!t->trace || (!over && t->done < p->last))
        return ST_OK;
    trainer_weights_path(path, sizeof path, t, "trace.json");
    TRY(trace_write(t->trace, t->job, path));
    log_info("profile    steps %lld to %lld in %s (chrome://tracing, Perfetto)",
             (long long)p->first, (long long)t->done, path);
    TRY(trace_print(t->trace, t->job, t->done - p->first + 1));
    trace_stop(t->trace);
    t->trace = NULL;
    return ST_OK;
}

/* ---- when to stop, what to save ---- */

enum stop { STOP_NONE, STOP_TIME, STOP_STEP, STOP_REQUEST };

static enum stop my_stop(const struct trainer *t)
{
    if (t->stop_requested && t->stop_requested())
        return STOP_REQUEST;
    if (t->cfg.checkpoint.stop_at && t->done >= t->cfg.checkpoint.stop_at)
        return STOP_STEP;
    return t->stop_after > 0.0 && trainer_now() - t->opened >= t->stop_after ? STOP_TIME
                                                                             : STOP_NONE;
}

/* The same on all ranks: what any of them has reason for. The save under way moves on with the
 * same message. */
static enum status look_around(struct trainer *t, enum stop *stop)
{
    double flag[1 + SAVER_FLAGS] = {(double)my_stop(t)};

    if (t->saving)
        saver_flags(&t->saver, flag + 1);
    TRY(host_max_f64(t->job, flag, 1 + SAVER_FLAGS));
    *stop = (enum stop)(int)flag[0];
    return t->saving ? saver_advance(&t->saver, flag + 1) : ST_OK;
}

/* A checkpoint of now, unless there is one. */
static enum status checkpoint(struct trainer *t, int wait)
{
    struct manifest_state state;

    if (!t->saving)
        return ST_OK;
    TRY(trainer_catch_up(t));
    state = resume_state(t);
    if (wait)
        TRY(saver_wait(&t->saver));
    if (t->saver.saved == t->done)
        return ST_OK;
    return saver_save(&t->saver, &t->cfg, &state, wait);
}

static int checkpoint_due(const struct trainer *t)
{
    int64_t every = t->cfg.checkpoint.every;

    return every && t->done % every == 0 && t->done < t->cfg.train.steps;
}

/* Replicas and whole parameters must hold the same bits, whatever went before. */
static enum status same_replicas(struct trainer *t)
{
    int n = host_size(t->job);
    uint64_t hash, *all = malloc((size_t)n * sizeof *all);
    enum status st = all ? ST_OK : fail(ST_ENOMEM, "no memory for hashes");

    if (st == ST_OK)
        st = params_hash(&hash, &t->step.model.params, t->place.at.dev, t->place.at.tp_host);
    if (st == ST_OK)
        st = host_gather(t->job, all, &hash, sizeof hash);
    for (int i = 0; st == ST_OK && i < n; i++)
        if (all[i] != all[0])
            st = fail(ST_EINTERNAL, "rank %d holds other weights than rank 0 after step %lld", i,
                      (long long)t->done);
    free(all);
    return st;
}

static int validated_now(const struct trainer *t)
{
    int64_t every = t->cfg.train.eval_every;

    return t->done > t->first && every && t->done % every == 0;
}

/* A stopped run is not validated: it goes on, and would not have been there. */
static enum status finish(struct trainer *t, enum stop stop)
{
    int stopped = stop && t->done < t->cfg.train.steps;

    TRY(host_agree(t->job, same_replicas(t)));
    if (!(stopped && t->saving) && !validated_now(t))
        TRY(validate(t));
    TRY(checkpoint(t, 1));
    return save(t, "final");
}

/* How a run that did not fail ends. */
static enum status verdict(const struct trainer *t, enum stop stop)
{
    static const char *const why[] = {"", "by checkpoint.stop_after", "by checkpoint.stop_at",
                                      "on request"};

    if (t->saving && t->saver.failure[0])
        return fail(ST_EIO, "the last checkpoint, of step %lld, could not be saved: %s",
                    (long long)t->saver.step, t->saver.failure);
    if (stop && t->done < t->cfg.train.steps)
        return fail(ST_ESTOP, "stopped %s after step %lld of %lld; %sweights are in %s/final",
                    why[stop], (long long)t->done, (long long)t->cfg.train.steps,
                    t->saving ? "--resume goes on from here; " : "", t->dir.path);
    return ST_OK;
}

/* Nonzero on all ranks when a run that is done has left everything that it leaves. */
static enum status nothing_to_do(struct trainer *t, int *nothing)
{
    char path[CONFIG_TEXT + 64];

    trainer_weights_path(path, sizeof path, t, "final");
    *nothing = t->resumed && t->done >= t->cfg.train.steps && !access(path, F_OK);
    TRY(host_broadcast(t->job, nothing, sizeof *nothing, 0));
    if (*nothing)
        log_info("nothing to do: the run has made all of its %lld steps; a higher train.steps "
                 "makes it longer",
                 (long long)t->cfg.train.steps);
    return ST_OK;
}

static enum status all_steps(struct trainer *t, enum stop *stop)
{
    int64_t every = t->cfg.train.eval_every;

    while (t->done < t->cfg.train.steps && !*stop) {
        enum status st = trainer_step(t);

        if (st != ST_OK)
            host_raise(t->job, st);
        TRY(host_agree(t->job, st));
        t->done++;
        TRY(end_profile(t, 0));
        if (every && t->done % every == 0)
            TRY(validate(t));
        if (checkpoint_due(t))
            TRY(checkpoint(t, 0));
        TRY(look_around(t, stop));
    }
    return trainer_catch_up(t);
}

enum status trainer_run(struct trainer *t)
{
    enum stop stop = STOP_NONE;
    int nothing;

    t->started = trainer_now();
    TRY(host_agree(t->job, same_replicas(t)));
    TRY(nothing_to_do(t, &nothing));
    if (nothing)
        return ST_OK;
    TRY(all_steps(t, &stop));
    TRY(end_profile(t, 1));
    TRY(finish(t, stop));
    return verdict(t, stop);
}

double trainer_seconds(const struct trainer *t)
{
    return trainer_now() - t->started;
}
