#include "common/cli/dry_run.h"

#include "common/backend/ledger.h"
#include "common/base/text.h"
#include "common/tokenizer/tokenizer.h"
#include "common/train/place.h"

#include <stdlib.h>

static void print_memory(const struct step_memory *m)
{
    const struct {
        const char *name;
        size_t bytes;
    } rows[] = {{"weights and optimiser", m->state},
                {"gradients", m->grads},
                {"kept activations", m->acts},
                {"scratch", m->scratch},
                {"batch", m->batch},
                {"messages under way", m->tp_staging + m->dp_staging}};
    double sum = 0.0;
    char text[TEXT_NUMBER];

    puts("\nmemory of a rank");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        printf("  %-24s %14s\n", rows[i].name, text_bytes(text, (double)rows[i].bytes));
        sum += (double)rows[i].bytes;
    }
    printf("  %-24s %14s\n", "in all", text_bytes(text, sum));
}

static void print_counts(const struct config *cfg, const struct model *m, double flops,
                         int64_t ranks)
{
    double tokens = (double)cfg->train.batch * (double)cfg->train.seq;
    char a[TEXT_NUMBER], b[TEXT_NUMBER];

    printf("parameters     %lld (%s) in all, %s on each of %lld ranks (tp %lld x dp %lld)\n",
           (long long)params_count(&m->params), text_count(a, (double)params_count(&m->params)),
           text_count(b, (double)params_count_local(&m->params)), (long long)ranks,
           (long long)cfg->parallel.tp, (long long)cfg->parallel.dp);
    printf("tokens a step  %.0f\n", tokens);
    printf("FLOPs a token  %s by the formula (6 a weight, attention counted by half)\n",
           text_count(a, model_flops_per_token(m)));
    printf("FLOPs a step   %s by the formula, %s counted on this rank x %lld ranks\n",
           text_count(a, tokens * model_flops_per_token(m)), text_count(b, flops),
           (long long)ranks);
}

static enum status rehearse(struct config *cfg, int64_t ranks)
{
    struct step_memory memory;
    struct ledger ledger;
    struct model model;
    double flops;

    TRY(step_plan(&memory, &ledger, &flops, cfg, place_wide(cfg), 1));
    TRY(model_open(&model, cfg, 0, (int)cfg->parallel.tp, place_wide(cfg)));
    params_types(&model.params, cfg, place_wide(cfg));
    struct arena plan = arena_plan("weights");
    enum status st = params_carve(&model.params, &plan, 0);

    if (st == ST_OK) {
        print_counts(cfg, &model, flops, ranks);
        print_memory(&memory);
        puts("\nsent by a rank in a step");
        ledger_print(&ledger, false, stdout);
    }
    model_close(&model);
    return st;
}

enum status dry_run(struct host *job, struct config *cfg, int64_t ranks)
{
    struct tokenizer tokenizer;

    TRY(tokenizer_open(&tokenizer, cfg->data.tokenizer));
    TRY(config_resolve(cfg, ranks, tokenizer.vocab));
    tokenizer_close(&tokenizer);
    TRY(config_validate(cfg, ranks));
    ranks = cfg->parallel.tp * cfg->parallel.dp;
    return host_rank(job) == 0 ? rehearse(cfg, ranks) : ST_OK;
}
