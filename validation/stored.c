#include "validation/stored.h"

#include "common/parallel/head.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum status stored_open(struct stored *f, const char *dir, const char *name)
{
    json_error_t error;

    snprintf(f->path, sizeof f->path, "%s/%s", dir, name);
    f->root = json_load_file(f->path, JSON_REJECT_DUPLICATES, &error);
    if (!f->root && error.line < 0)
        return fail(ST_EIO, "%s cannot be read: %s; name the folder of stored values with --data",
                    f->path, error.text);
    if (!f->root)
        return fail(ST_EFORMAT, "%s:%d: %s", f->path, error.line, error.text);
    return ST_OK;
}

void stored_close(struct stored *f)
{
    json_decref(f->root);
    f->root = NULL;
}

json_t *stored_get(const struct stored *f, const char *key)
{
    json_t *value = json_object_get(f->root, key);

    if (!value)
        fail(ST_EFORMAT, "%s holds no \"%s\"", f->path, key);
    return value;
}

double stored_number(const json_t *array, size_t i)
{
    const json_t *x = json_array_get(array, i);

    return json_is_number(x) ? json_number_value(x) : NAN;
}

double stored_apart(double a, double b, double scale)
{
    double d = fabs(a - b);

    if (!isfinite(d))
        return INFINITY;
    return scale > 0.0 ? d / scale : d;
}

/* max that keeps what is not a number. */
static void grow(double *worst, double d)
{
    if (!(d <= *worst))
        *worst = d;
}

void stored_compare(double *worst, const double *values, int64_t n, const json_t *array)
{
    double most = 0.0;

    if ((int64_t)json_array_size(array) != n || n == 0) {
        *worst = INFINITY;
        return;
    }
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(stored_number(array, (size_t)i)));
    for (int64_t i = 0; i < n; i++)
        grow(worst, stored_apart(values[i], stored_number(array, (size_t)i), most));
}

/* The leading or trailing values of x against a list, relative to `most`. */
static void ends(double *worst, const double *x, int64_t n, const json_t *list, int last,
                 double most)
{
    int64_t k = (int64_t)json_array_size(list), begin = last ? n - k : 0;

    for (int64_t i = 0; i < k; i++)
        grow(worst, begin < 0 ? INFINITY
                              : stored_apart(x[begin + i], stored_number(list, (size_t)i), most));
}

enum status stored_summary(double *worst_norm, double *worst_value, struct session *s,
                           const struct param *row, const struct tensor *t, const json_t *o)
{
    int64_t n = row->real_rows * row->cols;
    double sum = 0.0, most = 0.0, norm = json_number_value(json_object_get(o, "norm"));

    if (!json_is_number(json_object_get(o, "norm")))
        return fail(ST_EFORMAT, "nothing is stored for %s", row->name);
    TRY(session_read(s, s->values, t));
    for (int64_t i = 0; i < n; i++) {
        sum += s->values[i] * s->values[i];
        most = fmax(most, fabs(s->values[i]));
    }
    grow(worst_norm, stored_apart(sqrt(sum), norm, norm));
    ends(worst_value, s->values, n, json_object_get(o, "first"), 0, most);
    ends(worst_value, s->values, n, json_object_get(o, "last"), 1, most);
    return ST_OK;
}

/* The rows that are wanted of those of one micro-batch, whose first token row is `first`. */
static enum status pick_logits(struct session *s, double *out, const struct tensor *logits,
                               int64_t first, const int64_t *token, int n)
{
    int64_t vocab = s->cfg.model.vocab;
    size_t es = dtype_size(logits->dtype);
    char *host = malloc((size_t)logits->cols * es);
    enum status st = host ? ST_OK : fail(ST_ENOMEM, "no memory for a row of logits");

    for (int i = 0; st == ST_OK && i < n; i++) {
        if (token[i] < first || token[i] >= first + logits->rows)
            continue;
        st = device_download(s->place.at.dev, host, tensor_row(logits, token[i] - first),
                             (size_t)logits->cols * es);
        for (int64_t j = 0; st == ST_OK && j < vocab; j++)
            out[i * vocab + j] = dtype_load(host, logits->dtype, j);
    }
    free(host);
    return st;
}

static enum status micro_logits(struct session *s, struct tensor *logits, int64_t first)
{
    struct stage *stage = &s->step.chunk[0];
    struct micro_batch mb = {.samples = s->step.micro, .seq = s->cfg.train.seq};

    mb.tokens = tensor_rows(&s->step.tokens, first, logits->rows, (int32_t)mb.samples);
    TRY(stage_forward(stage, &mb, 0));
    return head_logits(stage->env.strategy, &stage->env.tp, &s->step.model.ends, &stage->x_end,
                       logits);
}

enum status stored_logits(struct session *s, double *out, const int64_t *token, int n)
{
    int64_t all = s->cfg.train.batch * s->cfg.train.seq, rows = s->step.micro * s->cfg.train.seq;
    enum dtype act = s->step.chunk[0].env.tp.act;
    struct tensor logits = tensor_view(NULL, act, rows, s->step.model.shape.vocab_padded);
    enum status st;

    TRY(device_upload(s->place.at.dev, s->step.tokens.data, s->tokens,
                      (size_t)all * sizeof *s->tokens));
    TRY(device_alloc(s->place.at.dev, &logits.data,
                     (size_t)tensor_count(&logits) * dtype_size(act)));
    logits = tensor_grained(logits, (int32_t)s->step.micro, s->step.model.ends.head.row_grains);
    st = ST_OK;
    for (int64_t first = 0; st == ST_OK && first < all; first += rows) {
        st = micro_logits(s, &logits, first);
        if (st == ST_OK)
            st = pick_logits(s, out, &logits, first, token, n);
    }
    device_release(s->place.at.dev, logits.data);
    return st;
}
