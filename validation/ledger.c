/* Counted traffic and operations against the closed formulas of docs/math.md. */
#include "common/model/grains.h"
#include "common/train/place.h"
#include "common/train/step.h"
#include "validation/cases.h"
#include "validation/check.h"
#include "validation/expected.h"
#include "validation/job.h"

#include <stdlib.h>
#include <string.h>

/* How a block can be cut, in words of the configuration. */
struct form {
    const char *name, *words;
};

static const struct form forms[] = {
    {"full", "model.layer=full"},
    {"full, biases, tied", "model.layer=full model.qkv_bias=on model.tied=on"},
    {"vanilla released", "model.layer=cola parallel.strategy=vanilla parallel.vanilla=released"},
    {"vanilla strong", "model.layer=svd parallel.strategy=vanilla parallel.vanilla=strong"},
    {"btp grouped online", "model.layer=cola"},
    {"btp grouped online_local", "model.layer=cola parallel.norm=online_local"},
    {"btp grouped sync", "model.layer=cola parallel.norm=sync"},
    {"btp single online", "model.layer=svd parallel.grouping=off"},
    {"btp single online_local",
     "model.layer=cola parallel.grouping=off parallel.norm=online_local"},
    {"btp single sync", "model.layer=cola parallel.grouping=off parallel.norm=sync"},
};
enum { FORMS = sizeof forms / sizeof *forms };

static const char *const recompute[] = {"none", "block", "bottleneck"};

static int has_recompute(const struct form *f, const char *mode)
{
    return strcmp(mode, "bottleneck") || !strncmp(f->name, "btp", 3);
}

/* What else a layout may be: every one of these is tried for every form. */
static const char *const variants[] = {
    "",
    "model.tied=on",
    "model.heads=16 model.kv_heads=8",
    "model.heads=16 model.kv_heads=8 model.tied=on train.micro_batch=2",
    "train.micro_batch=2",
    "train.micro_batch=1 parallel.dp=2",
    "train.micro_batch=2 parallel.overlap=all",
    "train.micro_batch=4 parallel.overlap=off",
    "parallel.dp=2 model.tied=on",
    "parallel.dp=4 train.precision=fp64",
    "parallel.pp=2 train.micro_batch=2",
    "parallel.pp=2 train.micro_batch=4 parallel.overlap=all",
    "parallel.pp=4 parallel.dp=2 model.tied=on train.micro_batch=1 parallel.schedule=gpipe",
    "parallel.pp=2 parallel.schedule=interleaved parallel.virtual_stages=2 train.micro_batch=1",
    "train.head_chunk=2",
    "train.head_chunk=3 parallel.dp=2 train.micro_batch=4 model.tied=on",
    "parallel.pp=2 train.micro_batch=2 train.head_chunk=1",
    "parallel.dp=4 parallel.zero=1",
    "parallel.dp=2 parallel.zero=1 parallel.pp=2 model.tied=on train.micro_batch=2",
};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* Describes the first purpose whose counts are not the expected ones into where; 0 when none. */
static int ledger_differs(char where[256], const struct ledger *l, const struct config *cfg,
                          const struct expected_place *at)
{
    struct expected_row want[LEDGER_COUNT];

    expected_step(want, cfg, at);
    for (int i = 0; i < LEDGER_COUNT; i++) {
        const struct ledger_row *got = &l->row[i];

        if (got->calls == want[i].calls && got->elements == want[i].elements &&
            got->wire_bytes == want[i].bytes)
            continue;
        snprintf(where, 256,
                 "%s: counted %lld calls, %lld elements, %lld bytes; the formula says %lld, %lld, "
                 "%lld",
                 ledger_name((enum ledger_purpose)i), (long long)got->calls,
                 (long long)got->elements, (long long)got->wire_bytes, (long long)want[i].calls,
                 (long long)want[i].elements, (long long)want[i].bytes);
        return 1;
    }
    return 0;
}

/* Shares of ZeRO-1 on a stage. */
static enum status shares_of(struct expected_place *at, const struct config *cfg)
{
    const struct config_parallel *p = &cfg->parallel;
    struct model_part part = {.tp_size = (int)p->tp,
                              .stage = at->stage,
                              .stages = (int)p->pp,
                              .chunks = p->pp > 1 ? (int)p->virtual_stages : 1};
    struct model m;
    struct grains g;
    enum status st;

    if (!p->zero || p->dp == 1)
        return ST_OK;
    TRY(model_open_part(&m, cfg, &part, place_wide(cfg)));
    st = grains_open(&g, &m.params, 0, (int)p->dp, 1, (size_t)p->bucket << 20);
    if (st == ST_OK) {
        at->share = g.share[0];
        at->share2 = g.share2[0];
        grains_close(&g);
    }
    model_close(&m);
    return st;
}

/* Every stage of a configuration. */
static enum status rehearse(struct config *cfg, char *where, int *differs)
{
    const struct config_parallel *p = &cfg->parallel;
    struct step_memory memory;
    struct ledger ledger;

    *differs = 0;
    for (int stage = 0; stage < p->pp && !*differs; stage++) {
        struct expected_place at = {.stage = stage};
        struct mesh mesh = {.tp = (int)p->tp,
                            .dp = (int)p->dp,
                            .pp = (int)p->pp,
                            .dp_rank = (int)p->dp - 1,
                            .pp_rank = stage};

        TRY(shares_of(&at, cfg));
        TRY(step_plan_at(&memory, &ledger, NULL, cfg, &mesh, place_wide(cfg), 1));
        *differs = ledger_differs(where, &ledger, cfg, &at);
    }
    return ST_OK;
}

/* One row: a form under a recompute mode, at tp 1 to 8, in all variants. */
static enum status rehearse_form(struct report *r, struct config *cfg, const struct form *f,
                                 const char *mode)
{
    char where[256], first[768] = "", found[64];
    int layouts = 0, bad = 0;

    for (int tp = 1; tp <= 8; tp *= 2)
        for (int v = 0; v < VARIANTS; v++) {
            int differs = 1;
            enum status st;

            TRY(case_configf(cfg, CASE_TINY "%s parallel.recompute=%s parallel.tp=%d %s", f->words,
                             mode, tp, variants[v]));
            st = rehearse(cfg, where, &differs);
            if (st != ST_OK)
                status_prefix("%s, recompute %s, tp %d %s: ", f->name, mode, tp, variants[v]);
            TRY(st);
            if (differs && !first[0])
                snprintf(first, sizeof first, "tp %d %s  %s", tp, variants[v], where);
            bad += differs;
            layouts++;
        }
    snprintf(found, sizeof found, "%d of %d", layouts - bad, layouts);
    if (!report_equal(r, !bad, found, "calls, elements, bytes: %s, recompute %s, rehearsed",
                      f->name, mode))
        report_note(r, "%s", first);
    return ST_OK;
}

static enum status rehearse_forms(const struct check_options *o, struct report *r,
                                  struct config *cfg)
{
    for (int i = 0; i < FORMS; i++)
        for (int m = 0; m < 3; m++)
            if (check_wanted(o, forms[i].name) && has_recompute(&forms[i], recompute[m]))
                TRY(rehearse_form(r, cfg, &forms[i], recompute[m]));
    return ST_OK;
}

/* ---- operations ---- */

static double apart(double a, double b)
{
    double most = a > b ? a : b, least = a > b ? b : a;

    return (most - least) / most;
}

static enum status flops_row(struct report *r, struct config *cfg, const struct form *f, int tp)
{
    double tokens = (double)(cfg->train.batch * cfg->train.seq), counted, worst;
    struct step_memory memory;
    struct model m;

    TRY(step_plan(&memory, NULL, &counted, cfg, place_wide(cfg), 1));
    TRY(model_open(&m, cfg, 0, tp, place_wide(cfg)));
    worst = apart(model_flops_per_token(&m), expected_flops(cfg));
    report_value(r, BOUND_FLOPS, worst, "FLOPs a token, program's formula: %s, tp %d", f->name, tp);
    worst = apart(counted * tp, tokens * model_flops_per_token(&m));
    report_value(r, BOUND_FLOPS, worst, "FLOPs of a step, counted on %d rank(s): %s", tp, f->name);
    model_close(&m);
    return ST_OK;
}

/* The released form of vanilla computes attention p times, so its count is compared at tp 1. A
 * vocabulary without padding: padded rows are multiplied, but are no work of the model. */
static enum status check_flops(const struct check_options *o, struct report *r, struct config *cfg)
{
    for (int i = 0; check_wanted(o, "FLOPs") && i < FORMS; i++)
        for (int tp = 1; tp <= 4; tp += 3) {
            if (tp > 1 && !strcmp(forms[i].name, "vanilla released"))
                continue;
            TRY(case_configf(cfg,
                             CASE_TINY "model.vocab=256 %s parallel.tp=%d model.tied=%s "
                                       "model.heads=16 model.kv_heads=8",
                             forms[i].words, tp, i % 2 ? "on" : "off"));
            TRY(flops_row(r, cfg, &forms[i], tp));
        }
    return ST_OK;
}

/* ---- real jobs ---- */

static enum status job_row(const struct check_options *o, struct report *r, struct config *cfg,
                           const struct form *f, const char *layout)
{
    struct expected_place at = {0}; /* rank 0's ledger */
    char where[256];
    struct job job;
    int differs = 1;

    TRY(case_configf(cfg, CASE_TINY "%s %s", f->words, layout));
    TRY(job_run(&job, o, cfg, CASE_TINY "%s %s", f->words, layout));
    TRY(shares_of(&at, cfg));
    differs = ledger_differs(where, &job.ledger, cfg, &at);
    if (!report_equal(r, !differs, "counts", "calls, elements, bytes: %s, %s, run", f->name,
                      layout))
        report_note(r, "%s", where);
    job_close(&job);
    return ST_OK;
}

static enum status check_jobs(const struct check_options *o, struct report *r, struct config *cfg)
{
    static const char *const layouts[] = {
        "parallel.tp=2 train.micro_batch=4 model.tied=on",
        "parallel.tp=2 parallel.dp=2 parallel.recompute=block",
        "parallel.tp=4 train.precision=fp64 train.head_chunk=3",
        "parallel.pp=2 parallel.dp=2 parallel.zero=1 model.tied=on train.micro_batch=2",
    };

    for (int i = 0; i < FORMS; i++)
        for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++)
            if (check_wanted(o, forms[i].name) && (!o->quick || (i + l) % 3 == 0))
                TRY(job_row(o, r, cfg, &forms[i], layouts[l]));
    for (int i = 0; i < FORMS; i++) /* nothing may be sent while recomputing */
        if (check_wanted(o, forms[i].name) && has_recompute(&forms[i], "bottleneck") &&
            (!o->quick || i % 3 == 0))
            TRY(job_row(o, r, cfg, &forms[i], "parallel.tp=2 parallel.recompute=bottleneck"));
    return ST_OK;
}

enum status check_ledger(const struct check_options *o, struct report *r)
{
    struct config *cfg = malloc(sizeof *cfg);
    enum status st;

    if (!cfg)
        return fail(ST_ENOMEM, "no memory for a configuration");
    st = rehearse_forms(o, r, cfg);
    if (st == ST_OK)
        st = check_flops(o, r, cfg);
    if (st == ST_OK)
        st = check_jobs(o, r, cfg);
    free(cfg);
    return st;
}
