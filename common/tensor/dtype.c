#include "common/tensor/dtype.h"

#include <math.h>

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

/* An exponent of ones is infinity or NaN. Blocks of bits, because a loop that may leave at any
 * element is not vectorised: a checkpoint is checked at the rate of memory. */
enum { FINITE_BLOCK = 4096 };

static int block_finite(const void *data, enum dtype dt, int64_t begin, int64_t end)
{
    const uint64_t *d = data;
    const uint32_t *f = data;
    const uint16_t *h = data;
    unsigned bad = 0;

    switch (dt) {
    case DT_F64:
        for (int64_t i = begin; i < end; i++)
            bad |= (d[i] & UINT64_C(0x7ff0000000000000)) == UINT64_C(0x7ff0000000000000);
        break;
    case DT_F32:
        for (int64_t i = begin; i < end; i++)
            bad |= (f[i] & 0x7f800000u) == 0x7f800000u;
        break;
    case DT_BF16:
        for (int64_t i = begin; i < end; i++)
            bad |= (h[i] & 0x7f80u) == 0x7f80u;
        break;
    default:
        break;
    }
    return !bad;
}

int64_t dtype_not_finite(const void *data, enum dtype dt, int64_t n)
{
    for (int64_t begin = 0; begin < n; begin += FINITE_BLOCK) {
        int64_t end = n - begin < FINITE_BLOCK ? n : begin + FINITE_BLOCK;

        if (block_finite(data, dt, begin, end))
            continue;
        while (isfinite(dtype_load(data, dt, begin)))
            begin++;
        return begin;
    }
    return -1;
}
