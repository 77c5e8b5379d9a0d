/* BTP, vanilla tensor parallelism and one rank are one model; the forms of the norm are one norm;
 * recomputation changes nothing. Each side is a job of its own (job.h). */
#include "validation/cases.h"
#include "validation/check.h"
#include "validation/job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { IN_QUICK = 1 };

/* One comparison: the model under `words` against it under `against`. */
struct pair {
    const char *name, *words, *against;
    enum bound_id loss, gradients;
    int quick;
};

#define F64    "train.precision=fp64 "
#define COLA   "model.layer=cola "
#define SVD    "model.layer=svd "
#define GQA    "model.heads=16 model.kv_heads=8 "
#define V      "parallel.strategy=vanilla "
#define REL    V "parallel.vanilla=released "
#define LOCAL  "parallel.norm=online_local "
#define SYNC   "parallel.norm=sync "
#define TP(n)  "parallel.tp=" #n " "
#define DIFF64 BOUND_STRATEGY64, BOUND_STRATEGY64
#define DIFF32 BOUND_STRATEGY32, BOUND_STRATEGY32
#define SAME   BOUND_EQUAL, BOUND_EQUAL
#define ROUND  BOUND_BF16_LOSS, BOUND_BF16

static const struct pair pairs[] = {
    {"cola fp64, btp on 2 ranks", COLA F64 TP(2), COLA F64, DIFF64, IN_QUICK},
    {"cola fp64, btp on 4 ranks", COLA F64 TP(4), COLA F64, DIFF64, 0},
    {"cola fp64, btp tied on 2 ranks", COLA F64 TP(2) "model.tied=on", COLA F64 "model.tied=on",
     DIFF64, 0},
    {"cola fp64, btp ungrouped on 2 ranks", COLA F64 TP(2) "parallel.grouping=off", COLA F64,
     DIFF64, 0},
    {"cola fp64, btp online_local on 1 rank", COLA F64 LOCAL, COLA F64, DIFF64, 0},
    {"cola fp64, btp online_local on 2 ranks", COLA F64 TP(2) LOCAL, COLA F64, DIFF64, IN_QUICK},
    {"cola fp64, btp sync on 1 rank", COLA F64 SYNC, COLA F64, DIFF64, 0},
    {"cola fp64, btp sync on 2 ranks", COLA F64 TP(2) SYNC, COLA F64, DIFF64, IN_QUICK},
    {"cola fp64, btp online_local on 4 ranks", COLA F64 TP(4) LOCAL, COLA F64, DIFF64, 0},
    {"cola fp64, btp sync on 4 ranks", COLA F64 TP(4) SYNC, COLA F64, DIFF64, 0},
    {"cola fp64, vanilla strong on 1 rank", COLA F64 V, COLA F64, DIFF64, 0},
    {"cola fp64, vanilla strong on 2 ranks", COLA F64 TP(2) V, COLA F64, DIFF64, IN_QUICK},
    {"cola fp64, vanilla strong on 4 ranks", COLA F64 TP(4) V, COLA F64, DIFF64, 0},
    {"cola fp64, vanilla released on 2 ranks", COLA F64 TP(2) REL, COLA F64, DIFF64, IN_QUICK},
    {"cola fp64, vanilla released on 4 ranks", COLA F64 TP(4) REL, COLA F64, DIFF64, 0},
    {"cola fp64, btp tp 2 x dp 2, micro-batch 1",
     COLA F64 TP(2) "parallel.dp=2 train.micro_batch=1", COLA F64, DIFF64, 0},
    {"svd fp64, btp grouped queries on 2 ranks", SVD F64 GQA TP(2), SVD F64 GQA, DIFF64, 0},
    {"svd fp64, vanilla strong grouped queries on 4 ranks", SVD F64 GQA TP(4) V, SVD F64 GQA,
     DIFF64, IN_QUICK},
    {"svd fp64, vanilla released grouped queries on 2 ranks", SVD F64 GQA TP(2) REL, SVD F64 GQA,
     DIFF64, 0},
    {"full fp64, on 2 ranks", "model.layer=full " F64 GQA TP(2), "model.layer=full " F64 GQA,
     DIFF64, 0},
    {"cola fp32, btp on 4 ranks", COLA TP(4), COLA F64, DIFF32, IN_QUICK},
    {"cola fp32, btp online_local on 2 ranks", COLA TP(2) LOCAL, COLA F64, DIFF32, 0},
    {"cola fp32, btp sync on 2 ranks", COLA TP(2) SYNC, COLA F64, DIFF32, 0},
    {"cola fp32, vanilla strong on 2 ranks", COLA TP(2) V, COLA F64, DIFF32, 0},
    {"cola fp32, vanilla released on 2 ranks", COLA TP(2) REL, COLA F64, DIFF32, 0},
    {"full fp32, on 2 ranks", "model.layer=full " TP(2), "model.layer=full " F64, DIFF32, 0},
    {"cola btp recompute none = elementwise, 2 ranks", COLA TP(2) "parallel.recompute=none",
     COLA TP(2), SAME, 0},
    {"cola vanilla recompute none = elementwise, 2 ranks", COLA TP(2) V "parallel.recompute=none",
     COLA TP(2) V, SAME, 0},
    {"full recompute none = elementwise, 2 ranks",
     "model.layer=full " TP(2) "parallel.recompute=none", "model.layer=full " TP(2), SAME, 0},
    {"cola btp recompute block = elementwise, 2 ranks", COLA TP(2) "parallel.recompute=block",
     COLA TP(2), SAME, 0},
    {"cola btp recompute bottleneck = elementwise, 2 ranks",
     COLA TP(2) "parallel.recompute=bottleneck", COLA TP(2), SAME, IN_QUICK},
    {"svd btp sync recompute bottleneck = elementwise, 2 ranks",
     SVD TP(2) SYNC "parallel.recompute=bottleneck", SVD TP(2) SYNC, SAME, 0},
    {"cola vanilla strong recompute block = elementwise, 2 ranks",
     COLA TP(2) V "parallel.recompute=block", COLA TP(2) V, SAME, 0},
    {"cola vanilla released recompute block = elementwise, 2 ranks",
     COLA TP(2) REL "parallel.recompute=block", COLA TP(2) REL, SAME, 0},
    {"full recompute block = elementwise, 2 ranks",
     "model.layer=full " TP(2) "parallel.recompute=block", "model.layer=full " TP(2), SAME, 0},
    {"cola btp grouped = ungrouped, 2 ranks", COLA TP(2) "parallel.grouping=off", COLA TP(2), SAME,
     0},
    {"cola bf16 against fp32, 2 ranks", COLA TP(2) "train.precision=bf16", COLA TP(2), ROUND,
     IN_QUICK},
    {"cola bf16, bf16 payload against fp32, 2 ranks",
     COLA TP(2) "train.precision=bf16 parallel.tp_payload=bf16", COLA TP(2), ROUND, 0},
    {"cola bf16 vanilla against fp32, 2 ranks", COLA TP(2) V "train.precision=bf16", COLA TP(2) V,
     ROUND, 0},
    {"svd bf16 against fp32, 2 ranks", SVD TP(2) "train.precision=bf16", SVD TP(2), ROUND, 0},
    {"full bf16 against fp32, 2 ranks", "model.layer=full " TP(2) "train.precision=bf16",
     "model.layer=full " TP(2), ROUND, 0},
};

/* The last side that others are compared with: most rows share it. */
struct side {
    const char *words;
    struct job job;
};

static enum status run(struct job *j, const struct check_options *o, struct config *cfg,
                       const char *words)
{
    TRY(case_configf(cfg, CASE_TINY "run.threads=1 %s", words));
    return job_run(j, o, cfg, CASE_TINY "run.threads=1 %s", words);
}

static enum status run_against(struct side *side, const struct check_options *o, struct config *cfg,
                               const char *words)
{
    if (side->words && !strcmp(side->words, words))
        return ST_OK;
    if (side->words)
        job_close(&side->job);
    side->words = NULL;
    TRY(run(&side->job, o, cfg, words));
    side->words = words;
    return ST_OK;
}

static enum status check_pair(struct side *side, const struct check_options *o, struct report *r,
                              struct config *cfg, const struct pair *p)
{
    struct job j;
    const char *where;
    double loss, norm, gradients;

    TRY(run_against(side, o, cfg, p->against));
    TRY(run(&j, o, cfg, p->words));
    loss = fabs(j.loss - side->job.loss) / fabs(side->job.loss);
    norm = fabs(j.grad_norm - side->job.grad_norm) / side->job.grad_norm;
    gradients = job_gradients_apart(&side->job, &j, &where);
    report_value(r, p->loss, loss, "%s: loss", p->name);
    report_value(r, p->gradients, norm, "%s: grad norm", p->name);
    if (!report_value(r, p->gradients, gradients, "%s: gradients", p->name))
        report_note(r, "worst in %s", where);
    job_close(&j);
    return ST_OK;
}

enum status check_strategies(const struct check_options *o, struct report *r)
{
    struct config *cfg = malloc(sizeof *cfg);
    struct side side = {0};
    enum status st = cfg ? ST_OK : fail(ST_ENOMEM, "no memory for a configuration");

    for (size_t i = 0; st == ST_OK && i < sizeof pairs / sizeof *pairs; i++)
        if (check_wanted(o, pairs[i].name) && (!o->quick || pairs[i].quick))
            st = check_pair(&side, o, r, cfg, &pairs[i]);
    if (side.words)
        job_close(&side.job);
    free(cfg);
    return st;
}
