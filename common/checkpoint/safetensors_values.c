/* Types, and values as numbers. */
#include "common/checkpoint/safetensors.h"

#include <math.h>
#include <string.h>

const char *safetensors_type_name(enum safetensors_type type)
{
    static const char *const names[] = {
#define X(type, bytes) #type,
        SAFETENSORS_TYPES(X)
#undef X
    };

    return type < SAFETENSORS_TYPE_COUNT ? names[type] : "?";
}

size_t safetensors_type_size(enum safetensors_type type)
{
    static const size_t sizes[] = {
#define X(type, bytes) bytes,
        SAFETENSORS_TYPES(X)
#undef X
    };

    return type < SAFETENSORS_TYPE_COUNT ? sizes[type] : 0;
}

/* The float that the IEEE half h stands for. Exact. */
static float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, part = h & 1023u;
    uint32_t bits = sign | (exponent + 112u) << 23 | part << 13;
    float value;

    if (exponent == 0) { /* zero and subnormals: part * 2^-24 */
        value = (float)part * 0x1p-24f;
        return sign ? -value : value;
    }
    if (exponent == 31)
        bits = sign | 0x7f800000u | part << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double element(const struct safetensors_tensor *t, int64_t i)
{
    const char *at = (const char *)t->data + (size_t)i * safetensors_type_size(t->type);
    uint16_t half;
    double wide;
    float single;

    switch (t->type) {
    case SAFETENSORS_F64:
        memcpy(&wide, at, sizeof wide);
        return wide;
    case SAFETENSORS_F32:
        memcpy(&single, at, sizeof single);
        return single;
    default:
        memcpy(&half, at, sizeof half);
        return t->type == SAFETENSORS_F16 ? half_to_float(half) : bf16_to_float(half);
    }
}

enum status safetensors_read(void *out, enum dtype dt, const struct safetensors_tensor *t,
                             int64_t first, int64_t n)
{
    size_t es = dtype_size(dt);

    FAIL_IF(first < 0 || n < 0 || first > t->count - n, ST_EINTERNAL);
    if (t->type > SAFETENSORS_BF16) /* the four real types come first */
        return fail(ST_EFORMAT, "tensor %.96s is of type %s; values must be F64, F32, F16 or BF16",
                    t->name, safetensors_type_name(t->type));
    if ((dt == DT_F32 && t->type == SAFETENSORS_F32) ||
        (dt == DT_F64 && t->type == SAFETENSORS_F64)) {
        if (n)
            memcpy(out, (const char *)t->data + (size_t)first * es, (size_t)n * es);
        return ST_OK;
    }
    for (int64_t i = 0; i < n; i++)
        dtype_store(out, dt, i, element(t, first + i));
    return ST_OK;
}

/* x rounded to the nearest IEEE half, ties to even, from a double in one step. */
static uint16_t half_from_double(double x)
{
    uint16_t sign = signbit(x) ? 0x8000u : 0;
    double a = fabs(x), unit;
    int exponent;

    if (isnan(x))
        return 0x7e00u;
    if (a <
        0x1p-14) /* zero and subnormals: multiples of 2^-24; the largest carries into the next */
        return (uint16_t)(sign | (unsigned)nearbyint(a * 0x1p24));
    if (a >= 65520.0)
        return (uint16_t)(sign | 0x7c00u);
    (void)frexp(a, &exponent); /* a in [0.5, 1) 2^exponent: 1024 to 2048 units, the last carries */
    unit = ldexp(1.0, exponent - 11);
    return (uint16_t)(sign |
                      (((unsigned)(exponent + 14) << 10) + (unsigned)nearbyint(a / unit) - 1024u));
}

/* x rounded to the nearest bfloat16 in one step: what float would round away before counts too. */
static uint16_t bf16_from_double(double x)
{
    float f = (float)x;
    uint32_t bits;

    if ((double)f != x && isfinite(f)) { /* round to odd first: the second rounding then is right */
        memcpy(&bits, &f, sizeof bits);
        if (fabs((double)f) > fabs(x))
            bits--;
        bits |= 1u;
        memcpy(&f, &bits, sizeof f);
    }
    return bf16_from_float(f);
}

static int overflows(enum safetensors_type type, double x)
{
    double most = type == SAFETENSORS_F16    ? 65520.0
                  : type == SAFETENSORS_BF16 ? 0x1.ffp127
                                             : 0x1.ffffffp127;

    return type != SAFETENSORS_F64 && isfinite(x) && fabs(x) >= most;
}

enum status safetensors_pack(void *out, enum safetensors_type type, const void *in, enum dtype dt,
                             int64_t n)
{
    FAIL_IF(type > SAFETENSORS_BF16, ST_EINTERNAL);
    for (int64_t i = 0; i < n; i++) {
        double x = dtype_load(in, dt, i);

        if (overflows(type, x))
            return fail(ST_EFORMAT, "value %lld is %g, which %s cannot hold; choose another type",
                        (long long)i, x, safetensors_type_name(type));
        if (type == SAFETENSORS_F64)
            ((double *)out)[i] = x;
        else if (type == SAFETENSORS_F32)
            ((float *)out)[i] = (float)x;
        else
            ((uint16_t *)out)[i] =
                type == SAFETENSORS_F16 ? half_from_double(x) : bf16_from_double(x);
    }
    return ST_OK;
}
