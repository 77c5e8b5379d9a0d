#include "common/model/halves.h"

struct half {
    struct block_env env;
    struct arena scratch;
    struct proj_flight flight;
    int64_t first, samples; /* sequences of the micro-batch */
};

int halves_apply(const struct halves *h, const struct block_env *env, int64_t samples)
{
    return h->second && env->tp.tp->size > 1 && samples > 1;
}

static void cut_rows(struct tensor *t, int64_t first, int64_t rows, int32_t samples)
{
    if (t->data)
        *t = tensor_rows(t, first, rows, samples);
}

static void cut_kept(struct proj_acts *a, int64_t first, int64_t rows, int32_t samples)
{
    struct tensor *const all[] = {&a->z, &a->s, &a->xg, &a->h, &a->act};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        cut_rows(all[i], first, rows, samples);
}

/* The rows of a half. */
static struct block_acts part_of(const struct block_acts *whole, const struct half *h, int64_t seq)
{
    struct block_acts a = *whole;
    struct attention *at = &a.at;
    struct tensor *const all[] = {&a.x0, &a.x1,   &a.x2,  &a.qkv, &a.q,       &a.k,
                                  &a.v,  &at->q,  &at->k, &at->v, &at->o,     &at->lse,
                                  &a.gu, &a.gate, &a.up,  &a.f,   &at->starts};
    struct proj_acts *const kept[] = {&a.qkv_a, &a.wo_a, &a.gate_up_a, &a.down_a};
    int64_t first = h->first * seq, rows = h->samples * seq;
    int32_t samples = (int32_t)h->samples;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        cut_rows(all[i], first, rows, samples);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        cut_kept(kept[i], first, rows, samples);
    at->batch = h->samples;
    return a;
}

/* Ends projection leg - 1 and begins projection leg, counted through all blocks. */
static enum status run_leg(struct half *h, const struct halves_run *run, int leg)
{
    int ended = leg - 1, last = run->n * BLOCK_PROJECTIONS;

    if (leg > 0) {
        int i = ended / BLOCK_PROJECTIONS;
        struct block_acts a = part_of(&run->acts[i], h, run->seq);

        TRY(block_end(&h->env, &run->block[i], &a, ended % BLOCK_PROJECTIONS, &h->flight));
    }
    if (leg < last) {
        int i = leg / BLOCK_PROJECTIONS;
        struct block_acts a = part_of(&run->acts[i], h, run->seq);

        TRY(block_begin(&h->env, &run->block[i], &a, leg % BLOCK_PROJECTIONS, &h->flight));
    }
    return ST_OK;
}

static enum status open_half(struct half *h, const struct halves *halves,
                             const struct block_env *env, int64_t first, int64_t samples)
{
    enum arena_space space = first ? ARENA_HALF_1 : ARENA_HALF_0;
    struct arena *from = env->tp.scratch;
    void *p = NULL;

    h->env = *env;
    h->first = first;
    h->samples = samples;
    h->env.tp.samples = (int32_t)samples;
    h->scratch = arena_plan_in("scratch of a half-batch", space);
    if (!from->planning) {
        TRY(arena_take(from, &p, halves->bytes));
        h->scratch = arena_over("scratch of a half-batch", p, halves->bytes);
    }
    return ST_OK;
}

/* Two of the larger one: what a run will take. */
static enum status plan_scratch(struct halves *h, struct arena *from, const struct half *half)
{
    void *p;

    for (int i = 0; i < 2; i++)
        if (half[i].scratch.peak > h->bytes)
            h->bytes = half[i].scratch.peak;
    TRY(arena_take(from, &p, h->bytes));
    return arena_take(from, &p, h->bytes);
}

enum status halves_forward(struct halves *h, struct block_env *env, const struct halves_run *run)
{
    struct arena *from = env->tp.scratch;
    size_t mark = arena_mark(from);
    int64_t samples = run->acts->x0.rows / run->seq, first = (samples + 1) / 2;
    struct half half[2];

    TRY(open_half(&half[0], h, env, 0, first));
    TRY(open_half(&half[1], h, env, first, samples - first));
    half[1].env.tp.tp = h->second;
    for (int i = 0; i < 2; i++)
        half[i].env.tp.scratch = &half[i].scratch;
    for (int leg = 0; leg <= run->n * BLOCK_PROJECTIONS; leg++)
        for (int i = 0; i < 2; i++)
            TRY(run_leg(&half[i], run, leg));
    if (from->planning)
        TRY(plan_scratch(h, from, half));
    arena_release(from, mark);
    return ST_OK;
}
