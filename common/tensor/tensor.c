#include "common/tensor/tensor.h"

int64_t tensor_count(const struct tensor *t)
{
    return t->rows * t->cols;
}

int tensor_packed(const struct tensor *t)
{
    return t->stride == t->cols || t->rows <= 1;
}

int tensor_same_shape(const struct tensor *a, const struct tensor *b)
{
    return a->rows == b->rows && a->cols == b->cols;
}

struct tensor tensor_view(void *data, enum dtype dt, int64_t rows, int64_t cols)
{
    return (struct tensor){.data = data,
                           .dtype = dt,
                           .row_grains = 1,
                           .col_grains = 1,
                           .rows = rows,
                           .cols = cols,
                           .stride = cols};
}

struct tensor tensor_grained(struct tensor t, int32_t row_grains, int32_t col_grains)
{
    t.row_grains = row_grains;
    t.col_grains = col_grains;
    return t;
}

struct tensor tensor_cols(const struct tensor *t, int64_t begin, int64_t cols, int32_t grains)
{
    struct tensor s = *t;

    s.data = (char *)t->data + (size_t)begin * dtype_size(t->dtype);
    s.cols = cols;
    s.col_grains = grains;
    return s;
}

struct tensor tensor_rows(const struct tensor *t, int64_t begin, int64_t rows, int32_t grains)
{
    struct tensor s = *t;

    s.data = tensor_row(t, begin);
    s.rows = rows;
    s.row_grains = grains;
    return s;
}

void *tensor_row(const struct tensor *t, int64_t i)
{
    return (char *)t->data + (size_t)(i * t->stride) * dtype_size(t->dtype);
}
