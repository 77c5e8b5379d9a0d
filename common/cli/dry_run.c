#include "common/cli/dry_run.h"

#include "common/backend/ledger.h"
#include "common/base/text.h"
#include "common/checkpoint/snapshot.h"
#include "common/cli/device_memory.h"
#include "common/model/runs.h"
#include "common/tokenizer/tokenizer.h"
#include "common/train/place.h"

#include <stdlib.h>

static void print_row(const char *name, size_t bytes)
{
    char text[TEXT_NUMBER];

    if (bytes > 0)
        printf("  %-24s %14s\n", name, text_bytes(text, (double)bytes));
}

/* On ref device and host are one memory; on gpu the snapshot is no part of the sum. */
static enum status print_memory(const struct config *cfg, const struct step_memory *m,
                                uint64_t snapshot)
{
    int host = cfg->run.backend == BACKEND_REF;
    struct memory_beside beside;

    TRY(device_memory_beside(&beside, cfg));
    print_row("weights and optimiser", m->state);
    print_row("gradients", m->grads);
    print_row("kept activations", m->acts);
    print_row("scratch", m->scratch);
    print_row("batch", m->batch);
    print_row("messages under way",
              m->tp_staging + m->dp_staging + m->pp_staging + m->second_staging);
    print_row("bf16 operands, widened", m->widened);
    print_row("cuBLASLt's workspace", beside.products);
    print_row("scratch of operations", beside.scratch);
    print_row("NCCL's buffers, about", beside.messages);
    print_row("CUDA's context, about", beside.context);
    print_row("libraries' code, about", beside.code);
    if (host)
        print_row("snapshot, on the host", snapshot);
    print_row("in all",
              step_memory_bytes(m) + memory_beside_bytes(&beside) + (host ? snapshot : 0));
    if (!host)
        print_row("snapshot, on the host", snapshot);
    return ST_OK;
}

static void print_counts(const struct config *cfg, const struct model *m, double flops,
                         int64_t ranks)
{
    double tokens = (double)cfg->train.batch * (double)cfg->train.seq;
    char a[TEXT_NUMBER], b[TEXT_NUMBER];

    printf(
        "parameters     %lld (%s) in all, %s on each of %lld ranks (tp %lld x dp %lld x pp %lld)\n",
        (long long)m->params_all, text_count(a, (double)m->params_all),
        text_count(b, (double)params_count_local(&m->params)), (long long)ranks,
        (long long)cfg->parallel.tp, (long long)cfg->parallel.dp, (long long)cfg->parallel.pp);
    printf("tokens a step  %.0f\n", tokens);
    printf("logits at once %s on a rank: %lld of the %lld sequences of a micro-batch\n",
           text_bytes(a, (double)config_head_bytes(cfg)), (long long)config_head_chunk(cfg),
           (long long)cfg->train.micro_batch);
    printf("FLOPs a token  %s by the formula (6 a weight, attention counted by half)\n",
           text_count(a, model_flops_per_token(m)));
    printf("FLOPs a step   %s by the formula, %s counted on this rank x %lld ranks\n",
           text_count(a, tokens * model_flops_per_token(m)), text_count(b, flops),
           (long long)ranks);
}

/* Numbers of the ranks of a stage, and its blocks. */
static void print_place(const struct config *cfg, const struct model *m, int stage)
{
    int64_t ranks = cfg->parallel.tp * cfg->parallel.dp;
    long long first = stage * ranks;

    printf("\nstage %d, ranks %lld to %lld:", stage, first, first + ranks - 1);
    for (int c = 0; c < m->part.chunks; c++) {
        int begin, end;

        model_chunk(m, c, &begin, &end);
        printf(" %sblocks %d to %d%s", begin == 0 ? "embedding, " : "", begin, end - 1,
               end == cfg->model.layers ? ", head" : "");
    }
    printf(": %lld parameters on a rank\n", (long long)params_count_local(&m->params));
}

/* What a stage takes: floating-point operations, bytes of memory. */
struct stage_cost {
    double flops, bytes;
};

/* One stage: that of the first TP rank, of the replica with the largest share of the batch. */
static enum status rehearse_stage(struct stage_cost *cost, struct config *cfg, int64_t ranks,
                                  int stage)
{
    const struct config_parallel *p = &cfg->parallel;
    struct mesh at = {.tp = (int)p->tp,
                      .dp = (int)p->dp,
                      .pp = (int)p->pp,
                      .dp_rank = (int)p->dp - 1,
                      .pp_rank = stage};
    struct model_part part = {.tp_size = at.tp,
                              .stage = stage,
                              .stages = at.pp,
                              .chunks = at.pp > 1 ? (int)p->virtual_stages : 1};
    struct arena plan = arena_plan("weights");
    struct step_memory memory;
    struct ledger ledger;
    struct model model;
    double flops;
    enum status st;

    TRY(step_plan_at(&memory, &ledger, &flops, cfg, &at, place_wide(cfg), 1));
    TRY(model_open_part(&model, cfg, &part, place_wide(cfg)));
    params_types(&model.params, cfg, place_wide(cfg));
    st = params_carve(&model.params, &plan, 0);
    *cost = (struct stage_cost){flops, (double)step_memory_bytes(&memory)};
    if (st == ST_OK) {
        if (stage == 0)
            print_counts(cfg, &model, flops, ranks);
        if (at.pp > 1)
            print_place(cfg, &model, stage);
        puts("\nmemory of a rank");
        st = print_memory(cfg, &memory, cfg->run.save ? snapshot_plan(&model.params, at.dp) : 0);
    }
    if (st == ST_OK) {
        puts("\nsent by a rank in a step");
        ledger_print(&ledger, false, stdout);
    }
    model_close(&model);
    return st;
}

/* How even the deal is: blocks, operations and memory of each stage. */
static enum status print_deal(const struct config *cfg, const struct stage_cost *cost)
{
    int pp = (int)cfg->parallel.pp, runs = pp * (int)cfg->parallel.virtual_stages;
    int *first = malloc(((size_t)runs + 1) * sizeof *first);
    enum status st = first ? runs_deal(first, cfg, runs)
                           : fail(ST_ENOMEM, "no memory for %d runs of blocks", runs);
    char a[TEXT_NUMBER], b[TEXT_NUMBER];
    double most = 0.0;

    for (int i = 0; i < pp; i++)
        most = cost[i].flops > most ? cost[i].flops : most;
    if (st == ST_OK)
        printf("\nstages         blocks  FLOPs a step  of the longest  memory of a rank\n");
    for (int i = 0; st == ST_OK && i < pp; i++) {
        int blocks = 0;

        for (int k = i; k < runs; k += pp)
            blocks += first[k + 1] - first[k];
        printf("  %-12d %6d  %12s  %12.0f %%  %16s\n", i, blocks, text_count(a, cost[i].flops),
               100.0 * cost[i].flops / most, text_bytes(b, cost[i].bytes));
    }
    free(first);
    return st;
}

static enum status rehearse(struct config *cfg, int64_t ranks)
{
    int pp = (int)cfg->parallel.pp;
    struct stage_cost *cost = calloc((size_t)pp, sizeof *cost);
    enum status st = cost ? ST_OK : fail(ST_ENOMEM, "no memory to rehearse %d stages", pp);

    for (int stage = 0; st == ST_OK && stage < pp; stage++)
        st = rehearse_stage(&cost[stage], cfg, ranks, stage);
    if (st == ST_OK && pp > 1)
        st = print_deal(cfg, cost);
    free(cost);
    return st;
}

enum status dry_run(struct host *job, struct config *cfg, int64_t ranks)
{
    struct tokenizer tokenizer;

    TRY(tokenizer_open(&tokenizer, cfg->data.tokenizer));
    TRY(config_resolve(cfg, ranks, tokenizer.vocab));
    tokenizer_close(&tokenizer);
    TRY(config_validate(cfg, ranks));
    ranks = cfg->parallel.tp * cfg->parallel.dp * cfg->parallel.pp;
    return host_rank(job) == 0 ? rehearse(cfg, ranks) : ST_OK;
}
