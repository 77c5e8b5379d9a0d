#include "common/tensor/dtype.h"

#include <math.h>
#include <string.h>

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

/* An exponent of ones is infinity or NaN: with one more in its lowest place it reaches the place of
 * the sign, which the mask has cleared. That is done to all values of a word of 64 bits at once,
 * and for blocks of a constant length, which is what compilers vectorise: a checkpoint is looked
 * through at the rate of memory. */
enum { FINITE_WORDS = 512 };

struct exponents {
    uint64_t mask, one, carry;
};

static struct exponents exponents_of(enum dtype dt)
{
    switch (dt) {
    case DT_F64:
        return (struct exponents){0x7ff0000000000000u, 0x0010000000000000u, 0x8000000000000000u};
    case DT_F32:
        return (struct exponents){0x7f8000007f800000u, 0x0080000000800000u, 0x8000000080000000u};
    case DT_BF16:
        return (struct exponents){0x7f807f807f807f80u, 0x0080008000800080u, 0x8000800080008000u};
    default:
        return (struct exponents){0, 0, 0};
    }
}

/* bytes: at most 8 FINITE_WORDS; the rest counts as zeros. */
static int block_finite(const char *data, size_t bytes, struct exponents e)
{
    uint64_t word[FINITE_WORDS], all = 0;

    if (bytes < sizeof word)
        memset(word, 0, sizeof word);
    memcpy(word, data, bytes);
    for (int i = 0; i < FINITE_WORDS; i++)
        all |= (word[i] & e.mask) + e.one;
    return !(all & e.carry);
}

int64_t dtype_not_finite(const void *data, enum dtype dt, int64_t n)
{
    const size_t es = dtype_size(dt);
    const int64_t block = FINITE_WORDS * 8 / (int64_t)es;
    struct exponents e = exponents_of(dt);

    for (int64_t begin = 0; begin < n; begin += block) {
        int64_t count = n - begin < block ? n - begin : block;

        if (block_finite((const char *)data + (size_t)begin * es, (size_t)count * es, e))
            continue;
        while (isfinite(dtype_load(data, dt, begin)))
            begin++;
        return begin;
    }
    return -1;
}
