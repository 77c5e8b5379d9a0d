/* Data types of tensors, and conversions for code on the host. */
#ifndef COMMON_TENSOR_DTYPE_H
#define COMMON_TENSOR_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

enum dtype { DT_F32, DT_F64, DT_BF16, DT_I32, DT_COUNT };

/* Bytes of one element. */
size_t dtype_size(enum dtype dt);

/* "f32", "f64", "bf16", "i32". */
const char *dtype_name(enum dtype dt);

/* The float that the bfloat16 h stands for: its upper 16 bits. Exact. */
static inline float bf16_to_float(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;

    memcpy(&f, &u, sizeof f);
    return f;
}

/* f rounded to the nearest bfloat16, ties to even; NaN stays NaN (made quiet). */
static inline uint16_t bf16_from_float(float f)
{
    uint32_t u;

    memcpy(&u, &f, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x0040u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/* Element i of an array of type dt, as a double; and its store, rounded to dt. Host memory. */
double dtype_load(const void *data, enum dtype dt, int64_t i);
void dtype_store(void *data, enum dtype dt, int64_t i, double value);

/* Index of the first of n elements that is infinite or NaN; -1: all are finite. Host memory. */
int64_t dtype_not_finite(const void *data, enum dtype dt, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
