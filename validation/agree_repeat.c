#include "common/base/hash.h"
#include "validation/agree.h"
#include "validation/cases.h"
#include "validation/session.h"

#include <math.h>
#include <stdlib.h>

#define MODEL                                                                                   \
    "model.width=256 model.layers=2 model.heads=4 model.ffn=704 model.rank=64 model.vocab=512 " \
    "train.seq=128 train.batch=4 train.seed=1 parallel.dp=1 parallel.layout_exact=off "

static const struct {
    const char *name, *words;
    int quick;
} models[] = {
    {"full fp32", "model.layer=full", 0},
    {"full bf16", "model.layer=full train.precision=bf16", 0},
    {"cola btp fp32", "model.layer=cola", 0},
    {"cola btp bf16, recompute bottleneck",
     "model.layer=cola train.precision=bf16 parallel.recompute=bottleneck", 1},
    {"svd btp bf16, grouped queries", "model.layer=svd model.kv_heads=2 train.precision=bf16", 0},
    {"cola vanilla bf16, recompute block",
     "model.layer=cola parallel.strategy=vanilla train.precision=bf16 parallel.recompute=block", 0},
};

/* What must be the same again after a step. */
struct mark {
    uint64_t hash;
    double loss, norm;
};

/* lr is large, so that weights move by more than their last bits and later steps see it. */
static enum status train(struct session *s, struct mark *mark, int64_t steps)
{
    for (int64_t t = 0; t < steps; t++) {
        struct step_result found;

        s->valid = case_batch(s->tokens, s->targets, &s->cfg, t, 0, s->cfg.train.batch);
        TRY(step_train(&s->step, s->tokens, s->targets, s->valid, t + 1, 1e-2, &found));
        mark[t].loss = found.loss;
        mark[t].norm = found.grad_norm;
        TRY(params_hash(&mark[t].hash, &s->step.model.params, s->place.at.dev,
                        s->place.at.tp_host));
    }
    return ST_OK;
}

static enum status run_once(struct session *s, struct mark *mark, const struct check_options *o,
                            struct host *job, const char *model)
{
    char words[CASE_WORDS];
    enum status st;

    snprintf(words, sizeof words, MODEL "%s run.backend=%s", model, o->backend);
    TRY(session_open(s, job, words));
    st = train(s, mark, o->steps);
    session_close(s);
    return st;
}

/* Nonzero for a step that trained: finite, and other weights than the step before. */
static int is_alive(const struct mark *mark, int64_t t)
{
    return isfinite(mark[t].loss) && mark[t].loss > 0.0 && isfinite(mark[t].norm) &&
           mark[t].norm > 0.0 && (t == 0 || mark[t].hash != mark[t - 1].hash);
}

/* Finite numbers above 0 are equal when their bits are. */
static int is_same(const struct mark *a, const struct mark *b)
{
    return a->hash == b->hash && a->loss == b->loss && a->norm == b->norm;
}

static void compare(struct report *r, const struct mark *a, const struct mark *b, int64_t steps,
                    const char *name)
{
    char hex[HASH_HEX];
    int64_t t = 0;

    while (t < steps && is_alive(a, t) && is_same(&a[t], &b[t]))
        t++;
    hash_hex(hex, a[steps - 1].hash);
    if (report_equal(r, t == steps, t == steps ? hex : "another run", "%s: %lld steps twice", name,
                     (long long)steps))
        return;
    report_note(r, "step %lld: loss %a and %a, norm %a and %a, weights %016llx and %016llx",
                (long long)t + 1, a[t].loss, b[t].loss, a[t].norm, b[t].norm,
                (unsigned long long)a[t].hash, (unsigned long long)b[t].hash);
}

enum status agree_repeat(const struct check_options *o, struct report *r, struct host *job)
{
    struct session *s = malloc(sizeof *s);
    struct mark *marks = calloc(2 * (size_t)o->steps, sizeof *marks);
    enum status st = s && marks ? ST_OK : fail(ST_ENOMEM, "no memory for a session");

    for (size_t i = 0; st == ST_OK && i < sizeof models / sizeof *models; i++) {
        if (!check_wanted(o, models[i].name) || (o->quick && !models[i].quick))
            continue;
        st = run_once(s, marks, o, job, models[i].words);
        if (st == ST_OK)
            st = run_once(s, marks + o->steps, o, job, models[i].words);
        if (st == ST_OK)
            compare(r, marks, marks + o->steps, o->steps, models[i].name);
    }
    free(s);
    free(marks);
    return st;
}
