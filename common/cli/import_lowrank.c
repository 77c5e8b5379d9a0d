#include "common/cli/import_lowrank.h"

#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/rng.h"
#include "common/checkpoint/weights.h"
#include "common/train/calibrate.h"
#include "ref/factor.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The making of a low-rank model. */
struct lowering {
    const struct model_files *f;
    const struct lowrank_wish *w;
    struct config cfg;  /* of the low-rank model, as it is written */
    struct config full; /* the same, resolved */
    struct model table;
    struct outlet out;
    struct calibrate *calibrate; /* NULL: plain */
    double energy, kept;         /* of all layers */
};

/* ---- one layer ---- */

/* A dense matrix and its factors, float64. */
struct layer {
    char stem[96]; /* "model.layers.3.mlp.up_proj" */
    int64_t out, in, r;
    int64_t exact; /* latents that come from the matrix: r, or its smaller side */
    double *w, *moment, *a, *b;
};

static void layer_free(struct layer *l)
{
    free(l->w);
    free(l->moment);
    free(l->a);
    free(l->b);
}

static enum calibrate_input input_of(const char *stem)
{
    if (strstr(stem, ".o_proj"))
        return CALIBRATE_O;
    if (strstr(stem, ".down_proj"))
        return CALIBRATE_DOWN;
    return strstr(stem, ".mlp.") ? CALIBRATE_GATE_UP : CALIBRATE_QKV;
}

/* l->moment = a copy of the inputs' second moments, which factoring spoils. */
static enum status fetch_moment(struct layer *l, struct lowering *g)
{
    int64_t layer = strtol(l->stem + strlen("model.layers."), NULL, 10);
    size_t bytes = (size_t)(l->in * l->in) * sizeof(double);
    const double *moment;

    if (!g->calibrate)
        return ST_OK;
    TRY(calibrate_moment(&moment, g->calibrate, layer, input_of(l->stem)));
    l->moment = malloc(bytes);
    if (!l->moment)
        return fail(ST_ENOMEM, "no memory for the second moments of %s", l->stem);
    memcpy(l->moment, moment, bytes);
    return ST_OK;
}

/* Puts exact factors where they belong in wider ones: rows of A beyond are drawn, columns of B
 * zero. */
static void widen(struct layer *l, const double *a, const double *b)
{
    double sigma = 1.0 / sqrt(sqrt((double)l->r * (double)(l->in + l->out)));
    struct rng_key key = rng_key(0, RNG_INIT, hash_text(l->stem));

    for (int64_t i = 0; i < l->r; i++)
        if (i < l->exact)
            memcpy(l->a + i * l->in, a + i * l->in, (size_t)l->in * sizeof *a);
        else
            rng_normal_fill64(l->a + i * l->in, &key, (uint64_t)(i * l->in), (size_t)l->in, sigma);
    for (int64_t i = 0; i < l->out; i++)
        for (int64_t j = 0; j < l->r; j++)
            l->b[i * l->r + j] = j < l->exact ? b[i * l->exact + j] : 0.0;
}

/* CoLA's latents are small enough for SiLU(z) to be nearly z / 2. */
static void scale_for_cola(struct layer *l, double largest)
{
    double a = largest > 0 ? 1.0 / (LOWRANK_LATENT * sqrt(largest)) : 1.0;

    for (int64_t i = 0; i < l->exact * l->in; i++)
        l->a[i] *= a;
    for (int64_t i = 0; i < l->out; i++)
        for (int64_t j = 0; j < l->exact; j++)
            l->b[i * l->r + j] *= 2.0 / a;
}

static void say(const struct layer *l, const struct factor *f, const struct lowering *g)
{
    double kept = f->energy > 0 ? f->kept / f->energy : 1.0;

    log_info("  %-36s %6lld x %-6lld rank %-5lld %s energy kept %8.4f %%%s", l->stem,
             (long long)l->out, (long long)l->in, (long long)l->r,
             g->calibrate ? "output" : "weight", 100.0 * kept,
             l->exact < l->r ? "  (exact; the rest is free)" : "");
}

static enum status factor(struct layer *l, struct lowering *g)
{
    double *a = malloc((size_t)(l->exact * l->in) * sizeof *a);
    double *b = malloc((size_t)(l->out * l->exact) * sizeof *b);
    struct factor f = {.a = a, .b = b, .r = l->exact};
    enum status st = a && b ? factor_nearest(&f, l->w, l->out, l->in, l->moment)
                            : fail(ST_ENOMEM, "no memory for the factors of %s", l->stem);

    if (st == ST_OK) {
        widen(l, a, b);
        if (g->w->cola)
            scale_for_cola(l, f.largest);
        g->energy += f.energy;
        g->kept += f.kept;
        say(l, &f, g);
    } else {
        status_prefix("%s: ", l->stem);
    }
    free(a);
    free(b);
    return st;
}

/* The dense matrix of which `down` is to be the first factor. */
static enum status open_layer(struct layer *l, struct lowering *g, const struct param *down)
{
    static const char end[] = ".down.weight";
    char name[sizeof l->stem + 16];
    const struct source_tensor *t;
    void *values;

    snprintf(l->stem, sizeof l->stem, "%.*s", (int)(strlen(down->name) - (sizeof end - 1)),
             down->name);
    snprintf(name, sizeof name, "%s.weight", l->stem);
    t = source_find(&g->f->source, name);
    FAIL_IF(!t, ST_EINTERNAL);
    l->out = t->rows;
    l->in = t->cols;
    l->r = down->real_rows;
    l->exact = l->out < l->r ? l->out : l->r;
    l->exact = l->in < l->exact ? l->in : l->exact;
    TRY(model_files_values(&values, t, DT_F64));
    l->w = values;
    l->a = malloc((size_t)(l->r * l->in) * sizeof *l->a);
    l->b = malloc((size_t)(l->out * l->r) * sizeof *l->b);
    if (!l->a || !l->b)
        return fail(ST_ENOMEM, "no memory for the factors of %s", l->stem);
    return fetch_moment(l, g);
}

static enum status put_layer(struct lowering *g, const struct param *down)
{
    struct layer l = {0};
    char name[sizeof l.stem + 16];
    enum status st = open_layer(&l, g, down);

    if (st == ST_OK)
        st = factor(&l, g);
    if (st == ST_OK)
        st = outlet_put(&g->out, down->name, l.a, DT_F64, l.r * l.in);
    snprintf(name, sizeof name, "%s.up.weight", l.stem);
    if (st == ST_OK)
        st = outlet_put(&g->out, name, l.b, DT_F64, l.out * l.r);
    layer_free(&l);
    return st;
}

/* ---- all of them ---- */

static int ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), e = strlen(end);

    return n > e && !strcmp(name + n - e, end);
}

/* What is factored comes with its .down.weight. */
static enum status put_row(struct lowering *g, const struct param *row)
{
    if (source_find(&g->f->source, row->name))
        return model_files_copy(&g->out, g->f, row, 0);
    return ends_in(row->name, ".up.weight") ? ST_OK : put_layer(g, row);
}

static enum status put_all(struct lowering *g)
{
    for (int i = 0; i < g->table.params.n; i++)
        TRY(put_row(g, &g->table.params.item[i]));
    return ST_OK;
}

static enum status low_config(struct lowering *g)
{
    config_default(&g->cfg);
    TRY(source_config(&g->cfg, g->f->source.where));
    if (g->cfg.model.layer != LAYER_FULL)
        return fail(ST_EUSAGE, "%s is low rank already (%s, rank %lld); leave out --to-lowrank",
                    g->f->source.where, config_choice_name("model.layer", (int)g->cfg.model.layer),
                    (long long)g->cfg.model.rank);
    g->cfg.model.layer = g->w->cola ? LAYER_COLA : LAYER_SVD;
    g->cfg.model.rank = g->w->rank;
    g->cfg.model.outer_silu = SILU_ON;
    g->full = g->cfg;
    return model_files_table(&g->table, &g->full);
}

static enum status write_model(struct lowering *g)
{
    int wide = source_wide(&g->f->source) == DT_F64;
    enum status st;

    TRY(model_files_begin(&g->out, g->w->output, &g->table,
                          wide ? SAFETENSORS_F64 : SAFETENSORS_F32, 0));
    st = put_all(g);
    if (st == ST_OK)
        st = model_files_settings(&g->out, g->f, &g->cfg, g->w->tokenizer);
    if (st == ST_OK)
        return outlet_commit(&g->out);
    outlet_drop(&g->out);
    return st;
}

static enum status open_calibration(struct lowering *g, struct host *job)
{
    struct config *cfg;
    enum status st;

    if (!g->w->text)
        return ST_OK;
    cfg = malloc(sizeof *cfg);
    g->calibrate = calloc(1, sizeof *g->calibrate);
    if (!cfg || !g->calibrate) {
        free(cfg);
        return fail(ST_ENOMEM, "no memory for a calibration");
    }
    config_default(cfg);
    st = source_config(cfg, g->f->source.where);
    if (st == ST_OK)
        st = model_files_tokenizer(cfg->data.tokenizer, g->f, g->w->tokenizer);
    if (st == ST_OK)
        st = calibrate_open(g->calibrate, cfg, job, g->f->source.where, g->w->text);
    if (st != ST_OK) {
        free(g->calibrate);
        g->calibrate = NULL;
    }
    free(cfg);
    return st;
}

static void summary(const struct lowering *g)
{
    int64_t before = params_count(&g->f->table.params), after = params_count(&g->table.params);
    const struct calibrate *c = g->calibrate;
    int64_t tokens;

    log_info("energy kept %.4f %% of all layers; %" PRId64 " parameters became %" PRId64,
             g->energy > 0 ? 100.0 * g->kept / g->energy : 100.0, before, after);
    if (!c)
        return;
    tokens = c->result.sequences * c->e.cfg.train.seq;
    log_info("text        %" PRId64 " tokens; the full-rank model's loss there is %.6f", tokens,
             c->result.loss / (double)c->result.targets);
}

enum status import_lowrank(const struct model_files *f, struct host *job,
                           const struct lowrank_wish *w)
{
    struct lowering *g = calloc(1, sizeof *g);
    enum status st;

    if (!g)
        return fail(ST_ENOMEM, "no memory for a low-rank model");
    g->f = f;
    g->w = w;
    st = low_config(g);
    if (st == ST_OK)
        st = open_calibration(g, job);
    if (st == ST_OK)
        st = write_model(g);
    if (st == ST_OK)
        summary(g);
    if (g->calibrate) {
        calibrate_close(g->calibrate);
        free(g->calibrate);
    }
    if (g->table.cfg)
        model_close(&g->table);
    free(g);
    return st;
}
