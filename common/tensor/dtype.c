#include "common/tensor/dtype.h"

size_t dtype_size(enum dtype dt)
{
    static const size_t sizes[DT_COUNT] = {[DT_F32] = 4, [DT_F64] = 8, [DT_BF16] = 2, [DT_I32] = 4};

    return sizes[dt];
}

const char *dtype_name(enum dtype dt)
{
    static const char *const names[DT_COUNT] = {
        [DT_F32] = "f32", [DT_F64] = "f64", [DT_BF16] = "bf16", [DT_I32] = "i32"};

    return names[dt];
}

double dtype_load(const void *data, enum dtype dt, int64_t i)
{
    switch (dt) {
    case DT_F64:
        return ((const double *)data)[i];
    case DT_BF16:
        return (double)bf16_to_float(((const uint16_t *)data)[i]);
    case DT_I32:
        return ((const int32_t *)data)[i];
    default:
        return (double)((const float *)data)[i];
    }
}

void dtype_store(void *data, enum dtype dt, int64_t i, double value)
{
    switch (dt) {
    case DT_F64:
        ((double *)data)[i] = value;
        break;
    case DT_BF16:
        ((uint16_t *)data)[i] = bf16_from_float((float)value);
        break;
    case DT_I32:
        ((int32_t *)data)[i] = (int32_t)value;
        break;
    default:
        ((float *)data)[i] = (float)value;
    }
}
