/* The configurations of a bench: opened together, or one after another where memory is short. */
#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/base/text.h"
#include "common/cli/bench.h"
#include "common/cli/device_memory.h"
#include "common/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

/* APART_TURNS: how often a configuration is opened where not all stay open. Each time draws its
 * weights anew, so not every round has one of its own. */
enum { APART_TURNS = 3 };

static enum status settle(struct bench_case *c, int ranks)
{
    struct tokenizer t;

    TRY(tokenizer_open(&t, c->cfg.data.tokenizer));
    TRY(config_resolve(&c->cfg, ranks, t.vocab));
    tokenizer_close(&t);
    return config_validate(&c->cfg, ranks);
}

static enum status plan(struct bench *b, struct bench_case *c)
{
    TRY(host_agree(b->job, settle(c, host_size(b->job))));
    host_set_timeout(b->job, c->cfg.parallel.timeout);
    TRY(place_open(&c->place, &c->cfg, b->job));
    TRY(place_measure_peak(&c->place, &c->cfg)); /* before the memory of steps is taken */
    return step_plan_at(&c->memory, NULL, NULL, &c->cfg, &c->place.mesh, place_wide(&c->cfg), 1);
}

enum status bench_add(struct bench *b, const char *name, const struct config *cfg)
{
    struct bench_case *c;

    FAIL_IF(!b->item, ST_EINTERNAL);
    if (b->cases == BENCH_CASES)
        return fail(ST_EUSAGE, "at most %d configurations in one bench", BENCH_CASES);
    c = &b->item[b->cases];
    memset(c, 0, sizeof *c);
    c->name = name[0] ? name : "(as configured)";
    c->cfg = *cfg;
    b->cases++;
    return plan(b, c);
}

static enum status random_batch(struct bench_case *c)
{
    size_t n = (size_t)((c->step.end - c->step.begin) * c->cfg.train.seq);
    struct rng_key key = rng_key(1, RNG_TEST, (uint64_t)c->step.begin);

    c->tokens = malloc(n * sizeof *c->tokens);
    c->targets = malloc(n * sizeof *c->targets);
    if (!c->tokens || !c->targets)
        return fail(ST_ENOMEM, "no memory for %zu random tokens", n);
    for (size_t i = 0; i < n; i++) {
        c->tokens[i] = (int32_t)rng_below(&key, 2 * i, (uint64_t)c->cfg.model.vocab);
        c->targets[i] = (int32_t)rng_below(&key, 2 * i + 1, (uint64_t)c->cfg.model.vocab);
    }
    return ST_OK;
}

enum status bench_case_open(struct bench *b, struct bench_case *c)
{
    TRY(host_agree(b->job, step_open(&c->step, &c->cfg, &c->place.at, &c->memory, 1)));
    c->stacks = 0;
    c->micro = c->step.micro;
    c->flops = model_flops_per_token(&c->step.model);
    TRY(host_agree(b->job, random_batch(c)));
    return step_init(&c->step);
}

void bench_case_close(struct bench_case *c)
{
    free(c->tokens);
    free(c->targets);
    c->tokens = c->targets = NULL;
    if (c->step.cfg)
        step_close(&c->step);
    c->step.cfg = NULL;
}

void bench_close(struct bench *b)
{
    for (int i = 0; i < b->cases; i++) {
        bench_case_close(&b->item[i]);
        if (b->item[i].place.job)
            place_close(&b->item[i].place);
    }
    free(b->item);
}

/* ---- what fits ---- */

/* Bytes that a rank has: as given, or on gpu what is free once all devices are open, on ref its
 * part of the machine's. */
static enum status offered(struct bench *b, double *bytes)
{
    const struct config *cfg = &b->item[0].cfg;
    struct device_info info;

    *bytes = (double)b->memory;
    if (b->memory)
        return ST_OK;
    TRY(device_info(b->item[0].place.at.dev, &info));
    *bytes = cfg->run.backend == BACKEND_GPU ? (double)info.memory_free
                                             : (double)info.memory_total / host_local_size(b->job);
    return ST_OK;
}

/* Bytes that all cases need together. What open devices have taken counts only where the whole
 * memory is compared; CUDA's context and the code of libraries are there once. */
static enum status needed(const struct bench *b, double *bytes)
{
    size_t once = 0;

    *bytes = 0.0;
    for (int i = 0; i < b->cases; i++) {
        const struct bench_case *c = &b->item[i];
        size_t opened = b->memory ? 0 : device_memory_opened(&c->cfg), own, all;
        struct memory_beside beside;

        TRY(device_memory_beside(&beside, &c->cfg));
        all = step_memory_bytes(&c->memory) + memory_beside_bytes(&beside) - opened;
        own = all - beside.code - (b->memory ? beside.context : 0);
        *bytes += (double)own;
        once = all - own > once ? all - own : once;
    }
    *bytes += (double)once;
    return ST_OK;
}

/* All ranks decide alike: together where every rank has room. */
static enum status arrange(struct bench *b)
{
    double have = 0.0, need = 0.0, short_of;
    char a[TEXT_NUMBER], c[TEXT_NUMBER];

    TRY(host_agree(b->job, offered(b, &have)));
    TRY(needed(b, &need));
    short_of = need > have;
    TRY(host_max_f64(b->job, &short_of, 1));
    b->turns = b->cases > 1 && short_of > 0.0 ? APART_TURNS : 0;
    if (b->turns > b->rounds)
        b->turns = b->rounds;
    if (b->turns)
        log_info("together the %d configurations need %s a rank and %s are there: each is opened "
                 "alone, %d time(s) in turn, for %d to %d of its %d rounds",
                 b->cases, text_bytes(a, need), text_bytes(c, have), b->turns, b->rounds / b->turns,
                 (b->rounds + b->turns - 1) / b->turns, b->rounds);
    return ST_OK;
}

/* ---- turns ---- */

static enum status enter(struct bench *b, struct bench_case *c, const struct bench_work *w)
{
    TRY(bench_case_open(b, c));
    return w->warm(b, c);
}

static enum status apart(struct bench *b, const struct bench_work *w, int turn)
{
    int begin = b->rounds * turn / b->turns, end = b->rounds * (turn + 1) / b->turns;

    for (int i = 0; i < b->cases; i++) {
        struct bench_case *c = &b->item[i];

        TRY(enter(b, c, w));
        for (int r = begin; r < end; r++)
            TRY(w->round(b, c, r));
        if (turn == b->turns - 1)
            TRY(w->last(b, c));
        bench_case_close(c);
    }
    return ST_OK;
}

static enum status together(struct bench *b, const struct bench_work *w)
{
    for (int i = 0; i < b->cases; i++)
        TRY(enter(b, &b->item[i], w));
    for (int r = 0; r < b->rounds; r++)
        for (int i = 0; i < b->cases; i++)
            TRY(w->round(b, &b->item[i], r));
    for (int i = 0; i < b->cases; i++) {
        TRY(w->last(b, &b->item[i]));
        bench_case_close(&b->item[i]);
    }
    return ST_OK;
}

enum status bench_in_turn(struct bench *b, const struct bench_work *w)
{
    TRY(arrange(b));
    if (!b->turns)
        return together(b, w);
    for (int turn = 0; turn < b->turns; turn++)
        TRY(apart(b, w, turn));
    return ST_OK;
}
