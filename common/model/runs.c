#include "common/model/runs.h"

#include <stdlib.h>

static double block_weights(const struct config *cfg)
{
    const struct config_model *m = &cfg->model;
    int64_t head_dim = m->width / m->heads;
    double d = (double)m->width, k = (double)(m->kv_heads * head_dim);
    double f = (double)m->ffn, r = (double)m->rank;

    if (!config_low_rank(cfg))
        return 2 * d * d + 2 * d * k + 3 * d * f;
    return r * (4 * d + 2 * (d + k) + 3 * (d + f));
}

struct run_cost run_cost(const struct config *cfg, int64_t layers, int is_first, int is_last)
{
    double d = (double)cfg->model.width, block = block_weights(cfg);
    double vocab = (double)config_vocab_padded(cfg) * d, n = (double)layers;
    struct run_cost c = {.flops = n * (2 * block + 2 * d * (double)(cfg->train.seq + 1)),
                         .weights = n * block};

    if (is_last)
        c.flops += 2 * vocab;
    if (is_first || is_last) /* a tied matrix stands on both */
        c.weights += vocab * (1 + (is_first && is_last && !cfg->model.tied));
    return c;
}

static struct run_cost cost_of(const struct config *cfg, const int *layers, int run, int runs)
{
    return run_cost(cfg, layers[run], run == 0, run == runs - 1);
}

static int cheapest(const struct config *cfg, const int *layers, int runs)
{
    struct run_cost least = cost_of(cfg, layers, 0, runs);
    int best = 0;

    for (int i = 1; i < runs; i++) {
        struct run_cost c = cost_of(cfg, layers, i, runs);

        if (c.flops < least.flops || (c.flops == least.flops && c.weights < least.weights)) {
            best = i;
            least = c;
        }
    }
    return best;
}

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
    for (int i = 0; i < runs; i++)
        layers[i] = 1;
    if (cfg->parallel.stage_layers[0])
        TRY(read_list(layers, cfg, runs));
    else
        for (int64_t left = cfg->model.layers - runs; left > 0; left--)
            layers[cheapest(cfg, layers, runs)]++;
    first[0] = 0;
    for (int i = 0; i < runs; i++)
        first[i + 1] += first[i];
    return ST_OK;
}
