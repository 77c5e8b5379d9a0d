#include "common/train/metrics.h"

#include "common/base/log.h"
#include "common/base/text.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>
#include <sys/resource.h>

double metrics_peak_rss(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_maxrss * 1024.0;
}

/* JSON has no NaN and no infinity: null. */
static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

/* Writes and frees record as one line. */
static enum status write_record(struct metrics *m, json_t *record)
{
    FILE *out = m->dir->metrics;
    int bad;

    if (!record)
        return fail(ST_ENOMEM, "no memory for a record of metrics");
    if (!out) {
        json_decref(record);
        return ST_OK;
    }
    bad = json_dumpf(record, out, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(record);
    if (bad || fputc('\n', out) == EOF || fflush(out))
        return fail(ST_EIO, "cannot write %s/metrics.jsonl: %s", m->dir->path, strerror(errno));
    return ST_OK;
}

static json_t *step_record(const struct metrics *m, const struct metrics_step *s)
{
    double rate = (double)s->tokens / s->seconds;
    json_t *r = json_object();

    json_object_set_new(r, "step", json_integer(s->step));
    json_object_set_new(r, "loss", number(s->result.loss));
    json_object_set_new(r, "grad_norm", number(s->result.grad_norm));
    json_object_set_new(r, "lr", number(s->lr));
    json_object_set_new(r, "tokens", json_integer(s->tokens));
    json_object_set_new(r, "valid_targets", json_integer(s->result.valid));
    json_object_set_new(r, "ms", number(1e3 * s->seconds));
    json_object_set_new(r, "tokens_per_s", number(rate));
    json_object_set_new(r, "flops_per_s", number(rate * m->flops_per_token));
    if (m->peak > 0)
        json_object_set_new(r, "mfu", number(rate * m->flops_per_token / m->peak));
    json_object_set_new(r, "peak_rss", number(metrics_peak_rss()));
    json_object_set_new(r, "tp_bytes", number(s->tp_bytes));
    json_object_set_new(r, "dp_bytes", number(s->dp_bytes));
    if (s->start_seconds > 0.0)
        json_object_set_new(r, "start_seconds", number(s->start_seconds));
    if (s->skipped)
        json_object_set_new(r, "skipped", json_true());
    return r;
}

static void step_line(struct metrics *m, const struct metrics_step *s, int line)
{
    double rate = (double)m->window_tokens / m->window_seconds;
    double eta = s->run_seconds / (double)(s->step - m->first) * (double)(s->steps - s->step);
    char tok[TEXT_NUMBER], fl[TEXT_NUMBER], mem[TEXT_NUMBER], tp[TEXT_NUMBER], left[TEXT_NUMBER];
    char share[16] = "";

    if (m->peak > 0)
        snprintf(share, sizeof share, " %4.1f%%", 100.0 * rate * m->flops_per_token / m->peak);
    (line ? log_info : log_progress)(
        "step %*lld/%lld  loss %.4f  lr %.2e  norm %.3f  %s tok/s  %.0f ms  %sFLOP/s%s  mem %s  "
        "tp %s  eta %s",
        (int)(log10((double)s->steps) + 1), (long long)s->step, (long long)s->steps, s->result.loss,
        s->lr, s->result.grad_norm, text_count(tok, rate), 1e3 * s->seconds,
        text_count(fl, rate * m->flops_per_token), share, text_bytes(mem, metrics_peak_rss()),
        text_bytes(tp, s->tp_bytes), text_duration(left, eta));
}

enum status metrics_step(struct metrics *m, const struct metrics_step *s, int line)
{
    m->window_seconds += s->seconds;
    m->window_tokens += s->tokens;
    step_line(m, s, line);
    if (line) {
        m->window_seconds = 0.0;
        m->window_tokens = 0;
    }
    return write_record(m, step_record(m, s));
}

enum status metrics_validation(struct metrics *m, int64_t step, double loss, int64_t valid,
                               double seconds, int best)
{
    json_t *r = json_object();

    log_info("validation after step %lld  loss %.4f  perplexity %.2f  %lld targets  %.1f s%s",
             (long long)step, loss, exp(loss), (long long)valid, seconds, best ? "  best" : "");
    json_object_set_new(r, "step", json_integer(step));
    json_object_set_new(r, "validation_loss", number(loss));
    json_object_set_new(r, "perplexity", number(exp(loss)));
    json_object_set_new(r, "valid_targets", json_integer(valid));
    json_object_set_new(r, "seconds", number(seconds));
    return write_record(m, r);
}

enum status metrics_shadow(struct metrics *m, int64_t step, const struct shadow_result *r)
{
    json_t *j = json_object();

    log_info(
        "shadow of step %lld  loss %.2g apart  gradients of %lld tensors up to %.2g apart (%s)  "
        "%.2f s",
        (long long)step, r->loss, (long long)r->tensors, r->gradient, r->tensor, r->seconds);
    json_object_set_new(j, "step", json_integer(step));
    json_object_set_new(j, "shadow_loss", number(r->loss));
    json_object_set_new(j, "shadow_gradient", number(r->gradient));
    json_object_set_new(j, "shadow_tensor", json_string(r->tensor));
    json_object_set_new(j, "shadow_missed", json_integer(r->missed));
    json_object_set_new(j, "seconds", number(r->seconds));
    return write_record(m, j);
}
