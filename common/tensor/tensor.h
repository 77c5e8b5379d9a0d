/* A tensor is a view: a pointer, a data type, a row-major shape, a row stride, and its grains.
 *
 * It never owns memory; arenas do (common/base/arena.h). Views are cheap values. The stride lets
 * a column slice be an operand of a matrix product.
 *
 * Grains: a dimension that a layout may cut (width, heads, FFN units, vocabulary) falls into
 * grains of equal size, and a rank holds consecutive ones. A tensor says how many of them lie in
 * its rows and in its columns; token rows fall into grains of one sequence each. Arithmetic is
 * done grain by grain and summed over a fixed tree, which makes the result independent of how
 * grains are dealt to ranks (docs/numerics.md). Code above the backend only passes them on.
 */
#ifndef COMMON_TENSOR_TENSOR_H
#define COMMON_TENSOR_TENSOR_H

#include "common/tensor/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

struct tensor {
    void *data;
    enum dtype dtype;
    int32_t row_grains, col_grains; /* equal pieces of rows and of cols; 1 when never cut */
    int64_t rows, cols;
    int64_t stride; /* elements from one row to the next; equals cols when packed */
};

/* rows * cols */
int64_t tensor_count(const struct tensor *t);

/* Nonzero when rows follow each other without a gap. */
int tensor_packed(const struct tensor *t);

/* Nonzero when rows and cols agree (grains, strides and types may differ). */
int tensor_same_shape(const struct tensor *a, const struct tensor *b);

/* A packed [rows, cols] view of data, with one grain each way. */
struct tensor tensor_view(void *data, enum dtype dt, int64_t rows, int64_t cols);

/* t with its grains set. */
struct tensor tensor_grained(struct tensor t, int32_t row_grains, int32_t col_grains);

/* Columns [begin, begin + cols) of t, or its rows; shares memory. grains: those of the slice. */
struct tensor tensor_cols(const struct tensor *t, int64_t begin, int64_t cols, int32_t grains);
struct tensor tensor_rows(const struct tensor *t, int64_t begin, int64_t rows, int32_t grains);

/* Address of row i. */
void *tensor_row(const struct tensor *t, int64_t i);

#ifdef __cplusplus
}
#endif
#endif
