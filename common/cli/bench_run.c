#include "common/base/log.h"
#include "common/cli/bench.h"
#include "common/train/memory_fit.h"
#include "common/train/metrics.h"

#include <math.h>
#include <string.h>

/* The slowest rank's time counts for all. */
static enum status slowest(struct bench *b, double *seconds)
{
    return host_max_f64(b->job, seconds, 1);
}

/* ---- steps ---- */

static enum status one_step(struct bench *b, struct bench_case *c, double *seconds)
{
    int64_t valid = c->cfg.train.batch * c->cfg.train.seq;
    struct step_result r;
    double start;

    TRY(host_barrier(b->job));
    ledger_clear(&c->place.ledger);
    start = bench_now();
    TRY(step_train(&c->step, c->tokens, c->targets, valid, 1, 1e-4, &r));
    TRY(device_sync(c->place.at.dev));
    *seconds = bench_now() - start;
    return slowest(b, seconds);
}

static void step_row(const struct bench_case *c, double seconds, double first)
{
    double tokens = (double)(c->cfg.train.batch * c->cfg.train.seq);
    double flops = model_flops_per_token(&c->step.model) * tokens;
    struct ledger_row tp = ledger_sum(&c->ledger, LEDGER_TP_FORWARD, LEDGER_HEAD);

    log_info("%9.2f %9.0f %9.1f %6.1f%% %7.2fx %10.1f %9.3f %9.3f  %s", 1e3 * seconds,
             tokens / seconds, 1e-9 * flops / seconds, 100.0 * flops / seconds / c->place.peak,
             first / seconds, (double)step_memory_bytes(&c->step.memory) / 1048576.0,
             (double)tp.wire_bytes / 1048576.0, 1e3 * tp.exposed,
             c->name[0] ? c->name : "(as configured)");
}

enum status bench_steps(struct bench *b)
{
    double first = 0.0, ignored;

    for (int i = 0; i < b->cases; i++) { /* warms up: tuning, first touch, recording */
        TRY(one_step(b, &b->item[i], &ignored));
        if (b->item[i].cfg.run.graph)
            TRY(one_step(b, &b->item[i], &ignored));
    }
    for (int r = 0; r < b->rounds; r++)
        for (int i = 0; i < b->cases; i++) {
            TRY(one_step(b, &b->item[i], &b->item[i].seconds[r]));
            b->item[i].ledger = b->item[i].place.ledger;
        }
    log_info("%9s %9s %9s %7s %8s %10s %9s %9s", "ms", "tok/s", "GFLOP/s", "of peak", "speed",
             "plan MiB", "tp MiB", "tp wait");
    for (int i = 0; i < b->cases; i++) {
        double ms = bench_median(b->item[i].seconds, b->rounds);

        first = i == 0 ? ms : first;
        step_row(&b->item[i], ms, first);
    }
    log_info("peak memory of this process %.1f MiB", metrics_peak_rss() / 1048576.0);
    return ST_OK;
}

/* ---- layers ---- */

/* Real values from end to end: products of zeros draw less power and run faster. */
static enum status one_stack(struct bench *b, struct bench_case *c, double *forward,
                             double *seconds)
{
    struct step *s = &c->step;
    struct micro_batch mb = {.samples = s->micro, .seq = c->cfg.train.seq};
    int first = c->rounds++ == 0;
    double start;

    mb.tokens = tensor_rows(&s->tokens, 0, s->micro * mb.seq, (int32_t)s->micro);
    if (first)
        TRY(device_upload(c->place.at.dev, s->tokens.data, c->tokens,
                          (size_t)tensor_count(&s->tokens) * sizeof *c->tokens));
    TRY(host_barrier(b->job));
    ledger_clear(&c->place.ledger);
    start = bench_now();
    TRY(stage_blocks_forward(&s->chunk[0], &mb, first));
    TRY(device_sync(c->place.at.dev));
    *forward = bench_now() - start;
    TRY(stage_blocks_backward(&s->chunk[0], &s->plan[0]));
    TRY(device_sync(c->place.at.dev));
    *seconds = bench_now() - start;
    TRY(slowest(b, forward));
    return slowest(b, seconds);
}

/* FLOPs a token of the blocks alone: the model's less its head's. */
static double block_flops(const struct bench_case *c)
{
    const struct model *m = &c->step.model;

    return model_flops_per_token(m) - 6.0 * (double)c->cfg.model.vocab * (double)c->cfg.model.width;
}

static void layer_row(const struct bench_case *c, double forward, double seconds, double first)
{
    double tokens = (double)(c->step.micro * c->cfg.train.seq);
    double layers = (double)c->cfg.model.layers;
    double rate = block_flops(c) * tokens / seconds; /* of one replica */
    struct ledger_row f = ledger_sum(&c->ledger, LEDGER_TP_FORWARD, LEDGER_TP_FORWARD);
    struct ledger_row w = ledger_sum(&c->ledger, LEDGER_TP_BACKWARD, LEDGER_TP_BACKWARD);

    log_info("%9.3f %9.3f %9.3f %9.1f %7.2fx %8.1f %8.1f %8.3f %8.3f  %s", 1e3 * seconds,
             1e3 * forward, 1e3 * (seconds - forward), 1e-9 * rate, first / seconds,
             (double)f.elements / tokens / layers, (double)w.elements / tokens / layers,
             1e3 * f.seconds / layers, 1e3 * w.seconds / layers,
             c->name[0] ? c->name : "(as configured)");
}

enum status bench_layers(struct bench *b)
{
    double first = 0.0, ignored[2];

    for (int i = 0; i < b->cases; i++)
        TRY(one_stack(b, &b->item[i], &ignored[0], &ignored[1]));
    for (int r = 0; r < b->rounds; r++)
        for (int i = 0; i < b->cases; i++) {
            struct bench_case *c = &b->item[i];

            TRY(one_stack(b, c, &c->forward[r], &c->seconds[r]));
            c->ledger = c->place.ledger;
        }
    log_info("%9s %9s %9s %9s %8s %8s %8s %8s %8s", "ms", "forward", "backward", "GFLOP/s", "speed",
             "el/tok f", "el/tok b", "comm f", "comm b");
    for (int i = 0; i < b->cases; i++) {
        double all = bench_median(b->item[i].seconds, b->rounds);
        double forward = bench_median(b->item[i].forward, b->rounds);

        first = i == 0 ? all : first;
        layer_row(&b->item[i], forward, all, first);
    }
    log_info("el/tok: elements sent a token and block; comm: ms a block from begin to the end of "
             "wait, hidden or not");
    return ST_OK;
}
