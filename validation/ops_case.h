/* One operation on two devices with the same inputs: the device under test, and a float64 one.
 *
 * Inputs are drawn at random, rounded to the type under test, and given to both; outputs are
 * filled with NaN before, so that an element that is not written cannot pass. The error of an
 * output is ||test - gold|| / ||gold|| over all its elements; any NaN makes it infinite.
 */
#ifndef VALIDATION_OPS_CASE_H
#define VALIDATION_OPS_CASE_H

#include "common/backend/device.h"
#include "common/backend/op.h"

enum { SIDE_TEST, SIDE_GOLD, SIDES };
enum { CASE_BUFFERS = 24 };

/* What a tensor holds: activations of the type under test, wide values (statistics, gradients,
 * masters), float64, or whole numbers. */
enum value_kind { VALUE_ACT, VALUE_WIDE, VALUE_F64, VALUE_INT };

struct buffer {
    struct tensor t[SIDES];
    double *host; /* the values given, rows * cols, packed */
};

struct ops_case {
    struct device *dev[SIDES];
    enum dtype act; /* type under test */
    uint64_t seed, next;
    struct buffer *buffer[CASE_BUFFERS];
    int buffers;
    double worst;      /* largest error of any output checked so far */
    const char *where; /* of which output */
};

/* A case on those devices; frees nothing of theirs. */
void ops_case_begin(struct ops_case *c, struct device *test, struct device *gold, enum dtype act,
                    uint64_t seed);
/* Releases all buffers. */
void ops_case_end(struct ops_case *c);

/* A tensor [rows, cols] on both sides with `gap` unused columns behind each row; grains one.
 * random: normal values times sigma (VALUE_INT: uniform in [-1, sigma)); poisoned: NaN. */
enum status ops_random(struct ops_case *c, struct buffer **b, enum value_kind kind, int64_t rows,
                       int64_t cols, int64_t gap, double sigma);
enum status ops_poisoned(struct ops_case *c, struct buffer **b, enum value_kind kind, int64_t rows,
                         int64_t cols, int64_t gap);

/* Gives values (rows * cols, packed) to both sides of b, rounded to each side's type. */
enum status ops_set(struct ops_case *c, struct buffer *b, const double *values);

/* Compares b's two sides; keeps the worst error under the name of the output. */
enum status ops_check(struct ops_case *c, const struct buffer *b, const char *name);

/* A plan over `samples` samples that come as one micro-batch; accumulate: they join what is
 * there. exact as the test device needs it: 0. */
struct sample_plan ops_plan(int32_t samples, int accumulate);

#endif
