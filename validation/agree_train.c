#include "common/data/loader.h"
#include "common/train/lr.h"
#include "validation/agree.h"
#include "validation/cases.h"
#include "validation/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINES = 10, SMOOTH = 10, SIDES_MOST = 3, SHORT = 100 };

#define MODEL "model.layer=cola model.width=512 model.layers=8 model.heads=8 "
#define QUICK "model.layer=cola model.width=128 model.layers=4 model.heads=8 "
#define RUN                                                                   \
    "model.vocab=259 train.batch=8 train.seq=128 train.lr=1e-3 train.seed=1 " \
    "parallel.dp=1 parallel.layout_exact=off "

/* The first is what the others are held against. */
static const struct {
    const char *precision;
    int reference, self; /* on ref; with --backend ref it would be the reference once more */
    enum bound_id bound;
} kinds[SIDES_MOST] = {
    {"fp32", 1, 0, BOUND_EQUAL},
    {"fp32", 0, 1, BOUND_CURVE32},
    {"bf16", 0, 0, BOUND_CURVE16},
};

/* A run on one backend in one precision. */
struct runner {
    struct session s;
    char name[32];
    double *loss; /* [steps] */
    enum bound_id bound;
    int opened;
};

/* The runs, step by step together, and the text they all read. */
struct race {
    struct runner side[SIDES_MOST];
    int n;
    int64_t steps;
    struct tokenizer tokenizer;
    struct corpus text;
    struct loader loader;
    struct lr lr;
};

static enum status open_text(struct race *race, const char *path)
{
    const struct config_train *c = &race->side[0].s.cfg.train;
    const struct corpus_options text = {.require_utf8 = 1};
    const struct loader_options rows = {.mode = LOADER_TRAIN,
                                        .packing = 1,
                                        .seq = c->seq,
                                        .batch = c->batch,
                                        .seed = (uint64_t)c->seed};

    race->lr = (struct lr){.kind = c->schedule,
                           .peak = c->lr,
                           .min_ratio = c->lr_min,
                           .warmup = c->warmup,
                           .steps = c->steps,
                           .decay = c->decay};
    TRY(lr_check(&race->lr));
    TRY(tokenizer_open(&race->tokenizer, "bytes"));
    TRY(corpus_open(&race->text, path, &race->tokenizer, &text));
    return loader_open(&race->loader, &race->text, &rows);
}

static enum status open_side(struct race *race, const struct check_options *o, struct host *job,
                             int kind)
{
    struct runner *side = &race->side[race->n];
    const char *backend = kinds[kind].reference ? "ref" : o->backend;
    char words[CASE_WORDS];

    snprintf(words, sizeof words, "%s" RUN "train.steps=%lld train.precision=%s run.backend=%s",
             o->quick ? QUICK : MODEL, (long long)race->steps, kinds[kind].precision, backend);
    snprintf(side->name, sizeof side->name, "%s %s", backend, kinds[kind].precision);
    side->bound = kinds[kind].bound;
    if (side->bound == BOUND_CURVE16 && race->steps > SHORT)
        side->bound = BOUND_CURVE16_LONG;
    side->loss = malloc((size_t)race->steps * sizeof *side->loss);
    race->n++;
    if (!side->loss)
        return fail(ST_ENOMEM, "no memory for %lld losses", (long long)race->steps);
    TRY(session_open(&side->s, job, words));
    side->opened = 1;
    return ST_OK;
}

static enum status race_open(struct race *race, const struct check_options *o, struct host *job)
{
    int self = !strcmp(o->backend, "ref");

    race->steps = o->steps;
    for (int i = 0; i < SIDES_MOST; i++)
        if (i == 0 || (!(self && kinds[i].self) && check_wanted(o, kinds[i].precision)))
            TRY(open_side(race, o, job, i));
    return open_text(race, o->data);
}

static void race_close(struct race *race)
{
    for (int i = 0; i < race->n; i++) {
        if (race->side[i].opened)
            session_close(&race->side[i].s);
        free(race->side[i].loss);
    }
    corpus_close(&race->text);
}

static enum status one_step(struct race *race, struct runner *side, int64_t t)
{
    struct session *s = &side->s;
    struct step_result found;

    TRY(loader_valid(&s->valid, &race->loader, t));
    TRY(loader_rows(s->tokens, s->targets, &race->loader, t, 0, s->cfg.train.batch));
    TRY(step_train(&s->step, s->tokens, s->targets, s->valid, t + 1, lr_at(&race->lr, t), &found));
    side->loss[t] = found.loss;
    return ST_OK;
}

static void print_line(const struct race *race, struct report *r, int64_t t, time_t started)
{
    char text[160];
    size_t used = 0;

    for (int i = 0; i < race->n && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "   %s %.4f", race->side[i].name,
                                 race->side[i].loss[t]);
    report_note(r, "step %5lld of %lld%s   %.0f s", (long long)t + 1, (long long)race->steps, text,
                difftime(time(NULL), started));
}

/* All sides go through a step before the next: what is printed on the way is complete. */
static enum status run(struct race *race, struct report *r)
{
    int64_t every = race->steps / LINES ? race->steps / LINES : 1;
    time_t started = time(NULL);

    for (int64_t t = 0; t < race->steps; t++) {
        for (int i = 0; i < race->n; i++)
            TRY(one_step(race, &race->side[i], t));
        if (t == 0 || (t + 1) % every == 0)
            print_line(race, r, t, started);
    }
    return ST_OK;
}

/* Mean of the losses of steps (t - width, t]. */
static double smoothed(const double *loss, int64_t t, int64_t width)
{
    double sum = 0.0;

    for (int64_t i = t - width + 1; i <= t; i++)
        sum += loss[i];
    return sum / (double)width;
}

/* The largest difference of two smoothed curves relative to the second; NaN when one is not a
 * number. *where: its step, from 1. */
static double curves_apart(const double *a, const double *b, int64_t steps, int64_t *where)
{
    int64_t width = steps < SMOOTH ? steps : SMOOTH;
    double worst = -1.0;

    for (int64_t t = width - 1; t < steps; t++) {
        double gold = smoothed(b, t, width), off = fabs(smoothed(a, t, width) - gold) / gold;

        if (off <= worst)
            continue;
        worst = off;
        *where = t + 1;
        if (isnan(off))
            break;
    }
    return worst;
}

static void compare(const struct race *race, struct report *r)
{
    const struct runner *gold = &race->side[0];

    for (int i = 1; i < race->n; i++) {
        int64_t where = 0;
        double apart = curves_apart(race->side[i].loss, gold->loss, race->steps, &where);

        report_value(r, race->side[i].bound, apart,
                     "%s against %s: smoothed loss, step %lld of %lld", race->side[i].name,
                     gold->name, (long long)where, (long long)race->steps);
    }
}

enum status agree_train(const struct check_options *o, struct report *r, struct host *job)
{
    struct race *race = calloc(1, sizeof *race);
    enum status st = race ? race_open(race, o, job) : fail(ST_ENOMEM, "no memory for the runs");

    if (st == ST_OK)
        st = run(race, r);
    if (st == ST_OK)
        compare(race, r);
    if (race)
        race_close(race);
    free(race);
    return st;
}
