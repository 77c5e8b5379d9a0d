#include "validation/ops_case.h"

#include "common/base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void ops_case_begin(struct ops_case *c, struct device *test, struct device *gold, enum dtype act,
                    uint64_t seed)
{
    memset(c, 0, sizeof *c);
    c->dev[SIDE_TEST] = test;
    c->dev[SIDE_GOLD] = gold;
    c->act = act;
    c->seed = seed;
    c->where = "";
}

void ops_case_end(struct ops_case *c)
{
    for (int i = 0; i < c->buffers; i++) {
        for (int side = 0; side < SIDES; side++)
            device_release(c->dev[side], c->buffer[i]->t[side].data);
        free(c->buffer[i]->host);
        free(c->buffer[i]);
    }
    c->buffers = 0;
}

static enum dtype type_of(const struct ops_case *c, enum value_kind kind, int side)
{
    switch (kind) {
    case VALUE_INT:
        return DT_I32;
    case VALUE_F64:
        return DT_F64;
    case VALUE_ACT:
        return side == SIDE_TEST ? c->act : c->dev[side]->wide;
    default:
        return c->dev[side]->wide;
    }
}

static enum status make(struct ops_case *c, struct buffer **out, enum value_kind kind, int64_t rows,
                        int64_t cols, int64_t gap)
{
    struct buffer *b;

    FAIL_IF(c->buffers == CASE_BUFFERS, ST_EINTERNAL);
    b = calloc(1, sizeof *b);
    if (!b)
        return fail(ST_ENOMEM, "no memory for a test's tensor");
    c->buffer[c->buffers++] = *out = b;
    b->host = calloc((size_t)(rows * cols), sizeof *b->host);
    if (!b->host)
        return fail(ST_ENOMEM, "no memory for %lld test values", (long long)(rows * cols));
    for (int side = 0; side < SIDES; side++) {
        enum dtype dt = type_of(c, kind, side);
        void *data;

        TRY(device_alloc(c->dev[side], &data, (size_t)(rows * (cols + gap)) * dtype_size(dt)));
        b->t[side] = tensor_view(data, dt, rows, cols);
        b->t[side].stride = cols + gap;
    }
    return ST_OK;
}

/* Uploads values with NaN in the gaps between rows (zero in whole numbers). */
static enum status upload(struct ops_case *c, const struct buffer *b, int side)
{
    const struct tensor *t = &b->t[side];
    size_t n = (size_t)(t->rows * t->stride);
    char *image = malloc(n * dtype_size(t->dtype));
    enum status st;

    if (!image)
        return fail(ST_ENOMEM, "no memory for %zu test values", n);
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->stride; j++) {
            double gap = t->dtype == DT_I32 ? 0.0 : NAN;

            dtype_store(image, t->dtype, i * t->stride + j,
                        j < t->cols ? b->host[i * t->cols + j] : gap);
        }
    st = device_upload(c->dev[side], t->data, image, n * dtype_size(t->dtype));
    if (st == ST_OK)
        st = device_sync(c->dev[side]);
    free(image);
    return st;
}

enum status ops_set(struct ops_case *c, struct buffer *b, const double *values)
{
    const struct tensor *t = &b->t[SIDE_TEST];

    for (int64_t i = 0; i < t->rows * t->cols; i++) { /* gold sees what the test's type holds */
        char one[8];

        dtype_store(one, t->dtype, 0, values[i]);
        b->host[i] = dtype_load(one, t->dtype, 0);
    }
    TRY(upload(c, b, SIDE_TEST));
    return upload(c, b, SIDE_GOLD);
}

enum status ops_random(struct ops_case *c, struct buffer **b, enum value_kind kind, int64_t rows,
                       int64_t cols, int64_t gap, double sigma)
{
    struct rng_key key = rng_key(c->seed, RNG_TEST, c->next++);
    double *values = calloc((size_t)(rows * cols), sizeof *values);
    enum status st;

    if (!values)
        return fail(ST_ENOMEM, "no memory for %lld test values", (long long)(rows * cols));
    for (int64_t i = 0; i < rows * cols; i++)
        values[i] = kind == VALUE_INT
                        ? (double)rng_below(&key, (uint64_t)i, (uint64_t)sigma + 1) - 1.0
                        : sigma * rng_normal(&key, (uint64_t)i);
    st = make(c, b, kind, rows, cols, gap);
    if (st == ST_OK)
        st = ops_set(c, *b, values);
    free(values);
    return st;
}

enum status ops_poisoned(struct ops_case *c, struct buffer **b, enum value_kind kind, int64_t rows,
                         int64_t cols, int64_t gap)
{
    TRY(make(c, b, kind, rows, cols, gap));
    for (int64_t i = 0; i < rows * cols; i++)
        (*b)->host[i] = NAN;
    TRY(upload(c, *b, SIDE_TEST));
    return upload(c, *b, SIDE_GOLD);
}

static enum status download(struct ops_case *c, const struct buffer *b, int side, double *values)
{
    const struct tensor *t = &b->t[side];
    size_t n = (size_t)(t->rows * t->stride), bytes = n * dtype_size(t->dtype);
    char *image = malloc(bytes);
    enum status st = image ? device_download(c->dev[side], image, t->data, bytes)
                           : fail(ST_ENOMEM, "no memory for %zu test values", n);

    for (int64_t i = 0; st == ST_OK && i < t->rows; i++)
        for (int64_t j = 0; j < t->cols; j++)
            values[i * t->cols + j] = dtype_load(image, t->dtype, i * t->stride + j);
    free(image);
    return st;
}

/* ||x - y|| / ||y||; equal elements count as no error, also where both are infinite. */
static double relative_error(const double *x, const double *y, int64_t n)
{
    double error = 0.0, norm = 0.0;

    for (int64_t i = 0; i < n; i++) {
        if (isnan(x[i]) || isnan(y[i]))
            return INFINITY;
        if (x[i] != y[i])
            error += (x[i] - y[i]) * (x[i] - y[i]);
        norm += y[i] * y[i];
    }
    if (error == 0.0)
        return 0.0;
    return norm > 0.0 ? sqrt(error / norm) : INFINITY;
}

enum status ops_check(struct ops_case *c, const struct buffer *b, const char *name)
{
    int64_t n = b->t[0].rows * b->t[0].cols;
    double *x = calloc((size_t)n * 2, sizeof *x), error;
    enum status st = x ? download(c, b, SIDE_TEST, x) : fail(ST_ENOMEM, "no memory to compare");

    if (st == ST_OK)
        st = download(c, b, SIDE_GOLD, x + n);
    if (st == ST_OK) {
        error = relative_error(x, x + n, n);
        if (error > c->worst || c->where[0] == '\0') {
            c->worst = error;
            c->where = name;
        }
    }
    free(x);
    return st;
}

struct sample_plan ops_plan(int32_t samples, int accumulate)
{
    return (struct sample_plan){.samples = samples,
                                .exact = 0,
                                .nodes = 1,
                                .node = {{.count = samples, .merges = accumulate}}};
}
