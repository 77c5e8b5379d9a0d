/* What the tests of the reference backend share: tensors with made-up numbers, comparisons,
 * central differences. Memory comes from one pool, which ref_case_end() gives back. */
#ifndef TESTS_UNIT_REF_CASE_H
#define TESTS_UNIT_REF_CASE_H

#include "common/backend/device.h"
#include "common/backend/op.h"

#include <check.h>

/* Asserts that an operation succeeded, with its message otherwise. */
#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

enum { CASE_BLOCKS = 4096, CASE_DEVICES = 16 };

struct ref_case {
    void *block[CASE_BLOCKS];
    int blocks;
    struct device *device[CASE_DEVICES];
    int devices;
};

/* An empty pool; and everything given back. */
void ref_case_begin(struct ref_case *c);
void ref_case_end(struct ref_case *c);

/* A device of be with so many threads. */
struct device *ref_case_device(struct ref_case *c, const struct backend *be, int threads);

/* [rows, cols] of NaN (i32: -1) in a buffer with `gap` spare elements a row. */
struct tensor ref_case_tensor(struct ref_case *c, enum dtype dt, int64_t rows, int64_t cols,
                              int64_t gap);

/* A packed tensor of the device's wide type filled by ref_case_fill. */
struct tensor ref_case_random(struct ref_case *c, const struct device *dev, int64_t rows,
                              int64_t cols, uint64_t seed);

/* A packed copy in another type. */
struct tensor ref_case_copy(struct ref_case *c, const struct tensor *t, enum dtype dt);

/* Numbers of about a standard normal times sigma that bf16 can hold when the type is bf16, float
 * otherwise: the same for f32 and f64. */
void ref_case_fill(struct tensor *t, uint64_t seed, double sigma);

/* All elements become x. */
void ref_case_set(struct tensor *t, double x);

/* Element [i, j] as a double; and its store. */
double ref_case_get(const struct tensor *t, int64_t i, int64_t j);
void ref_case_put(struct tensor *t, int64_t i, int64_t j, double x);

/* |a - b| / |b| in the 2-norm (|a - b| when b is 0); infinite where either holds a NaN. */
double ref_case_error(const struct tensor *a, const struct tensor *b);

/* Nonzero when types and shapes agree and all elements have the same bits. */
int ref_case_same(const struct tensor *a, const struct tensor *b);

/* Number of spare elements between rows of t that are no longer poison. */
int64_t ref_case_spilt(const struct tensor *t);

/* A plan for one micro-batch that is the whole batch of n samples; plane: bytes between slots. */
struct sample_plan ref_case_plan(int64_t n, int64_t plane);

/* The loss of which `grad` should be the gradient. */
struct ref_case_loss {
    double (*value)(void *context);
    void *context;
};

/* Largest difference between grad and central differences of the loss in the elements of x (all
 * f64), over 1 + the largest gradient. Steps through every element, or about 60 of a large x. */
double ref_case_differences(struct tensor *x, const struct tensor *grad, struct ref_case_loss loss);

/* sum of a * b, for losses. */
double ref_case_dot(const struct tensor *a, const struct tensor *b);

#endif
