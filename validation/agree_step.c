#include "validation/agree.h"
#include "validation/cases.h"
#include "validation/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MODEL                                                                                   \
    "model.width=256 model.layers=2 model.heads=4 model.ffn=704 model.rank=64 model.vocab=512 " \
    "train.seq=128 train.batch=4 train.steps=1 parallel.dp=1 parallel.layout_exact=off "

#define BLOCK      "parallel.recompute=block "
#define BOTTLENECK "parallel.recompute=bottleneck "
#define NONE       "parallel.recompute=none "
#define FULL       "model.layer=full "
#define COLA       "model.layer=cola "
#define SVD        "model.layer=svd model.kv_heads=2 "
#define VANILLA    COLA "parallel.strategy=vanilla "

/* Names say what is recomputed; without a word, what is cheap (elementwise). */
static const struct {
    const char *name, *words;
    int quick;
} models[] = {
    {"full", FULL, 0},
    {"full, none", FULL NONE, 0},
    {"full, block", FULL BLOCK, 1},
    {"cola btp", COLA, 0},
    {"cola btp, none", COLA NONE, 0},
    {"cola btp, block", COLA BLOCK, 0},
    {"cola btp, bottleneck", COLA BOTTLENECK, 1},
    {"svd btp kv 2", SVD, 0},
    {"svd btp kv 2, block", SVD BLOCK, 0},
    {"svd btp kv 2, bottleneck", SVD BOTTLENECK, 0},
    {"cola vanilla", VANILLA, 0},
    {"cola vanilla, none", VANILLA NONE, 0},
    {"cola vanilla, block", VANILLA BLOCK, 0},
};

/* What a precision is compared with. Products of one rank still pass through the type that tensor
 * parallelism sends, so both sides are told the same one. */
struct side {
    const char *name, *test, *gold, *against;
    int self; /* with --backend ref both sides would be one thing */
    enum bound_id loss, gradients;
};

#define BF16 "train.precision=bf16 parallel.tp_payload=bf16 "
#define F64  "train.precision=fp64 "

static const struct side sides[] = {
    {"fp32", "train.precision=fp32 ", F64, "ref64", 0, BOUND_AGREE32_LOSS, BOUND_AGREE32},
    {"bf16", BF16, BF16, "ref", 1, BOUND_AGREE16_LOSS, BOUND_AGREE16},
    {"bf16", BF16, F64, "ref64", 0, BOUND_BF16_LOSS, BOUND_BF16},
};

/* The backend under test and what it is held against. */
struct pair {
    struct session test, gold;
};

/* The gold's weights become those that the test's model reads; every value of a narrower type is
 * one of float64. */
static enum status same_weights(struct pair *p)
{
    struct params *from = &p->test.step.model.params, *to = &p->gold.step.model.params;

    for (int i = 0; i < from->n; i++) {
        TRY(session_read(&p->test, p->test.values, &from->item[i].w));
        TRY(session_write(&p->gold, &to->item[i], p->test.values));
    }
    return ST_OK;
}

/* ||test - gold|| / ||gold|| of one gradient. Infinity when gold's is zero (every parameter of
 * these models has an effect); NaN, which no bound admits, when a value is. */
static enum status gradient_apart(struct pair *p, int i, double *apart)
{
    struct param *test = &p->test.step.model.params.item[i];
    struct param *gold = &p->gold.step.model.params.item[i];
    double off = 0.0, sum = 0.0;

    TRY(session_read(&p->test, p->test.values, &test->g));
    TRY(session_read(&p->gold, p->gold.values, &gold->g));
    for (int64_t j = 0; j < tensor_count(&gold->g); j++) {
        double d = p->test.values[j] - p->gold.values[j];

        off += d * d;
        sum += p->gold.values[j] * p->gold.values[j];
    }
    *apart = sum == 0.0 ? INFINITY : sqrt(off / sum);
    return ST_OK;
}

static enum status compare(struct pair *p, struct report *r, const struct side *side,
                           const char *name)
{
    const struct params *params = &p->gold.step.model.params;
    double loss, gold, worst = -1.0, one = 0.0;
    const char *where = "nothing";

    TRY(case_gains(&p->test.step.model.params, p->test.place.at.dev));
    TRY(same_weights(p));
    TRY(session_gradients(&p->test, &loss));
    TRY(session_gradients(&p->gold, &gold));
    report_value(r, side->loss, fabs(loss - gold) / fabs(gold), "%s %s, %s: loss", name, side->name,
                 side->against);
    for (int i = 0; i < params->n && !isnan(worst); i++) {
        TRY(gradient_apart(p, i, &one));
        if (!(one <= worst)) {
            worst = one;
            where = params->item[i].name;
        }
    }
    report_value(r, side->gradients, worst, "%s %s, %s: %s", name, side->name, side->against,
                 where);
    return ST_OK;
}

static enum status run(struct pair *p, const struct check_options *o, struct report *r,
                       struct host *job, const struct side *side, const char *name,
                       const char *model)
{
    char words[CASE_WORDS];
    enum status st;

    snprintf(words, sizeof words, MODEL "%s%srun.backend=%s", model, side->test, o->backend);
    TRY(session_open(&p->test, job, words));
    snprintf(words, sizeof words, MODEL "%s%s", model, side->gold);
    st = session_open(&p->gold, job, words);
    if (st == ST_OK) {
        st = compare(p, r, side, name);
        session_close(&p->gold);
    }
    session_close(&p->test);
    return st;
}

enum status agree_step(const struct check_options *o, struct report *r, struct host *job)
{
    const size_t kinds = sizeof sides / sizeof *sides, rows = sizeof models / sizeof *models;
    int self = !strcmp(o->backend, "ref");
    struct pair *p = malloc(sizeof *p);
    enum status st = p ? ST_OK : fail(ST_ENOMEM, "no memory for two sessions");

    for (size_t i = 0; st == ST_OK && i < kinds * rows; i++) {
        const struct side *side = &sides[i / rows];
        const char *name = models[i % rows].name;
        char full[96];

        snprintf(full, sizeof full, "%s %s", name, side->name);
        if (check_wanted(o, full) && (!o->quick || models[i % rows].quick) && !(side->self && self))
            st = run(p, o, r, job, side, name, models[i % rows].words);
    }
    free(p);
    return st;
}
