/* One hash for every layout of a model: each layout is a run of `narrows train` on a job of its
 * own, which prints hash, loss and grad norm of each step; all must print the same. */
#include "validation/cases.h"
#include "validation/check.h"
#include "validation/run.h"

#include <stdlib.h>
#include <string.h>

/* A model whose layouts share one hash. */
struct subject {
    const char *name, *words;
    int quick;        /* CI runs it too */
    int most;         /* ranks of its largest layouts */
    int bottleneck;   /* recompute: bottleneck is to be had */
    const char *also; /* a choice that changes no bit, tried too; NULL */
};

static const struct subject subjects[] = {
    {"full", "model.layer=full", 1, 8, 0, NULL},
    {"full biases tied", "model.layer=full model.qkv_bias=on model.tied=on", 0, 4, 0, NULL},
    {"cola btp", "model.layer=cola", 1, 8, 1, "parallel.grouping=off"},
    {"svd btp tied", "model.layer=svd model.tied=on", 1, 8, 1, "parallel.grouping=off"},
    {"cola btp online_local", "model.layer=cola parallel.norm=online_local", 0, 4, 1, NULL},
    {"cola btp sync", "model.layer=cola parallel.norm=sync", 0, 4, 1, "parallel.grouping=off"},
    {"cola vanilla strong", "model.layer=cola parallel.strategy=vanilla", 1, 8, 0, NULL},
    {"cola vanilla released",
     "model.layer=cola parallel.strategy=vanilla parallel.vanilla=released", 1, 8, 0, NULL},
    {"cola btp bf16", "model.layer=cola train.precision=bf16", 1, 4, 1, NULL},
    {"svd vanilla bf16", "model.layer=svd parallel.strategy=vanilla train.precision=bf16", 0, 4, 0,
     NULL},
    {"full bf16", "model.layer=full train.precision=bf16", 0, 4, 0, NULL},
};

/* Ways of running it beside tensor and data parallelism. */
static const char *const manners[] = {
    "parallel.tp=2 parallel.dp=1 train.micro_batch=1",
    "parallel.tp=1 parallel.dp=2 train.micro_batch=2 parallel.zero=1 train.head_chunk=1",
    "parallel.tp=2 parallel.dp=2 parallel.recompute=block train.head_chunk=1 "
    "parallel.overlap=off",
    "parallel.tp=1 parallel.dp=1 parallel.recompute=block run.threads=2",
    "parallel.tp=2 parallel.dp=1 parallel.recompute=none run.threads=2 train.micro_batch=4 "
    "train.head_chunk=3",
    "parallel.pp=2 parallel.tp=2 parallel.dp=1 parallel.schedule=zb-h1 "
    "parallel.recompute=none train.micro_batch=2 train.head_chunk=1 parallel.overlap=all",
    "parallel.pp=2 parallel.tp=1 parallel.dp=2 parallel.zero=1 train.micro_batch=2",
    "parallel.pp=2 parallel.tp=1 parallel.dp=2 parallel.schedule=interleaved "
    "parallel.virtual_stages=2 train.micro_batch=1",
    "parallel.pp=4 parallel.tp=1 parallel.dp=1 parallel.schedule=gpipe train.micro_batch=2 "
    "parallel.recompute=block",
};
/* What CI runs of them. */
static const int quick_manner[] = {0, 2, 5, 6};
static const char *const bottleneck = "parallel.tp=2 parallel.dp=1 parallel.recompute=bottleneck";

/* The base run of a subject, and where rows go. */
struct table {
    const struct check_options *o;
    struct report *r;
    const struct subject *s;
    struct run base;
    const char *more; /* words of every run beside the subject's */
};

/* TP x PP x DP of all powers of two with up to `most` ranks; returns the next, or 0 ranks. */
struct box {
    int tp, pp, dp;
};

static int next_box(struct box *b, int most)
{
    do {
        b->dp *= 2;
        if (b->tp * b->pp * b->dp > most) {
            b->dp = 1;
            b->pp *= 2;
        }
        if (b->tp * b->pp * b->dp > most || b->pp > most) {
            b->pp = 1;
            b->tp *= 2;
        }
    } while (b->tp <= most && b->tp * b->pp * b->dp > most);
    return b->tp <= most;
}

static enum status layout_row(struct table *t, const char *layout)
{
    struct run run;
    int step;

    TRY(run_open(&run, t->o, "%s %s %s", t->s->words, t->more, layout));
    step = run_differs(&t->base, &run);
    if (!report_equal(t->r, !step, run.hash, "%s: %s", t->s->name, layout)) {
        if (run.failed)
            report_note(t->r, "the run failed: %s", run.log);
        else
            report_note(t->r, "first different at step %d:\n    %s\n    %s", step,
                        run_line(&t->base, step), run_line(&run, step));
    }
    run_close(&run);
    return ST_OK;
}

/* TP x DP of 1, 2, 4, ... ranks; quick: not one rank again, and of 4 ranks only TP 2 and 4. */
static enum status grid(struct table *t)
{
    int64_t most = t->s->most < t->o->ranks ? t->s->most : t->o->ranks;
    char layout[64];

    for (int ranks = t->o->quick ? 2 : 1; ranks <= most; ranks *= 2)
        for (int tp = 1; tp <= ranks; tp *= 2) {
            if (t->o->quick && (ranks > 4 || (ranks == 4 && tp == 1)))
                continue;
            snprintf(layout, sizeof layout, "parallel.tp=%d parallel.dp=%d", tp, ranks / tp);
            TRY(layout_row(t, layout));
        }
    return ST_OK;
}

/* The factors beside the layout; counters of different periods make every two values meet. */
static void factors(char *out, size_t size, const struct table *t, struct box b, int k)
{
    static const char *const orders[] = {"1f1b", "gpipe", "zb-h1", "interleaved"};
    static const char *const recompute[] = {"none", "elementwise", "block", "bottleneck"};
    int order = (k + k / 4) % 4, mode = (k / 2 + k / 3) % (t->s->bottleneck ? 4 : 3);
    int also = t->s->also && k % 3 == 1;
    static const char *const overlap[] = {"all", "backward", "off"};
    int share = 8 / b.dp, micro = 1 << (k + k / 5) % 3, chunk = 1 << (k / 3 + k / 7) % 3;

    if (order == 3 && (b.pp == 1 || b.pp > 4)) /* eight blocks: two runs on four stages */
        order = 0;
    while (micro > share || (order == 3 && share / micro % b.pp))
        micro /= 2;
    micro = micro ? micro : 1;
    snprintf(out, size,
             "parallel.tp=%d parallel.pp=%d parallel.dp=%d parallel.zero=%d train.micro_batch=%d "
             "train.head_chunk=%d parallel.schedule=%s parallel.virtual_stages=%d "
             "parallel.recompute=%s parallel.bucket=%d parallel.overlap=%s%s%s",
             b.tp, b.pp, b.dp, k % 2, micro, chunk < micro ? chunk : micro, orders[order],
             order == 3 ? 2 : 1, recompute[order == 2 ? mode % 2 : mode], k / 2 % 2,
             overlap[micro > 1 ? k % 3 : 1 + k % 2], also ? " " : "", also ? t->s->also : "");
}

/* Pairs of values that the counters leave out. Without grouping bf16 has other bits: each product
 * is rounded. */
static const struct {
    const char *subject, *words;
} pairs[] = {
    {"svd btp tied", "parallel.tp=8 parallel.recompute=bottleneck parallel.grouping=off "
                     "train.micro_batch=4 train.head_chunk=2 parallel.overlap=all"},
    {"svd btp tied", "parallel.tp=1 parallel.dp=8 parallel.zero=1 parallel.recompute=bottleneck "
                     "parallel.grouping=off train.micro_batch=1"},
    {"svd btp tied", "parallel.tp=1 parallel.pp=8 parallel.dp=1 parallel.recompute=bottleneck "
                     "parallel.grouping=off train.micro_batch=1"},
    {"svd btp tied", "parallel.tp=2 parallel.pp=2 parallel.dp=1 parallel.schedule=zb-h1 "
                     "parallel.grouping=off train.micro_batch=4 train.head_chunk=2"},
    {"svd btp tied", "parallel.tp=1 parallel.pp=2 parallel.dp=1 parallel.schedule=interleaved "
                     "parallel.virtual_stages=2 train.micro_batch=2 train.head_chunk=1"},
    {"svd btp tied", "parallel.tp=2 parallel.pp=2 parallel.dp=1 parallel.schedule=gpipe "
                     "parallel.grouping=off train.micro_batch=2"},
};

static enum status all_pairs(struct table *t)
{
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (!strcmp(pairs[i].subject, t->s->name) && t->o->ranks >= 8)
            TRY(layout_row(t, pairs[i].words));
    return ST_OK;
}

/* Every layout, the other factors beside it, from another start for each subject. */
static enum status all_factors(struct table *t)
{
    struct box b = {1, 1, 1};
    int k = (int)(t->s - subjects);

    do {
        char words[384];

        factors(words, sizeof words, t, b, k++);
        TRY(layout_row(t, words));
    } while (next_box(&b, (int)t->o->ranks));
    return all_pairs(t);
}

enum { MANNERS = sizeof manners / sizeof *manners };

static int is_quick(int manner)
{
    for (size_t i = 0; i < sizeof quick_manner / sizeof *quick_manner; i++)
        if (quick_manner[i] == manner)
            return 1;
    return 0;
}

static enum status rows_of(struct table *t)
{
    if (t->base.failed) {
        report_equal(t->r, 0, "-", "%s: one rank", t->s->name);
        report_note(t->r, "the run failed: %s", t->base.log);
        return ST_OK;
    }
    if (!t->o->all)
        TRY(grid(t));
    if (t->o->all)
        return all_factors(t);
    for (int i = 0; t->o->ranks >= 4 && i < MANNERS; i++)
        if (!t->o->quick || is_quick(i))
            TRY(layout_row(t, manners[i]));
    if (t->s->bottleneck && t->o->ranks >= 2)
        TRY(layout_row(t, bottleneck));
    if (t->s->also && !t->o->quick && t->o->ranks >= 2) {
        char layout[128];

        snprintf(layout, sizeof layout, "parallel.tp=2 parallel.dp=1 %s", t->s->also);
        TRY(layout_row(t, layout));
    }
    return ST_OK;
}

static enum status subject(const struct check_options *o, struct report *r, const struct subject *s)
{
    struct table t = {.o = o, .r = r, .s = s, .more = o->all ? "model.layers=8" : ""};
    enum status st;

    TRY(run_open(&t.base, o, "%s %s parallel.tp=1 parallel.dp=1", s->words, t.more));
    st = rows_of(&t);
    run_close(&t.base);
    return st;
}

/* Validation divides by the targets of all its batches, however they are cut: nine documents in
 * batches of 8, 4, 2 and 1, on one replica and on two. */
static enum status evaluation(const struct check_options *o, struct report *r)
{
    static const char *const cuts[] = {"train.batch=4", "train.batch=2", "train.batch=1",
                                       "train.batch=8 train.micro_batch=1",
                                       "train.batch=8 parallel.dp=2"};
    static const char *const fixed = "model.layer=cola train.lr=0 train.steps=1";
    struct run base, run;
    double off;

    TRY(run_open(&base, o, "%s train.batch=8", fixed));
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        TRY(run_open(&run, o, "%s %s", fixed, cuts[i]));
        off = (run.validation - base.validation) / base.validation;
        if (!report_value(r, BOUND_EVALUATION, off < 0 ? -off : off,
                          "validation loss of 9 documents, %s", cuts[i]))
            report_note(r, "%.17g against %.17g %s", run.validation, base.validation, run.log);
        run_close(&run);
    }
    run_close(&base);
    return ST_OK;
}

/* A configuration of the user's: every TP x DP of up to o->ranks that it allows. */
static enum status own(const struct check_options *o, struct report *r)
{
    static const struct subject s = {"own", "", 1, 64, 0, NULL};
    struct table t = {.o = o, .r = r, .s = &s, .more = ""};
    enum status st;

    TRY(run_open(&t.base, o, "parallel.tp=1 parallel.dp=1"));
    st = rows_of(&t);
    run_close(&t.base);
    return st;
}

/* Every subject with all factors; the table counts its rows. */
static enum status all_subjects(const struct check_options *o, struct report *r)
{
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
        if (check_wanted(o, subjects[i].name))
            TRY(subject(o, r, &subjects[i]));
    return ST_OK;
}

enum status check_layouts(const struct check_options *o, struct report *r)
{
    if (o->config)
        return own(o, r);
    if (o->all)
        return all_subjects(o, r);
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
        if (check_wanted(o, subjects[i].name) && (!o->quick || subjects[i].quick))
            TRY(subject(o, r, &subjects[i]));
    return check_wanted(o, "validation loss") ? evaluation(o, r) : ST_OK;
}
