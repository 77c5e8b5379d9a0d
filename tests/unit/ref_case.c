#include "tests/unit/ref_case.h"

#include "common/base/rng.h"

#include <math.h>
#include <stdlib.h>

void ref_case_begin(struct ref_case *c)
{
    memset(c, 0, sizeof *c);
    status_clear();
}

void ref_case_end(struct ref_case *c)
{
    for (int i = 0; i < c->devices; i++)
        device_close(c->device[i]);
    for (int i = 0; i < c->blocks; i++)
        free(c->block[i]);
}

struct device *ref_case_device(struct ref_case *c, const struct backend *be, int threads)
{
    struct device_options opt = {.threads = threads, .local_size = 1};

    ck_assert_int_lt(c->devices, CASE_DEVICES);
    OK(device_open(&c->device[c->devices], be, &opt));
    return c->device[c->devices++];
}

struct tensor ref_case_tensor(struct ref_case *c, enum dtype dt, int64_t rows, int64_t cols,
                              int64_t gap)
{
    size_t bytes = (size_t)(rows * (cols + gap)) * dtype_size(dt);
    struct tensor t;
    void *p = malloc(bytes ? bytes : 1);

    ck_assert_ptr_nonnull(p);
    ck_assert_int_lt(c->blocks, CASE_BLOCKS);
    memset(p, 0xff, bytes);
    c->block[c->blocks++] = p;
    t = tensor_view(p, dt, rows, cols);
    t.stride = cols + gap;
    return t;
}

void ref_case_fill(struct tensor *t, uint64_t seed, double sigma)
{
    struct rng_key key = rng_key(seed, RNG_TEST, 0);

    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->cols; j++) {
            float x = (float)(sigma * rng_normal(&key, (uint64_t)(i * t->cols + j)));

            ref_case_put(t, i, j, (double)x);
        }
}

struct tensor ref_case_random(struct ref_case *c, const struct device *dev, int64_t rows,
                              int64_t cols, uint64_t seed)
{
    struct tensor t = ref_case_tensor(c, dev->wide, rows, cols, 0);

    ref_case_fill(&t, seed, 1);
    return t;
}

struct tensor ref_case_copy(struct ref_case *c, const struct tensor *t, enum dtype dt)
{
    struct tensor y = ref_case_tensor(c, dt, t->rows, t->cols, 0);

    y.row_grains = t->row_grains;
    y.col_grains = t->col_grains;
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->cols; j++)
            ref_case_put(&y, i, j, ref_case_get(t, i, j));
    return y;
}

void ref_case_set(struct tensor *t, double x)
{
    for (int64_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < t->cols; j++)
            ref_case_put(t, i, j, x);
}

double ref_case_get(const struct tensor *t, int64_t i, int64_t j)
{
    return dtype_load(t->data, t->dtype, i * t->stride + j);
}

void ref_case_put(struct tensor *t, int64_t i, int64_t j, double x)
{
    dtype_store(t->data, t->dtype, i * t->stride + j, x);
}

double ref_case_error(const struct tensor *a, const struct tensor *b)
{
    double difference = 0, size = 0;

    ck_assert(tensor_same_shape(a, b));
    for (int64_t i = 0; i < a->rows; i++)
        for (int64_t j = 0; j < a->cols; j++) {
            double y = ref_case_get(b, i, j), d = ref_case_get(a, i, j) - y;

            if (isnan(d))
                return INFINITY;
            difference += d * d;
            size += y * y;
        }
    return sqrt(size > 0 ? difference / size : difference);
}

int ref_case_same(const struct tensor *a, const struct tensor *b)
{
    if (a->dtype != b->dtype || !tensor_same_shape(a, b))
        return 0;
    for (int64_t i = 0; i < a->rows; i++)
        if (memcmp(tensor_row(a, i), tensor_row(b, i), (size_t)a->cols * dtype_size(a->dtype)) != 0)
            return 0;
    return 1;
}

int64_t ref_case_spilt(const struct tensor *t)
{
    int64_t spilt = 0;

    for (int64_t i = 0; i < t->rows; i++) {
        const unsigned char *row = tensor_row(t, i);

        for (size_t b = (size_t)t->cols * dtype_size(t->dtype);
             b < (size_t)t->stride * dtype_size(t->dtype); b++)
            spilt += row[b] != 0xff;
    }
    return spilt;
}

struct sample_plan ref_case_plan(int64_t n, int64_t plane)
{
    struct sample_tree tree;
    struct sample_plan plan;

    sample_tree_start(&tree, 0, n, 1);
    sample_plan_next(&plan, &tree, n);
    plan.plane = plane;
    return plan;
}

double ref_case_differences(struct tensor *x, const struct tensor *grad, struct ref_case_loss loss)
{
    int64_t count = tensor_count(x), step = count > 60 ? count / 60 : 1;
    double worst = 0, size = 1, h = 1e-5;

    for (int64_t e = 0; e < count; e += step) {
        int64_t i = e / x->cols, j = e % x->cols;
        double at = ref_case_get(x, i, j), g = ref_case_get(grad, i, j), up, down, d;

        ref_case_put(x, i, j, at + h);
        up = loss.value(loss.context);
        ref_case_put(x, i, j, at - h);
        down = loss.value(loss.context);
        ref_case_put(x, i, j, at);
        d = fabs((up - down) / (2 * h) - g);
        if (isnan(d))
            return INFINITY;
        worst = d > worst ? d : worst;
        size = fabs(g) > size ? fabs(g) : size;
    }
    return worst / size;
}

double ref_case_dot(const struct tensor *a, const struct tensor *b)
{
    double sum = 0;

    for (int64_t i = 0; i < a->rows; i++)
        for (int64_t j = 0; j < a->cols; j++)
            sum += ref_case_get(a, i, j) * ref_case_get(b, i, j);
    return sum;
}
