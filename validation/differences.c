/* Every parameter's gradient against central differences of the loss, in float64.
 *
 * For a direction v with elements of size 1, D(h) = (loss(w + h v) - loss(w - h v)) / 2h, and
 * (4 D(h) - D(2h)) / 3 takes away the error of order h^2. A direction of random signs sees every
 * element at once; single elements see what signs could hide. */
#include "common/base/rng.h"
#include "validation/cases.h"
#include "validation/check.h"
#include "validation/gradients.h"
#include "validation/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SINGLES = 2 }; /* elements of each parameter that are tried alone: the largest, one drawn */

#define STEP_DIRECTION 1e-4
#define STEP_SINGLE    2e-3

/* One parameter under test. */
struct probe {
    struct session *s;
    struct param *row;
    const double *w, *g; /* value and gradient */
    double *v, *moved;   /* direction; scratch */
    int64_t n;
    double largest, length; /* largest |g|; root of the sum of squares */
};

static enum status loss_at(struct probe *p, double t, double *loss)
{
    for (int64_t i = 0; i < p->n; i++)
        p->moved[i] = p->w[i] + t * p->v[i];
    TRY(session_write(p->s, p->row, p->moved));
    return session_loss(p->s, loss);
}

static enum status slope(struct probe *p, double h, double *d)
{
    double up, down, up2, down2;

    TRY(loss_at(p, h, &up));
    TRY(loss_at(p, -h, &down));
    TRY(loss_at(p, 2 * h, &up2));
    TRY(loss_at(p, -2 * h, &down2));
    *d = (4 * (up - down) / (2 * h) - (up2 - down2) / (4 * h)) / 3;
    return session_write(p->s, p->row, p->w);
}

/* *worst = the larger of itself and |difference - gradient along v| / scale. */
static enum status compare(struct probe *p, double h, double scale, double *worst)
{
    double d = 0.0, along = 0.0, off;

    for (int64_t i = 0; i < p->n; i++)
        along += p->g[i] * p->v[i];
    TRY(slope(p, h, &d));
    off = scale > 0.0 ? fabs(d - along) / scale : fabs(d - along);
    if (!(off <= *worst) && !isnan(*worst)) /* a NaN stays */
        *worst = off;
    return ST_OK;
}

/* Padding of the vocabulary is no part of the model: its gradient must be zero, and it stays. */
static int is_real(const struct probe *p, int64_t i)
{
    return i / p->row->cols < p->row->real_rows;
}

static enum status probe_directions(struct probe *p, uint64_t stream, double *worst)
{
    struct rng_key key = rng_key(3, RNG_TEST, stream);
    int64_t real = p->row->real_rows * p->row->cols, top = 0;

    for (int64_t i = 0; i < p->n; i++) {
        p->v[i] = !is_real(p, i) ? 0.0 : rng_below(&key, (uint64_t)i, 2) ? 1.0 : -1.0;
        top = fabs(p->g[i]) > fabs(p->g[top]) ? i : top;
    }
    TRY(compare(p, STEP_DIRECTION, p->length, worst));
    for (int k = 0; k < SINGLES; k++) {
        int64_t at = k ? (int64_t)rng_below(&key, (uint64_t)(p->n + k), (uint64_t)real) : top;

        memset(p->v, 0, (size_t)p->n * sizeof *p->v);
        p->v[at] = 1.0;
        TRY(compare(p, STEP_SINGLE, p->largest, worst));
    }
    return ST_OK;
}

/* Infinity for a gradient that is not finite, or not zero on padding. */
static double measure(struct probe *p)
{
    double sum = 0.0;

    for (int64_t i = 0; i < p->n; i++) {
        if (!isfinite(p->g[i]) || (!is_real(p, i) && p->g[i] != 0.0))
            return INFINITY;
        sum += p->g[i] * p->g[i];
        p->largest = fmax(p->largest, fabs(p->g[i]));
    }
    p->length = sqrt(sum);
    return 0.0;
}

static enum status probe_parameter(struct session *s, struct param *row, uint64_t stream,
                                   double *worst)
{
    int64_t n = tensor_count(&row->w);
    double *room = malloc(4 * (size_t)n * sizeof *room);
    struct probe p = {.s = s, .row = row, .n = n};
    enum status st;

    if (!room)
        return fail(ST_ENOMEM, "no memory to probe %s", row->name);
    p.w = room;
    p.g = room + n;
    p.v = room + 2 * n;
    p.moved = room + 3 * n;
    st = session_read(s, room, param_value(row));
    if (st == ST_OK)
        st = session_read(s, room + n, &row->g);
    *worst = st == ST_OK ? measure(&p) : 0.0;
    if (st == ST_OK && p.length == 0.0)
        *worst = INFINITY; /* every parameter of these models has an effect */
    if (st == ST_OK)
        st = probe_directions(&p, stream, worst);
    free(room);
    return st;
}

static enum status check_model(struct session *s, struct report *r, const char *name)
{
    struct params *p = &s->step.model.params;
    double loss, worst = 0.0, one;
    const char *where = "";

    TRY(case_gains(p, s->place.at.dev));
    TRY(session_gradients(s, &loss));
    for (int i = 0; i < p->n; i++) {
        TRY(probe_parameter(s, &p->item[i], (uint64_t)i, &one));
        if (!(one <= worst) && !isnan(worst)) { /* a NaN stays */
            worst = one;
            where = p->item[i].name;
        }
    }
    if (!report_value(r, BOUND_DIFFERENCE, worst, "differences: %s, %d tensors", name, p->n))
        report_note(r, "worst in %s", where);
    return ST_OK;
}

#define SMALL                                                                                \
    "model.width=32 model.heads=4 model.ffn=48 model.rank=8 model.vocab=61 model.layers=2 "  \
    "model.init_std=0.3 model.norm_eps=1e-2 train.seq=10 train.batch=4 train.micro_batch=2 " \
    "train.precision=fp64 train.steps=1 parallel.dp=1 run.threads=1 "

/* Models, one row each; quick: those that CI runs. */
static const struct {
    const char *name, *words;
    int quick;
} models[] = {
    {"full", "model.layer=full", 1},
    {"full, grouped queries, tied", "model.layer=full model.kv_heads=2 model.tied=on", 0},
    {"full, biases, grouped queries, tied",
     "model.layer=full model.qkv_bias=on model.kv_heads=2 model.tied=on", 1},
    {"cola btp online", "model.layer=cola", 1},
    {"cola btp online, outer SiLU, grouped queries, tied",
     "model.layer=cola model.outer_silu=on model.kv_heads=2 model.tied=on", 1},
    {"cola btp online_local", "model.layer=cola parallel.norm=online_local", 1},
    {"cola btp sync", "model.layer=cola parallel.norm=sync", 1},
    {"cola btp online, not grouped", "model.layer=cola parallel.grouping=off", 0},
    {"cola btp sync, not grouped", "model.layer=cola parallel.grouping=off parallel.norm=sync", 0},
    {"cola btp online, recompute block", "model.layer=cola parallel.recompute=block", 0},
    {"cola btp online, recompute bottleneck", "model.layer=cola parallel.recompute=bottleneck", 1},
    {"cola vanilla strong, grouped queries",
     "model.layer=cola parallel.strategy=vanilla model.kv_heads=2", 1},
    {"cola vanilla released",
     "model.layer=cola parallel.strategy=vanilla parallel.vanilla=released", 0},
    {"cola btp online, biases, recompute bottleneck",
     "model.layer=cola model.qkv_bias=on parallel.recompute=bottleneck", 0},
    {"cola vanilla strong, biases", "model.layer=cola model.qkv_bias=on parallel.strategy=vanilla",
     0},
    {"svd btp online", "model.layer=svd", 1},
    {"svd btp online_local, grouped queries, tied",
     "model.layer=svd parallel.norm=online_local model.kv_heads=2 model.tied=on", 0},
    {"svd vanilla strong, tied", "model.layer=svd parallel.strategy=vanilla model.tied=on", 0},
};

enum status gradients_differences(const struct check_options *o, struct report *r, struct host *job)
{
    struct session *s = malloc(sizeof *s);
    enum status st = s ? ST_OK : fail(ST_ENOMEM, "no memory for a session");
    char words[512];

    for (size_t i = 0; st == ST_OK && i < sizeof models / sizeof *models; i++) {
        if (!check_wanted(o, models[i].name) || (o->quick && !models[i].quick))
            continue;
        snprintf(words, sizeof words, SMALL "%s", models[i].words);
        st = session_open(s, job, words);
        if (st == ST_OK) {
            st = check_model(s, r, models[i].name);
            session_close(s);
        }
    }
    free(s);
    return st;
}
