/* The floor of a step or of its blocks: what its calls take when each is launched alone, over and
 * over, on random values; and, for what only moves memory, its bytes at the rate of a copy. */
#include "common/cli/bench_floor.h"

#include "common/backend/device.h"
#include "common/backend/op.h"
#include "common/base/log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* LAUNCHES: of one call in a round, as many as take about ENOUGH seconds. MESSAGES: the same of a
 * message; ranks must agree on it. */
enum { LAUNCHES = 16, MESSAGES = 4 };
static const double ENOUGH = 2e-3;

/* A block for the rate of a copy: more than a cache holds. */
static size_t block_bytes(const struct bench_case *c)
{
    return c->cfg.run.backend == BACKEND_GPU ? (size_t)512 << 20 : (size_t)32 << 20;
}

/* Memory for one call, and values to begin it from: results of products must not be the operands of
 * the next ones, or they grow without end. */
struct ground {
    struct bench *b;
    struct bench_case *c;
    struct device *dev;
    char *memory, *values;
    size_t bytes;
};

static enum dtype work_of(const struct bench_case *c)
{
    return c->cfg.train.precision == PRECISION_BF16 ? DT_BF16 : place_wide(&c->cfg);
}

static enum status ground_open(struct ground *g, size_t bytes)
{
    g->bytes = bytes;
    TRY(device_alloc(g->dev, (void **)&g->memory, bytes));
    TRY(device_alloc(g->dev, (void **)&g->values, bytes));
    return place_fill_random(g->dev, g->values, work_of(g->c), bytes);
}

static void ground_close(struct ground *g)
{
    if (g->memory)
        device_release(g->dev, g->memory);
    if (g->values)
        device_release(g->dev, g->values);
}

/* ---- one call ---- */

static enum status send(struct ground *g, struct floor_call *c)
{
    const struct step_place *at = &g->c->place.at;
    struct comm *const all[FLOOR_COMMS] = {at->tp, at->second, at->dp, at->pp, at->ends};
    struct comm *to = all[c->comm];

    switch (c->message) {
    case MESSAGE_ALL_REDUCE:
        return comm_all_reduce(to, c->sent, c->n);
    case MESSAGE_ALL_GATHER:
        return comm_all_gather(to, &c->sent[0], &c->sent[1]);
    case MESSAGE_REDUCE_SCATTER:
        return comm_reduce_scatter(to, &c->sent[0], &c->sent[1]);
    default:
        TRY(comm_broadcast_begin(to, &c->sent[0], 0));
        return comm_wait(to);
    }
}

static enum status launch(struct ground *g, struct floor_call *c)
{
    switch (c->kind) {
    case FLOOR_PRODUCT:
        return op_gemm(g->dev, c->gemm, c->n);
    case FLOOR_GRADIENT:
        return op_weight_grad(g->dev, c->grad, c->n, &c->plan);
    case FLOOR_ATTENTION:
        return op_attention_forward(g->dev, &c->at);
    case FLOOR_ATTENTION_BACKWARD:
        return op_attention_backward(g->dev, &c->at, &c->dat);
    default:
        return send(g, c);
    }
}

/* Seconds of one of n launches, one behind the other. */
static enum status time_launches(struct ground *g, struct floor_call *c, int n, double *seconds)
{
    double start;

    TRY(device_sync(g->dev));
    start = bench_now();
    for (int i = 0; i < n; i++)
        TRY(launch(g, c));
    TRY(device_sync(g->dev));
    *seconds = (bench_now() - start) / n;
    return ST_OK;
}

/* The best of the rounds. The first launch, which may tune, is not timed. */
static enum status time_placed(struct ground *g, struct floor_call *c, double *best)
{
    double seconds = 0.0;
    int n = MESSAGES;

    TRY(launch(g, c));
    TRY(time_launches(g, c, 1, &seconds));
    if (c->kind != FLOOR_MESSAGE)
        n = (int)fmin(LAUNCHES, fmax(1.0, ENOUGH / seconds));
    *best = INFINITY;
    for (int round = 0; round < g->b->rounds; round++) {
        host_alive(g->b->job); /* a stage with less to time waits in its first message */
        TRY(time_launches(g, c, n, &seconds));
        *best = seconds < *best ? seconds : *best;
    }
    return ST_OK;
}

static enum status time_call(struct ground *g, struct floor_call *c, double *best)
{
    enum status st;

    TRY(device_copy(g->dev, g->memory, g->values, c->bytes));
    floor_call_move(c, g->memory, 1);
    st = time_placed(g, c, best);
    floor_call_move(c, g->memory, -1);
    return st;
}

/* ---- the rate of a copy ---- */

static enum status copy_once(struct ground *g, size_t bytes)
{
    return device_copy(g->dev, g->memory, g->values, bytes);
}

/* A sum of two blocks into a third. On ref a copy runs on one thread and operations on all. */
static enum status add_once(struct ground *g, size_t bytes)
{
    enum dtype dt = work_of(g->c);
    int64_t rows = g->dev->threads, cols = (int64_t)(bytes / dtype_size(dt)) / rows / 2;
    struct tensor y = tensor_grained(tensor_view(g->memory, dt, rows, cols), (int32_t)rows, 1);
    struct tensor a = y, b = y;

    a.data = g->values;
    b.data = g->values + bytes / 2;
    return op_add(g->dev, &y, &a, &b);
}

/* Bytes read and written a second, the better of both and of the rounds. */
static enum status copy_rate(struct ground *g, double *rate)
{
    static const struct {
        enum status (*run)(struct ground *g, size_t bytes);
        double moved; /* times the bytes of a block */
    } how[] = {{copy_once, 2.0}, {add_once, 1.5}};
    size_t bytes = block_bytes(g->c);

    *rate = 0.0;
    for (int i = 0; i < 2; i++)
        for (int round = -1; round < g->b->rounds; round++) { /* one warms up */
            double start, seconds;

            TRY(device_sync(g->dev));
            start = bench_now();
            for (int k = 0; k < MESSAGES; k++)
                TRY(how[i].run(g, bytes));
            TRY(device_sync(g->dev));
            seconds = (bench_now() - start) / MESSAGES;
            if (round >= 0)
                *rate = fmax(*rate, how[i].moved * (double)bytes / seconds);
        }
    return ST_OK;
}

/* ---- the sum ---- */

/* Local calls first; then messages, those of one group after those of another, in an order that all
 * its ranks share. */
static enum status add_up(struct ground *g, struct floor_list *l, struct bench_floor *sum)
{
    for (int comm = -1; comm < FLOOR_COMMS; comm++)
        for (int i = 0; i < l->n; i++) {
            struct floor_call *c = l->call[i];
            double seconds = 0.0;

            if (comm != (c->kind == FLOOR_MESSAGE ? (int)c->comm : -1))
                continue;
            TRY(time_call(g, c, &seconds));
            seconds *= (double)c->times;
            if (c->kind == FLOOR_MESSAGE)
                sum->messages += seconds;
            else if (c->kind == FLOOR_PRODUCT || c->kind == FLOOR_GRADIENT)
                sum->products += seconds;
            else
                sum->attention += seconds;
        }
    TRY(copy_rate(g, &sum->rate));
    sum->moves = l->moved / sum->rate;
    return ST_OK;
}

static enum status measure(struct bench *b, struct bench_case *c, struct floor_list *l,
                           struct bench_floor *sum)
{
    struct ground g = {.b = b, .c = c, .dev = c->place.at.dev};
    size_t most = floor_list_largest(l), block = block_bytes(c);
    enum status st = host_agree(b->job, ground_open(&g, most > block ? most : block));

    if (st == ST_OK)
        st = add_up(&g, l, sum);
    ground_close(&g);
    return st;
}

double bench_floor_hidden(const struct bench_floor *f)
{
    double work = f->products + f->attention + f->moves;

    return work > f->messages ? work : f->messages;
}

double bench_floor_all(const struct bench_floor *f)
{
    return f->products + f->attention + f->moves + f->messages;
}

/* *f of the rank whose sum is the largest. */
static enum status slowest_rank(struct bench *b, struct bench_floor *f)
{
    int n = host_size(b->job);
    struct bench_floor *all = calloc((size_t)n, sizeof *all);
    enum status st =
        all ? host_gather(b->job, all, f, sizeof *f) : fail(ST_ENOMEM, "no memory for floors");

    for (int i = 0; st == ST_OK && i < n; i++)
        if (bench_floor_all(&all[i]) > bench_floor_all(f))
            *f = all[i];
    free(all);
    return st;
}

enum status bench_floor(struct bench *b, struct bench_case *c, int blocks)
{
    struct floor_list list = {0};
    enum status st = host_agree(b->job, floor_list_fill(&list, c, blocks));

    memset(&c->floor, 0, sizeof c->floor);
    host_set_timeout(b->job, c->cfg.parallel.timeout);
    if (st == ST_OK)
        st = measure(b, c, &list, &c->floor);
    floor_list_close(&list);
    TRY(host_agree(b->job, st));
    return slowest_rank(b, &c->floor);
}

/* ---- a table ---- */

static void row(const struct bench_case *c, double seconds)
{
    const struct bench_floor *f = &c->floor;
    double all = bench_floor_all(f), hidden = bench_floor_hidden(f);

    log_info("%9.3f %9.3f %8.2fx %9.3f %8.2fx %9.3f %9.3f %9.3f %9.3f %9.1f  %s", 1e3 * seconds,
             1e3 * all, seconds / all, 1e3 * hidden, seconds / hidden, 1e3 * f->products,
             1e3 * f->attention, 1e3 * f->moves, 1e3 * f->messages, 1e-9 * f->rate, c->name);
}

enum status bench_floors(struct bench *b, int blocks)
{
    int staged = 0;

    for (int i = 0; i < b->cases; i++)
        TRY(bench_floor(b, &b->item[i], blocks));
    log_info("%9s %9s %9s %9s %9s %9s %9s %9s %9s %9s", "ms", "floor", "of floor", "hidden",
             "of hidden", "products", "attention", "moves", "messages", "copy GB/s");
    for (int i = 0; i < b->cases; i++) {
        row(&b->item[i], bench_median(b->item[i].seconds, b->rounds));
        staged = staged || b->item[i].cfg.parallel.pp > 1;
    }
    log_info(
        "floor: ms of the parts of the slowest rank, each launched alone: products, attention, "
        "messages, and bytes moved at the rate of a copy; hidden: as if all messages were; "
        "of: times the floor that was measured");
    if (staged)
        log_info("a pipeline's sends and its bubble are in no floor");
    return ST_OK;
}
