#include "common/train/trainer_step.h"

#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/train/trainer_data.h"

#include <math.h>
#include <stdlib.h>

/* What is known of a step before the device has done it. */
struct trainer_pending {
    int64_t step;
    double lr, tp_bytes, dp_bytes;
    uint64_t hash; /* of the weights after it, with run.hash */
};

static int writes(const struct trainer *t)
{
    return host_rank(t->job) == 0;
}

enum status trainer_steps_open(struct trainer *t)
{
    size_t n = (size_t)step_slots(&t->step);

    t->pending = calloc(n, sizeof *t->pending);
    t->found = calloc(n, sizeof *t->found);
    if (!t->pending || !t->found)
        return fail(ST_ENOMEM, "no memory for what %zu steps found", n);
    return ST_OK;
}

void trainer_steps_close(struct trainer *t)
{
    free(t->pending);
    free(t->found);
}

/* ---- what is told ---- */

/* A skipped update is said aloud and counted; too many in a row end the run. All ranks have the
 * same results and meet before any of them fails: one that is a little ahead would take the others
 * out of their reading, and rank 0 would lack records of steps before. */
static enum status check_finite(struct trainer *t, const struct step_result *r, int64_t step)
{
    if (isfinite(r->grad_norm) && isfinite(r->loss)) {
        t->skips = 0;
        return ST_OK;
    }
    t->skips++;
    log_warn("step %lld skipped: loss %g, gradient norm %g (skip %d of at most %d in a row)",
             (long long)step, r->loss, r->grad_norm, t->skips, TRAINER_MAX_SKIPS);
    if (t->skips < TRAINER_MAX_SKIPS)
        return ST_OK;
    TRY(host_barrier(t->job));
    return fail(ST_ENUMERIC,
                "%d updates in a row had a loss or gradient that is not finite, the last at step "
                "%lld; lower train.lr (%g) or start again from weights that are finite",
                t->skips, (long long)step, t->cfg.train.lr);
}

/* From the start of the process to the end of its first step: where it went. */
static double tell_start(struct trainer *t)
{
    char parts[256];

    start_lap(&t->start, START_STEP);
    start_text(parts, sizeof parts, &t->start);
    log_info("start      first step done %.2f s after the process began: %s",
             start_seconds(&t->start), parts);
    return start_seconds(&t->start);
}

static enum status record_step(struct trainer *t, const struct trainer_pending *p,
                               const struct step_result *r, double seconds)
{
    const struct config_train *c = &t->cfg.train;
    int line = p->step == 1 || p->step == c->steps || p->step % c->log_every == 0;
    struct metrics_step m = {.step = p->step,
                             .steps = c->steps,
                             .result = *r,
                             .lr = p->lr,
                             .seconds = seconds,
                             .tokens = c->batch * c->seq,
                             .run_seconds = trainer_now() - t->started,
                             .tp_bytes = p->tp_bytes,
                             .dp_bytes = p->dp_bytes,
                             .skipped = r->scale == 0.0};

    if (p->step == t->first + 1)
        m.start_seconds = tell_start(t);
    return metrics_step(&t->metrics, &m, line);
}

static void print_hash(const struct trainer *t, const struct trainer_pending *p)
{
    char hex[HASH_HEX];

    if (!t->cfg.run.hash)
        return;
    hash_hex(hex, p->hash);
    log_info("hash after step %lld  %s  loss %a  norm %a", (long long)p->step, hex, t->loss,
             t->metrics.dir ? t->metrics.last_norm : 0.0);
}

/* The host's clock cannot tell the steps that it did not wait for apart: each took its part. */
enum status trainer_read(struct trainer *t)
{
    int n = t->step.kept.n;
    double seconds;

    TRY(step_read(&t->step, t->found));
    seconds = (trainer_now() - t->since) / (n ? n : 1);
    for (int i = 0; i < n; i++) {
        const struct step_result *r = &t->found[i];

        t->loss = r->loss;
        t->metrics.last_norm = r->grad_norm;
        TRY(check_finite(t, r, t->pending[i].step));
        if (writes(t))
            TRY(record_step(t, &t->pending[i], r, seconds));
        print_hash(t, &t->pending[i]);
    }
    return ST_OK;
}

enum status trainer_catch_up(struct trainer *t)
{
    enum status st;

    if (t->step.kept.n == 0)
        return ST_OK;
    st = trainer_read(t);
    if (st != ST_OK)
        host_raise(t->job, st);
    return host_agree(t->job, st);
}

/* ---- a step ---- */

/* Says how far the replay was off; the same decision on all ranks. */
static enum status judge_shadow(struct trainer *t, const struct shadow_result *r)
{
    const struct shadow *s = &t->shadow;
    char what[512];

    if (!shadow_missed(r))
        return ST_OK;
    snprintf(
        what, sizeof what,
        "step %lld beside the reference: loss %.3g apart, at most %.3g allowed; the gradient of "
        "%s %.3g apart, at most %.3g allowed; %lld of %lld beyond",
        (long long)t->done + 1, r->loss, s->loss_most, r->tensor, r->gradient, s->gradient_most,
        (long long)r->missed, (long long)r->tensors);
    if (t->cfg.shadow.stop)
        return fail(ST_EMISMATCH, "%s; narrows validate step looks closer", what);
    log_warn("%s", what);
    return ST_OK;
}

/* Before the step whose batch has been read; *seconds that it took. */
static enum status shadow(struct trainer *t, double *seconds)
{
    int64_t every = t->cfg.shadow.every;
    double start = trainer_now();
    struct shadow_result r;

    *seconds = 0.0;
    if (!every || (t->done + 1) % every)
        return ST_OK;
    TRY(trainer_read(t));
    TRY(shadow_look(&t->shadow, &t->step, t->batch.tokens, t->batch.targets, t->batch.starts, &r));
    if (writes(t))
        TRY(metrics_shadow(&t->metrics, t->done + 1, &r));
    *seconds = trainer_now() - start;
    return judge_shadow(t, &r);
}

/* The ranks' moments 0 are one moment, as near as a barrier brings them. */
static enum status begin_profile(struct trainer *t)
{
    if (t->cfg.profile.first && t->done + 1 == t->cfg.profile.first) {
        TRY(host_barrier(t->job));
        TRY(trace_start(&t->trace, t->place.at.dev));
    }
    trace_open(t->place.at.dev,
               (struct trace_span){
                   .name = "step", .kind = "step", .key = {"number"}, .value = {t->done + 1}});
    return ST_OK;
}

/* Of the weights after the step, for which the host has to wait; the time is no step's. */
static enum status hash_weights(struct trainer *t, uint64_t *hash)
{
    double start;

    if (!t->cfg.run.hash)
        return ST_OK;
    TRY(device_sync(t->place.at.dev));
    start = trainer_now();
    TRY(params_hash(hash, &t->step.model.params, t->place.at.dev, t->place.at.tp_host));
    t->since += trainer_now() - start;
    return ST_OK;
}

/* What is known before the device is done. */
static enum status note_step(struct trainer *t, double lr)
{
    const struct ledger *l = &t->place.ledger;
    struct trainer_pending *p = &t->pending[t->step.kept.n - 1];

    *p = (struct trainer_pending){.step = t->done + 1, .lr = lr};
    p->tp_bytes = (double)ledger_sum(l, LEDGER_TP_FORWARD, LEDGER_HEAD).wire_bytes;
    p->dp_bytes = (double)ledger_sum(l, LEDGER_DP, LEDGER_ZERO).wire_bytes;
    return hash_weights(t, &p->hash);
}

/* The first step of a process is told at once; then what the host reads is in step with the
 * lines of the log, wherever the run went on from. */
static int read_due(const struct trainer *t)
{
    return t->done == t->first || (t->done + 1) % step_slots(&t->step) == 0;
}

enum status trainer_step(struct trainer *t)
{
    const struct batch *b = &t->batch;
    double lr = lr_at(&t->lr, t->done), start = trainer_now(), replay;

    TRY(trainer_training_batch(t));
    TRY(shadow(t, &replay));
    if (t->step.kept.n == 0)
        t->since = start + replay;
    ledger_clear(&t->place.ledger);
    TRY(begin_profile(t));
    TRY(step_issue(&t->step, b->tokens, b->targets, b->valid, t->done + 1, lr));
    trace_close(t->place.at.dev);
    TRY(note_step(t, lr));
    return read_due(t) ? trainer_read(t) : ST_OK;
}
