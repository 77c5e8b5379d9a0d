#include "common/train/trainer.h"

#include "common/backend/planted.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/checkpoint/weights.h"
#include "common/train/trainer_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
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

static enum status open_step(struct trainer *t)
{
    struct step_memory memory;

    TRY(step_plan(&memory, NULL, NULL, &t->cfg, place_wide(&t->cfg), 1));
    TRY(host_agree(t->job, step_open(&t->step, &t->cfg, &t->place.at, &memory, 1)));
    TRY(step_init(&t->step));
    return place_measure_peak(&t->place, &t->cfg);
}

static enum status open_dir(struct trainer *t)
{
    enum status st = ST_OK;

    if (writes(t))
        st = run_dir_open(&t->dir, &t->cfg);
    else
        run_dir_path(t->dir.path, &t->cfg);
    t->opened_dir = 1;
    t->metrics = (struct metrics){.dir = &t->dir,
                                  .flops_per_token = model_flops_per_token(&t->step.model),
                                  .peak = t->place.peak};
    return host_agree(t->job, st);
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
    host_set_timeout(t->job, t->cfg.parallel.timeout);
    TRY(host_agree(t->job, trainer_data_open(t)));
    TRY(place_open(&t->place, &t->cfg, t->job));
    TRY(open_step(t));
    TRY(open_dir(t));
    TRY(host_agree(t->job, trainer_batch_open(t)));
    return ST_OK;
}

enum status trainer_open(struct trainer *t, const struct config *cfg, struct host *job,
                         int (*stop_requested)(void))
{
    enum status st;

    memset(t, 0, sizeof *t);
    t->cfg = *cfg;
    t->job = job;
    t->stop_requested = stop_requested;
    t->best = INFINITY;
    st = open_all(t);
    if (st != ST_OK)
        trainer_close(t);
    return st;
}

enum status trainer_close(struct trainer *t)
{
    enum status st = t->opened_dir && writes(t) ? run_dir_close(&t->dir) : ST_OK;

    free(t->tokens);
    free(t->targets);
    if (t->step.cfg)
        step_close(&t->step);
    if (t->place.job)
        place_close(&t->place);
    trainer_data_close(t);
    memset(t, 0, sizeof *t);
    return st;
}

/* ---- running ---- */

void trainer_weights_path(char *out, size_t n, const struct trainer *t, const char *which)
{
    snprintf(out, n, "%s/%s", t->dir.path, which);
}

/* The first replica writes; the others wait for its word. */
static enum status save(struct trainer *t, const char *which)
{
    char path[CONFIG_TEXT + 64];
    enum status st = ST_OK;

    if (!t->cfg.run.save)
        return ST_OK;
    trainer_weights_path(path, sizeof path, t, which);
    if (t->place.at.dp->rank == 0)
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
            st = step_evaluate(&t->step, t->tokens, t->targets, &batch_sum);
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
    double loss, start = now();
    int64_t valid;
    int best;
    enum status st = ST_OK;

    TRY(trainer_validate(t, &loss, &valid));
    best = loss < t->best;
    if (writes(t))
        st = metrics_validation(&t->metrics, t->done, loss, valid, now() - start, best);
    TRY(host_agree(t->job, st));
    if (!best)
        return ST_OK;
    t->best = loss;
    return save(t, "best");
}

/* A skipped update is said aloud and counted; too many in a row end the run. */
static enum status check_finite(struct trainer *t, const struct step_result *r)
{
    if (isfinite(r->grad_norm) && isfinite(r->loss)) {
        t->skips = 0;
        return ST_OK;
    }
    t->skips++;
    log_warn("step %lld skipped: loss %g, gradient norm %g (skip %d of at most %d in a row)",
             (long long)t->done + 1, r->loss, r->grad_norm, t->skips, TRAINER_MAX_SKIPS);
    if (t->skips < TRAINER_MAX_SKIPS)
        return ST_OK;
    return fail(ST_ENUMERIC,
                "%d updates in a row had a loss or gradient that is not finite, the last at step "
                "%lld; lower train.lr (%g) or start again from weights that are finite",
                t->skips, (long long)t->done + 1, t->cfg.train.lr);
}

static enum status record_step(struct trainer *t, const struct step_result *r, double lr)
{
    int64_t done = t->done + 1;
    int line = done == 1 || done == t->cfg.train.steps || done % t->cfg.train.log_every == 0;
    struct metrics_step m = {.step = done,
                             .steps = t->cfg.train.steps,
                             .result = *r,
                             .lr = lr,
                             .seconds = t->step_seconds,
                             .tokens = t->cfg.train.batch * t->cfg.train.seq,
                             .run_seconds = now() - t->started,
                             .skipped = r->scale == 0.0};

    m.tp_bytes = (double)ledger_sum(&t->place.ledger, LEDGER_TP_FORWARD, LEDGER_HEAD).wire_bytes;
    m.dp_bytes = (double)ledger_sum(&t->place.ledger, LEDGER_DP, LEDGER_ZERO).wire_bytes;
    return metrics_step(&t->metrics, &m, line);
}

static enum status print_hash(struct trainer *t)
{
    uint64_t hash;
    char hex[HASH_HEX];

    if (!t->cfg.run.hash)
        return ST_OK;
    TRY(params_hash(&hash, &t->step.model.params, t->place.at.dev, t->place.at.tp_host));
    hash_hex(hex, hash);
    log_info("hash after step %lld  %s  loss %a  norm %a", (long long)t->done + 1, hex, t->loss,
             t->metrics.dir ? t->metrics.last_norm : 0.0);
    return ST_OK;
}

static enum status one_step(struct trainer *t)
{
    struct step_result r = {0};
    double lr = lr_at(&t->lr, t->done), start = now();
    int64_t valid;

    ledger_clear(&t->place.ledger);
    TRY(trainer_training_batch(t, &valid));
    TRY(step_train(&t->step, t->tokens, t->targets, valid, t->done + 1, lr, &r));
    t->step_seconds = now() - start;
    t->loss = r.loss;
    t->metrics.last_norm = r.grad_norm;
    TRY(check_finite(t, &r));
    if (writes(t))
        TRY(record_step(t, &r, lr));
    return print_hash(t);
}

/* Nonzero on all ranks when any of them was asked to stop. */
static enum status stop_wanted(struct trainer *t, int *stop)
{
    double flag = t->stop_requested && t->stop_requested() ? 1.0 : 0.0;

    TRY(host_max_f64(t->job, &flag, 1));
    *stop = flag > 0.0;
    return ST_OK;
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

static enum status finish(struct trainer *t)
{
    TRY(host_agree(t->job, same_replicas(t)));
    if (t->done == 0 || t->done < t->cfg.train.steps || t->cfg.train.eval_every == 0 ||
        t->done % t->cfg.train.eval_every)
        TRY(validate(t));
    return save(t, "final");
}

enum status trainer_run(struct trainer *t)
{
    int64_t every = t->cfg.train.eval_every;
    int stop = 0;

    t->started = now();
    TRY(host_agree(t->job, same_replicas(t)));
    while (t->done < t->cfg.train.steps && !stop) {
        enum status st = one_step(t);

        if (st != ST_OK)
            host_raise(t->job, st);
        TRY(host_agree(t->job, st));
        t->done++;
        if (every && t->done % every == 0)
            TRY(validate(t));
        TRY(stop_wanted(t, &stop));
    }
    TRY(finish(t));
    if (stop && t->done < t->cfg.train.steps)
        return fail(ST_ESTOP, "stopped on request after step %lld of %lld; weights are in %s/final",
                    (long long)t->done, (long long)t->cfg.train.steps, t->dir.path);
    return ST_OK;
}

double trainer_seconds(const struct trainer *t)
{
    return now() - t->started;
}
