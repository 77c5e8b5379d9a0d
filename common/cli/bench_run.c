#include "common/base/log.h"
#include "common/cli/bench.h"
#include "common/train/metrics.h"

/* The slowest rank's time counts for all. */
static enum status slowest(struct bench *b, double *seconds)
{
    return host_max_f64(b->job, seconds, 1);
}

/* Column of a replica's or a block's milliseconds. */
static double ms(double seconds)
{
    return 1e3 * seconds;
}

/* ---- steps ---- */

static enum status train(struct bench_case *c)
{
    struct step_result r;

    return step_train(&c->step, c->tokens, c->targets, c->cfg.train.batch * c->cfg.train.seq, 1,
                      1e-4, &r);
}

static enum status one_step(struct bench *b, struct bench_case *c, double *seconds)
{
    double start;

    TRY(host_barrier(b->job));
    ledger_clear(&c->place.ledger);
    start = bench_now();
    TRY(train(c));
    TRY(device_sync(c->place.at.dev));
    *seconds = bench_now() - start;
    c->ledger = c->place.ledger;
    return slowest(b, seconds);
}

/* Tuning, first touch, recording. */
static enum status warm_step(struct bench *b, struct bench_case *c)
{
    double ignored;

    TRY(one_step(b, c, &ignored));
    return c->cfg.run.graph ? one_step(b, c, &ignored) : ST_OK;
}

static enum status time_step(struct bench *b, struct bench_case *c, int round)
{
    return one_step(b, c, &c->seconds[round]);
}

/* What a step waits for messages; one rank sends none. */
static enum status profile_step(struct bench *b, struct bench_case *c)
{
    struct bench_traffic seen[BENCH_PROFILES];

    if (host_size(b->job) == 1)
        return ST_OK;
    for (int i = 0; i < BENCH_PROFILES; i++)
        TRY(bench_profile(b, c, train, &seen[i]));
    bench_traffic_median(&c->traffic[0], seen, BENCH_PROFILES);
    return ST_OK;
}

static void step_row(const struct bench_case *c, double seconds, double first)
{
    double tokens = (double)(c->cfg.train.batch * c->cfg.train.seq), flops = c->flops * tokens;
    struct ledger_row sent = ledger_sum(&c->ledger, LEDGER_TP_FORWARD, LEDGER_HEAD);
    const struct bench_traffic *t = &c->traffic[0];

    log_info("%9.2f %9.0f %9.1f %6.1f%% %7.2fx %10.1f %9.3f %8.2f %8.2f %8.2f  %s", ms(seconds),
             tokens / seconds, 1e-9 * flops / seconds, 100.0 * flops / seconds / c->place.peak,
             first / seconds, (double)step_memory_bytes(&c->memory) / 1048576.0,
             (double)sent.wire_bytes / 1048576.0, ms(t->tp_wait), ms(t->dp_wait), ms(t->pp_wait),
             c->name);
}

enum status bench_steps(struct bench *b)
{
    const struct bench_work work = {warm_step, time_step, profile_step};
    double first = 0.0;

    TRY(bench_in_turn(b, &work));
    log_info("%9s %9s %9s %7s %8s %10s %9s %8s %8s %8s", "ms", "tok/s", "GFLOP/s", "of peak",
             "speed", "plan MiB", "tp MiB", "tp wait", "dp wait", "pp wait");
    for (int i = 0; i < b->cases; i++) {
        double seconds = bench_median(b->item[i].seconds, b->rounds);

        first = i == 0 ? seconds : first;
        step_row(&b->item[i], seconds, first);
    }
    log_info("wait: ms that the work of a rank stood still for messages between TP ranks, replicas "
             "and stages, median of three profiled steps, of the slowest rank; a pipeline's bubble "
             "is in its "
             "wait");
    log_info("peak memory of this process %.1f MiB", metrics_peak_rss() / 1048576.0);
    return b->floor ? bench_floors(b, 0) : ST_OK;
}

/* ---- layers ---- */

static enum status forward(struct bench_case *c)
{
    struct step *s = &c->step;
    struct micro_batch mb = {.samples = s->micro, .seq = c->cfg.train.seq};

    mb.tokens = tensor_rows(&s->tokens, 0, s->micro * mb.seq, (int32_t)s->micro);
    return stage_blocks_forward(&s->chunk[0], &mb, c->stacks++ == 0);
}

static enum status backward(struct bench_case *c)
{
    return stage_blocks_backward(&c->step.chunk[0], &c->step.plan[0]);
}

/* Real values from end to end: products of zeros draw less power and run faster. */
static enum status one_stack(struct bench *b, struct bench_case *c, double *half, double *seconds)
{
    struct device *dev = c->place.at.dev;
    double start;

    TRY(host_barrier(b->job));
    ledger_clear(&c->place.ledger);
    start = bench_now();
    TRY(forward(c));
    TRY(device_sync(dev));
    *half = bench_now() - start;
    TRY(backward(c));
    TRY(device_sync(dev));
    *seconds = bench_now() - start;
    c->ledger = c->place.ledger;
    TRY(slowest(b, half));
    return slowest(b, seconds);
}

static enum status warm_stack(struct bench *b, struct bench_case *c)
{
    size_t bytes = (size_t)tensor_count(&c->step.tokens) * sizeof *c->tokens;
    double ignored[2];

    TRY(device_upload(c->place.at.dev, c->step.tokens.data, c->tokens, bytes));
    return one_stack(b, c, &ignored[0], &ignored[1]);
}

static enum status time_stack(struct bench *b, struct bench_case *c, int round)
{
    return one_stack(b, c, &c->forward[round], &c->seconds[round]);
}

static enum status profile_stack(struct bench *b, struct bench_case *c)
{
    struct bench_traffic seen[2][BENCH_PROFILES];

    for (int i = 0; i < BENCH_PROFILES; i++) {
        TRY(bench_profile(b, c, forward, &seen[0][i]));
        TRY(bench_profile(b, c, backward, &seen[1][i]));
    }
    for (int i = 0; i < 2; i++)
        bench_traffic_median(&c->traffic[i], seen[i], BENCH_PROFILES);
    return ST_OK;
}

/* FLOPs a token of the blocks alone: the model's less its head's. */
static double block_flops(const struct bench_case *c)
{
    return c->flops - 6.0 * (double)c->cfg.model.vocab * (double)c->cfg.model.width;
}

/* Elements sent a token and block; what a block's norms and its recomputation send is in it. */
static double elements(const struct bench_case *c, int back)
{
    double blocks = (double)c->cfg.model.layers * (double)(c->micro * c->cfg.train.seq);
    int64_t n =
        back ? ledger_sum(&c->ledger, LEDGER_TP_BACKWARD, LEDGER_TP_RECOMPUTE).elements +
                   ledger_sum(&c->ledger, LEDGER_NORM_BACKWARD, LEDGER_NORM_BACKWARD).elements
             : ledger_sum(&c->ledger, LEDGER_TP_FORWARD, LEDGER_TP_FORWARD).elements +
                   ledger_sum(&c->ledger, LEDGER_NORM_FORWARD, LEDGER_NORM_FORWARD).elements;

    return (double)n / blocks;
}

static void layer_row(const struct bench_case *c, double half, double seconds, double first)
{
    double tokens = (double)(c->micro * c->cfg.train.seq), layers = (double)c->cfg.model.layers;
    double rate = block_flops(c) * tokens / seconds; /* of one replica */
    const struct bench_traffic *f = &c->traffic[0], *w = &c->traffic[1];

    log_info("%9.3f %9.3f %9.3f %9.1f %7.2fx %8.1f %8.1f %8.3f %8.3f %8.3f %8.3f  %s", ms(seconds),
             ms(half), ms(seconds - half), 1e-9 * rate, first / seconds, elements(c, 0),
             elements(c, 1), ms(f->tp) / layers, ms(w->tp) / layers, ms(f->tp_wait) / layers,
             ms(w->tp_wait) / layers, c->name);
}

enum status bench_layers(struct bench *b)
{
    const struct bench_work work = {warm_stack, time_stack, profile_stack};
    double first = 0.0;

    TRY(bench_in_turn(b, &work));
    log_info("%9s %9s %9s %9s %8s %8s %8s %8s %8s %8s %8s", "ms", "forward", "backward", "GFLOP/s",
             "speed", "el/tok f", "el/tok b", "comm f", "comm b", "wait f", "wait b");
    for (int i = 0; i < b->cases; i++) {
        double all = bench_median(b->item[i].seconds, b->rounds);
        double half = bench_median(b->item[i].forward, b->rounds);

        first = i == 0 ? all : first;
        layer_row(&b->item[i], half, all, first);
    }
    log_info(
        "f, b: forward, backward. el/tok: elements sent a token and block. comm: ms a block of "
        "its messages from begin to end, hidden or not; wait: ms a block that the work stood "
        "still for them. Both are medians of three profiled passes, of the slowest rank");
    return b->floor ? bench_floors(b, 1) : ST_OK;
}
