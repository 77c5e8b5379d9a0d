/* Blocks and the runs of a pipeline: no deal is better, and what the costs say is what a rehearsal
 * of the step finds. */
#include "common/base/rng.h"
#include "common/model/runs.h"
#include "common/train/step.h"
#include "tests/unit/check_unit.h"
#include "tests/unit/tiny_model.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#undef fail
#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

enum { MOST_RUNS = 4 };

/* ---- no deal is better ---- */

struct problem {
    struct run_cost cost[MOST_RUNS];
    int runs, stages, blocks;
    double limit; /* bytes of a stage */
};

/* The longest run and the largest stage of a deal. */
struct outcome {
    double flops, bytes;
};

static struct outcome outcome_of(const struct problem *p, const int *layers)
{
    struct outcome o = {0, 0};
    double room[MOST_RUNS] = {0};

    for (int k = 0; k < p->runs; k++) {
        const struct run_cost *c = &p->cost[k];

        o.flops = fmax(o.flops, c->flops_else + layers[k] * c->flops);
        room[c->stage] += c->bytes_else + layers[k] * c->bytes;
    }
    for (int i = 0; i < p->stages; i++)
        o.bytes = fmax(o.bytes, room[i]);
    return o;
}

/* Tries every deal of `left` blocks to runs k ...: *best is the best within the limit. */
static void try_all(struct outcome *best, const struct problem *p, int *layers, int k, int left)
{
    struct outcome o;

    if (k < p->runs - 1) {
        for (int n = 1; n <= left - (p->runs - 1 - k); n++) {
            layers[k] = n;
            try_all(best, p, layers, k + 1, left - n);
        }
        return;
    }
    layers[k] = left;
    o = outcome_of(p, layers);
    if (o.bytes <= p->limit &&
        (o.flops < best->flops || (o.flops == best->flops && o.bytes < best->bytes)))
        *best = o;
}

struct draws {
    struct rng_key key;
    uint64_t n;
};

static int draw(struct draws *d, uint64_t below)
{
    return (int)rng_below(&d->key, d->n++, below);
}

/* Small whole numbers: sums are exact, and many deals are equally good in one of the two. */
static struct problem random_problem(struct draws *d)
{
    struct problem p = {.runs = 2 + draw(d, 3)};
    int chunks = p.runs == 4 && draw(d, 2) ? 2 : 1, limited = draw(d, 3) > 0;

    p.stages = p.runs / chunks;
    p.blocks = p.runs + draw(d, 9);
    for (int k = 0; k < p.runs; k++) {
        struct run_cost *c = &p.cost[k];
        int stage = k % p.stages;

        c->stage = stage;
        c->flops = p.cost[0].flops > 0 ? p.cost[0].flops : 1 + draw(d, 4);
        c->bytes = k >= p.stages ? p.cost[stage].bytes : 1 + draw(d, 6);
        c->flops_else = k == p.runs - 1 ? draw(d, 9) : 0;
        c->bytes_else = k == 0 || k == p.runs - 1 ? draw(d, 9) : 0;
    }
    p.limit = limited ? (double)(4 + draw(d, 40)) : (double)INFINITY;
    return p;
}

START_TEST(no_deal_is_better)
{
    struct draws d = {rng_key(1, RNG_TEST, 0), 0};
    int refused = 0, limited = 0;

    for (int i = 0; i < 4000; i++) {
        struct problem p = random_problem(&d);
        struct outcome best = {INFINITY, INFINITY}, found;
        int layers[MOST_RUNS], other[MOST_RUNS], sum = 0;
        double room[MOST_RUNS];
        int64_t left = runs_balance(layers, room, p.cost, p.runs, p.stages, p.blocks,
                                    isfinite(p.limit) ? p.limit : 0);

        try_all(&best, &p, other, 0, p.blocks);
        ck_assert_msg((left > 0) == !isfinite(best.flops), "problem %d: %lld left, best %g", i,
                      (long long)left, best.flops);
        refused += left > 0;
        if (left > 0)
            continue;
        for (int k = 0; k < p.runs; k++) {
            ck_assert_int_ge(layers[k], 1);
            sum += layers[k];
        }
        ck_assert_int_eq(sum, p.blocks);
        found = outcome_of(&p, layers);
        ck_assert_msg(found.flops == best.flops && found.bytes == best.bytes,
                      "problem %d: time %g, memory %g; there is %g, %g", i, found.flops,
                      found.bytes, best.flops, best.bytes);
        for (int k = 0; k < p.stages; k++)
            ck_assert_double_le(room[k], found.bytes);
        limited += isfinite(p.limit) != 0;
    }
    ck_assert_int_gt(refused, 200);
    ck_assert_int_gt(limited, 1000);
}
END_TEST

/* ---- costs are true ---- */

static const struct {
    const char *name;
    const char *words[12];
} shapes[] = {
    {"cola", {"parallel.tp=1"}},
    {"cola, tp 2", {"parallel.tp=2"}},
    {"cola, from the latents", {"parallel.tp=2", "parallel.recompute=bottleneck"}},
    {"cola, blocks again", {"parallel.tp=2", "parallel.recompute=block"}},
    {"vanilla", {"parallel.tp=2", "parallel.strategy=vanilla"}},
    {"released", {"parallel.tp=2", "parallel.strategy=vanilla", "parallel.vanilla=released"}},
    {"full, tied", {"parallel.tp=2", "model.layer=full", "model.tied=on"}},
    {"a large vocabulary", {"model.vocab=20000"}},
    {"a head in chunks", {"model.vocab=20000", "train.head_chunk=1"}},
    {"a tied one", {"model.vocab=20000", "train.head_chunk=1", "model.tied=on"}},
    {"a large one, tied", {"model.vocab=20000", "model.tied=on"}},
    {"of 8 sequences", {"model.vocab=4000", "train.micro_batch=8", "train.head_chunk=2"}},
    {"bf16 in shards", {"train.precision=bf16", "parallel.dp=2", "parallel.zero=1"}},
    {"pure bf16", {"train.precision=bf16", "train.pure_bf16=on"}},
    {"gpipe", {"parallel.schedule=gpipe", "parallel.layout_exact=off"}},
    {"zb-h1", {"parallel.schedule=zb-h1"}},
    {"zb-h1, full", {"parallel.schedule=zb-h1", "model.layer=full", "parallel.tp=2"}},
    {"small buckets", {"parallel.dp=2", "parallel.zero=1", "parallel.bucket=0", "model.layers=24"}},
    {"zb-h1, vanilla", {"parallel.schedule=zb-h1", "parallel.strategy=vanilla", "parallel.tp=2"}},
    {"zb-h1, vanilla, wide",
     {"parallel.schedule=zb-h1", "parallel.strategy=vanilla", "parallel.tp=2", "model.width=256"}},
    {"zb-h1, released",
     {"parallel.schedule=zb-h1", "parallel.strategy=vanilla", "parallel.tp=2",
      "parallel.vanilla=released"}},
    {"zb-h1, full", {"parallel.schedule=zb-h1", "model.layer=full", "model.ffn=640"}},
    {"zb-h1, long ffn", {"parallel.schedule=zb-h1", "parallel.tp=2", "model.ffn=640"}},
    {"interleaved",
     {"parallel.schedule=interleaved", "parallel.virtual_stages=2", "model.layers=8"}},
};
enum { SHAPES = sizeof shapes / sizeof *shapes, PP = 4 };

static void shape_config(struct config *cfg, int shape)
{
    static const char *const common[] = {
        "model.width=128", "model.heads=8",  "model.kv_heads=4",
        "model.ffn=384",   "model.rank=32",  "model.layers=9",
        "train.seq=64",    "train.batch=16", "train.micro_batch=2"};

    config_default(cfg);
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        OK(config_override(cfg, common[i]));
    memset(cfg->origin, 0, sizeof cfg->origin);
    for (int i = 0; shapes[shape].words[i]; i++)
        OK(config_override(cfg, shapes[shape].words[i]));
    cfg->parallel.pp = PP;
    if (!cfg->parallel.dp)
        cfg->parallel.dp = 1;
    OK(config_resolve(cfg, 0, 1000));
    OK(config_validate(cfg, 0));
}

/* Bytes of a stage by the costs, for a deal. */
static double by_costs(const struct run_cost *cost, const int *first, int runs, int stage)
{
    double sum = 0;

    for (int k = 0; k < runs; k++)
        if (cost[k].stage == stage)
            sum += cost[k].bytes_else + (first[k + 1] - first[k]) * cost[k].bytes;
    return sum;
}

START_TEST(costs_are_what_a_rehearsal_finds)
{
    struct run_cost cost[2 * PP];
    int first[2 * PP + 1], runs;
    struct config cfg;
    size_t usual = 0;

    shape_config(&cfg, _i);
    runs = (int)(cfg.parallel.pp * cfg.parallel.virtual_stages);
    OK(run_costs(cost, &cfg, runs));
    OK(runs_deal(first, &cfg, runs));
    for (int stage = 0; stage < PP; stage++) {
        struct mesh at = {
            .tp = (int)cfg.parallel.tp, .dp = (int)cfg.parallel.dp, .pp = PP, .pp_rank = stage};
        double guess = by_costs(cost, first, runs, stage), real;
        struct step_memory m;

        OK(step_plan_at(&m, NULL, NULL, &cfg, &at, DT_F32, 1));
        usual = stage ? usual : m.scratch; /* what is more is the head's */
        real = (double)(m.state + m.grads + m.acts + (m.scratch > usual ? m.scratch - usual : 0));
        ck_assert_msg(fabs(guess - real) < 0.03 * real,
                      "%s: stage %d: %.0f bytes by the costs, %.0f rehearsed", shapes[_i].name,
                      stage, guess, real);
    }
}
END_TEST

/* ---- dealing a configuration ---- */

static void tiny_pipeline(struct config *cfg, int layers, int pp)
{
    char blocks[32];
    const char *changes[] = {blocks, NULL};

    snprintf(blocks, sizeof blocks, "model.layers=%d", layers);
    tiny_model_config(cfg, changes, 1);
    cfg->parallel.pp = pp;
}

START_TEST(a_large_head_takes_the_place_of_blocks)
{
    struct config cfg;
    int first[3];

    tiny_pipeline(&cfg, 8, 2);
    OK(runs_deal(first, &cfg, 2));
    ck_assert_int_le(first[1], 5);
    cfg.model.vocab = 8000;
    OK(runs_deal(first, &cfg, 2));
    ck_assert_int_eq(first[0], 0);
    ck_assert_int_eq(first[1], 7);
    ck_assert_int_eq(first[2], 8);
}
END_TEST

/* 6 blocks on 4 stages take as long as 7 (the head stands for one): the first stage, which holds
 * the embedding and most micro-batches, is spared. */
START_TEST(equal_times_spare_the_fullest_stage)
{
    struct config cfg;
    int first[5];

    tiny_pipeline(&cfg, 6, 4);
    cfg.train.batch = 16;
    cfg.train.micro_batch = 1;
    OK(runs_deal(first, &cfg, 4));
    ck_assert_int_eq(first[1], 1);
    ck_assert_int_eq(first[2], 3);
    ck_assert_int_eq(first[3], 5);
}
END_TEST

/* A stage that would take more than it may gives blocks away; what cannot be is refused with what
 * would do, and that then does. */
START_TEST(memory_is_a_limit)
{
    struct run_cost cost[4];
    struct config cfg;
    int first[5], even[5];
    const char *at;
    long least = 0;

    tiny_pipeline(&cfg, 200, 4);
    cfg.train.batch = 64;
    cfg.train.micro_batch = 1;
    cfg.train.seq = 512;
    OK(runs_deal(even, &cfg, 4));
    OK(run_costs(cost, &cfg, 4));
    cfg.parallel.stage_memory =
        (int64_t)(cost[0].bytes_else + even[1] * cost[0].bytes) / (1 << 20) * 3 / 4;
    OK(runs_deal(first, &cfg, 4));
    ck_assert_int_lt(first[1], even[1]);
    ck_assert_int_gt(first[4] - first[3], even[4] - even[3]);
    for (int k = 0; k < 4; k++)
        ck_assert_double_le(cost[k].bytes_else + (first[k + 1] - first[k]) * cost[k].bytes,
                            (double)cfg.parallel.stage_memory * (1 << 20));
    cfg.parallel.stage_memory = 1;
    status_clear();
    ck_assert_int_eq(runs_deal(first, &cfg, 4), ST_ECONFIG);
    at = strstr(status_message(), "take ");
    ck_assert_msg(at && sscanf(at, "take %ld MiB", &least) == 1, "%s", status_message());
    status_clear();
    cfg.parallel.stage_memory = least;
    OK(runs_deal(first, &cfg, 4));
    cfg.parallel.stage_memory = least - 1;
    ck_assert_int_eq(runs_deal(first, &cfg, 4), ST_ECONFIG);
    status_clear();
}
END_TEST

START_TEST(a_list_of_blocks_is_taken_or_refused)
{
    static const char *const bad[] = {"5", "5,4", "8,0", "5,3,1", "5;3", "x"};
    struct config cfg;
    int first[3];

    tiny_pipeline(&cfg, 8, 2);
    snprintf(cfg.parallel.stage_layers, sizeof cfg.parallel.stage_layers, "5,3");
    OK(runs_deal(first, &cfg, 2));
    ck_assert_int_eq(first[1], 5);
    ck_assert_int_eq(first[2], 8);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(cfg.parallel.stage_layers, sizeof cfg.parallel.stage_layers, "%s", bad[i]);
        ck_assert_msg(runs_deal(first, &cfg, 2) == ST_ECONFIG, "%s", bad[i]);
        status_clear();
    }
    cfg.parallel.stage_layers[0] = '\0';
    ck_assert_int_eq(runs_deal(first, &cfg, 9), ST_ECONFIG);
    status_clear();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("runs");
    TCase *tc = tcase_create("all");

    tcase_add_test(tc, no_deal_is_better);
    tcase_add_loop_test(tc, costs_are_what_a_rehearsal_finds, 0, SHAPES);
    tcase_add_test(tc, a_large_head_takes_the_place_of_blocks);
    tcase_add_test(tc, equal_times_spare_the_fullest_stage);
    tcase_add_test(tc, memory_is_a_limit);
    tcase_add_test(tc, a_list_of_blocks_is_taken_or_refused);
    suite_add_tcase(suite, tc);
    return check_unit(suite);
}
