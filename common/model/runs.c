#include "common/model/runs.h"

#include <math.h>
#include <stdlib.h>

/* ---- dealing by cost ---- */

enum { MIB = 1 << 20 };

struct deal {
    int *layers;
    double *room; /* [stages] bytes */
    const struct run_cost *cost;
    int runs, stages;
    double most_bytes; /* of a stage */
    double most_flops; /* of a run */
};

static double flops_of(const struct deal *d, int k)
{
    return d->cost[k].flops_else + d->layers[k] * d->cost[k].flops;
}

/* Nonzero when run k has room for one block more. */
static int takes(const struct deal *d, int k)
{
    const struct run_cost *c = &d->cost[k];

    return d->room[c->stage] + c->bytes <= d->most_bytes &&
           flops_of(d, k) + c->flops <= d->most_flops;
}

/* The run to which one block more is cheapest; -1: none takes it. by_bytes: the memory of its stage
 * first, then its time; else the other way round. */
static int cheapest(const struct deal *d, int by_bytes)
{
    double least[2] = {0, 0};
    int best = -1;

    for (int k = 0; k < d->runs; k++) {
        double flops = flops_of(d, k) + d->cost[k].flops;
        double bytes = d->room[d->cost[k].stage] + d->cost[k].bytes;
        double a = by_bytes ? bytes : flops, b = by_bytes ? flops : bytes;

        if (!takes(d, k) || (best >= 0 && (a > least[0] || (a == least[0] && b >= least[1]))))
            continue;
        best = k;
        least[0] = a;
        least[1] = b;
    }
    return best;
}

/* One block each, the others one by one; costs grow with every block, so that no exchange of two of
 * them could lower the largest. Returns how many found no place. */
static int64_t deal_out(struct deal *d, int64_t blocks, int by_bytes)
{
    int64_t left = blocks - d->runs;
    int over = 0, k;

    for (int i = 0; i < d->stages; i++)
        d->room[i] = 0;
    for (k = 0; k < d->runs; k++) {
        d->layers[k] = 1;
        d->room[d->cost[k].stage] += d->cost[k].bytes_else + d->cost[k].bytes;
    }
    for (int i = 0; i < d->stages; i++)
        over += d->room[i] > d->most_bytes;
    while (!over && left > 0 && (k = cheapest(d, by_bytes)) >= 0) {
        d->layers[k]++;
        d->room[d->cost[k].stage] += d->cost[k].bytes;
        left--;
    }
    return over ? blocks : left;
}

int64_t runs_balance(int *layers, double *room, const struct run_cost *cost, int runs, int stages,
                     int64_t blocks, double most_bytes)
{
    struct deal d = {.cost = cost,
                     .runs = runs,
                     .stages = stages,
                     .most_bytes = most_bytes > 0 ? most_bytes : (double)INFINITY,
                     .most_flops = INFINITY};
    int64_t left;
    double longest = 0;

    d.layers = layers;
    d.room = room;
    left = deal_out(&d, blocks, 0);
    if (left)
        return left;
    for (int k = 0; k < runs; k++)
        longest = flops_of(&d, k) > longest ? flops_of(&d, k) : longest;
    d.most_flops = longest;
    return deal_out(&d, blocks, 1);
}

/* The memory of the largest stage in the deal that needs least. */
static double least_bytes(int *layers, double *room, const struct run_cost *cost, int runs,
                          int stages, int64_t blocks)
{
    struct deal d = {.cost = cost,
                     .runs = runs,
                     .stages = stages,
                     .most_bytes = INFINITY,
                     .most_flops = INFINITY};
    double most = 0;

    d.layers = layers;
    d.room = room;
    (void)deal_out(&d, blocks, 1);
    for (int i = 0; i < stages; i++)
        most = room[i] > most ? room[i] : most;
    return most;
}

static enum status deal_by_cost(int *layers, double *room, struct run_cost *cost,
                                const struct config *cfg, int runs)
{
    const int64_t limit = cfg->parallel.stage_memory, blocks = cfg->model.layers;
    int stages = (int)cfg->parallel.pp;
    double least;

    TRY(run_costs(cost, cfg, runs));
    if (!runs_balance(layers, room, cost, runs, stages, blocks, (double)limit * MIB))
        return ST_OK;
    least = least_bytes(layers, room, cost, runs, stages, blocks);
    return fail(ST_ECONFIG,
                "parallel.stage_memory %lld MiB does not do for %lld blocks on %d stages: weights, "
                "gradients, moments and activations of the largest take %lld MiB at the least; set "
                "it so high, or more stages, tp, recompute or zero",
                (long long)limit, (long long)blocks, stages, (long long)(least / MIB) + 1);
}

static enum status by_cost(int *layers, const struct config *cfg, int runs)
{
    struct run_cost *cost = malloc((size_t)runs * sizeof *cost);
    double *room = malloc((size_t)cfg->parallel.pp * sizeof *room);
    enum status st = cost && room ? deal_by_cost(layers, room, cost, cfg, runs)
                                  : fail(ST_ENOMEM, "no memory to deal blocks to %d runs", runs);

    free(cost);
    free(room);
    return st;
}

/* ---- dealing by a list ---- */

/* layers[runs] from "5,3". */
static enum status read_list(int *layers, const struct config *cfg, int runs)
{
    const char *at = cfg->parallel.stage_layers;
    long sum = 0;
    int n = 0;

    while (*at) {
        char *end;
        long value = strtol(at, &end, 10);

        if (end == at || value < 1 || value > cfg->model.layers || (*end && *end != ','))
            return fail(ST_ECONFIG,
                        "parallel.stage_layers \"%s\" is not a list of numbers of blocks such as "
                        "\"5,3\", each from 1 to model.layers %lld",
                        cfg->parallel.stage_layers, (long long)cfg->model.layers);
        if (n < runs)
            layers[n] = (int)value;
        n++;
        sum += value;
        at = *end ? end + 1 : end;
    }
    if (n == runs && sum == cfg->model.layers)
        return ST_OK;
    return fail(ST_ECONFIG,
                "parallel.stage_layers \"%s\" names %d runs with %ld blocks; parallel.pp %lld x "
                "parallel.virtual_stages %lld needs %d with model.layers %lld in all: set it to "
                "\"\" for an even deal",
                cfg->parallel.stage_layers, n, sum, (long long)cfg->parallel.pp,
                (long long)cfg->parallel.virtual_stages, runs, (long long)cfg->model.layers);
}

enum status runs_deal(int *first, const struct config *cfg, int runs)
{
    int *layers = first + 1; /* turned into sums at the end */

    if (runs > RUNS_MAX || runs > cfg->model.layers)
        return fail(ST_ECONFIG,
                    "model.layers %lld cannot be dealt to parallel.pp %lld x "
                    "parallel.virtual_stages %lld = %d runs of one block or more: set fewer of "
                    "them, or more layers",
                    (long long)cfg->model.layers, (long long)cfg->parallel.pp,
                    (long long)cfg->parallel.virtual_stages, runs);
    if (cfg->parallel.stage_layers[0])
        TRY(read_list(layers, cfg, runs));
    else
        TRY(by_cost(layers, cfg, runs));
    first[0] = 0;
    for (int i = 0; i < runs; i++)
        first[i + 1] += first[i];
    return ST_OK;
}
