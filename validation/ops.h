/* `narrows validate ops`: every operation of a backend against float64. */
#ifndef VALIDATION_OPS_H
#define VALIDATION_OPS_H

#include "validation/ops_case.h"

#include <stdio.h>

/* Sizes of one trial: M tokens in `samples` sequences, columns. */
struct ops_size {
    int64_t samples, seq, cols;
};

/* One operation: runs it on both sides and checks its outputs. variant: 0 .. variants - 1. */
struct ops_test {
    const char *name;
    int variants;
    enum status (*run)(struct ops_case *c, struct ops_size s, int variant);
    double f32, bf16; /* bounds of the relative error by type under test */
};

/* The tests of each family; each list ends with name NULL. */
extern const struct ops_test ops_products[];
extern const struct ops_test ops_norms[];
extern const struct ops_test ops_block[];
extern const struct ops_test ops_ends[];
extern const struct ops_test ops_optimizer[];

struct ops_count {
    int rows, misses; /* over their bound */
};

/* Runs all of them, or those whose name holds `only` (NULL: all), on `test` (gold: a ref64 device)
 * in f32 and, if bf16 is set, in bf16, on awkward sizes; prints a row an op and type: error, bound,
 * at which size and output it was worst. Errors: ST_EDEVICE and the like, not a missed bound. */
enum status ops_validate(FILE *out, struct device *test, struct device *gold, int bf16,
                         const char *only, struct ops_count *count);

#endif
