#include "common/train/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t calibrate_width(const struct calibrate *c, enum calibrate_input input)
{
    return input == CALIBRATE_DOWN ? c->e.cfg.model.ffn : c->e.cfg.model.width;
}

static int64_t square(const struct calibrate *c, enum calibrate_input input)
{
    return calibrate_width(c, input) * calibrate_width(c, input);
}

/* Elements of a layer's four matrices. */
static int64_t layer_elements(const struct calibrate *c)
{
    int64_t sum = 0;

    for (int i = 0; i < CALIBRATE_INPUTS; i++)
        sum += square(c, (enum calibrate_input)i);
    return sum;
}

static double *matrix(const struct calibrate *c, int64_t layer, enum calibrate_input input)
{
    double *m = c->moment + (layer - c->first) * layer_elements(c);

    for (int i = 0; i < (int)input; i++)
        m += square(c, (enum calibrate_input)i);
    return m;
}

/* ---- one block's activations ---- */

/* c->x = t in float64. */
static enum status fetch(struct calibrate *c, double *out, const struct tensor *t)
{
    struct device *dev = c->e.place.at.dev;
    int64_t n = t->rows * t->cols;

    FAIL_IF(!tensor_packed(t), ST_EINTERNAL);
    TRY(device_download(dev, c->raw, t->data, (size_t)n * dtype_size(t->dtype)));
    for (int64_t i = 0; i < n; i++)
        out[i] = dtype_load(c->raw, t->dtype, i);
    return ST_OK;
}

/* Rows of c->x become x gain / rms(x): what a projection of the stream reads. */
static enum status normalise(struct calibrate *c, const struct tensor *x, const struct tensor *gain)
{
    int64_t d = x->cols;

    TRY(fetch(c, c->x, x));
    TRY(fetch(c, c->gain, gain));
    for (int64_t i = 0; i < x->rows; i++) {
        double *row = c->x + i * d, sum = 0;

        for (int64_t j = 0; j < d; j++)
            sum += row[j] * row[j];
        sum = 1.0 / sqrt(sum / (double)d + c->e.cfg.model.norm_eps);
        for (int64_t j = 0; j < d; j++)
            row[j] *= sum * c->gain[j];
    }
    return ST_OK;
}

/* The matrix joins x' x of the rows in c->x. */
static enum status add_rows(struct calibrate *c, int64_t layer, enum calibrate_input input,
                            int64_t rows)
{
    int64_t n = calibrate_width(c, input);
    struct tensor x = tensor_grained(tensor_view(c->x, DT_F64, rows, n), 1, 1);
    struct weight_grad w = {
        .dw = tensor_view(matrix(c, layer, input), DT_F64, n, n), .dy = x, .x = x};

    return op_weight_grad(c->products, &w, 1, &c->plan);
}

static enum status see(void *context, int64_t layer, const struct block_acts *a)
{
    struct calibrate *c = context;
    const struct block *b = &c->e.step.model.blocks[layer];
    int64_t rows = a->x0.rows;

    if (layer < c->first || layer >= c->first + c->layers)
        return ST_OK;
    TRY(normalise(c, &a->x0, &b->qkv.gain));
    TRY(add_rows(c, layer, CALIBRATE_QKV, rows));
    TRY(fetch(c, c->x, &a->at.o));
    TRY(add_rows(c, layer, CALIBRATE_O, rows));
    TRY(normalise(c, &a->x1, &b->gate_up.gain));
    TRY(add_rows(c, layer, CALIBRATE_GATE_UP, rows));
    TRY(fetch(c, c->x, &a->f));
    return add_rows(c, layer, CALIBRATE_DOWN, rows);
}

/* ---- the text ---- */

/* Whole sequences of one row each: none is padded. */
static enum status count_sequences(int64_t *n, const struct evaluation *e)
{
    int64_t seq = e->cfg.train.seq, whole = (e->corpus.count - 1) / seq;

    *n = whole < CALIBRATE_TOKENS / seq ? whole : CALIBRATE_TOKENS / seq;
    if (*n < 1)
        return fail(ST_EFORMAT, "%s has %lld tokens; at least one sequence of %lld is needed",
                    e->corpus.path, (long long)e->corpus.count, (long long)seq + 1);
    return ST_OK;
}

static enum status make_room(struct calibrate *c)
{
    const struct config_model *m = &c->e.cfg.model;
    int64_t wide = m->ffn > m->width ? m->ffn : m->width, rows = c->e.cfg.train.seq;
    int64_t bytes = layer_elements(c) * (int64_t)sizeof(double);

    c->most = CALIBRATE_BYTES / bytes;
    c->most = c->most < 1 ? 1 : c->most > m->layers ? m->layers : c->most;
    c->moment = malloc((size_t)(c->most * bytes));
    c->raw = malloc((size_t)(rows * wide) * sizeof(double));
    c->x = malloc((size_t)(rows * wide) * sizeof(double));
    c->gain = malloc((size_t)m->width * sizeof(double));
    if (!c->moment || !c->raw || !c->x || !c->gain)
        return fail(ST_ENOMEM, "no memory for the second moments of %lld layers",
                    (long long)c->most);
    return ST_OK;
}

static enum status open_all(struct calibrate *c)
{
    struct device_options cpu = {.threads = c->e.place.at.dev->threads, .local_size = 1};
    int64_t n;

    TRY(count_sequences(&n, &c->e));
    c->e.loader.samples = n;
    c->plan = (struct sample_plan){.samples = 1, .nodes = 1};
    c->plan.node[0] = (struct sample_node){.count = 1, .merges = 1}; /* joins what is there */
    TRY(device_open(&c->products, &ref64_backend, &cpu));
    TRY(make_room(c));
    c->sight = (struct stage_sight){.see = see, .context = c};
    c->e.step.chunk[0].sight = &c->sight;
    return ST_OK;
}

enum status calibrate_open(struct calibrate *c, const struct config *cfg, struct host *job,
                           const char *weights, const char *text)
{
    struct config *own = malloc(sizeof *own);
    enum status st;

    memset(c, 0, sizeof *c);
    if (!own)
        return fail(ST_ENOMEM, "no memory for a configuration");
    *own = *cfg;
    own->train.batch = 1;
    own->train.micro_batch = 1;
    own->train.head_chunk = 0;
    own->train.seq = own->train.seq < CALIBRATE_SEQ ? own->train.seq : CALIBRATE_SEQ;
    st = evaluation_open(&c->e, own, job, weights, text, 0);
    free(own);
    if (st != ST_OK)
        return st;
    st = open_all(c);
    if (st != ST_OK)
        calibrate_close(c);
    return st;
}

void calibrate_close(struct calibrate *c)
{
    free(c->moment);
    free(c->raw);
    free(c->x);
    free(c->gain);
    if (c->products)
        device_close(c->products);
    evaluation_close(&c->e);
    memset(c, 0, sizeof *c);
}

enum status calibrate_moment(const double **moment, struct calibrate *c, int64_t layer,
                             enum calibrate_input input)
{
    int64_t left = c->e.cfg.model.layers - layer, n = layer_elements(c);
    double scale;

    FAIL_IF(layer < c->first, ST_EINTERNAL);
    if (layer >= c->first + c->layers) {
        c->first = layer;
        c->layers = left < c->most ? left : c->most;
        memset(c->moment, 0, (size_t)(c->layers * n) * sizeof *c->moment);
        TRY(evaluation_run(&c->e, &c->result));
        scale = 1.0 / (double)(c->result.sequences * c->e.cfg.train.seq);
        for (int64_t i = 0; i < c->layers * n; i++)
            c->moment[i] *= scale;
    }
    *moment = matrix(c, layer, input);
    return ST_OK;
}
