/* e^x with the same bits on every machine: +, -, *, and shifts of the exponent, so that a compiler
 * can do many at once. Errors measured by tests/unit/test_ref_vmath.c: below 1.5 units in the last
 * place (float), below 4e-16 relative (double).
 *
 * x = n ln 2 + r with |r| <= ln(2)/2; e^r is a polynomial; 2^n is applied in two halves, so that
 * results next to overflow and the denormal ones are rounded once. Adding and subtracting 1.5 * 2^p
 * rounds x / ln 2 to an integer whose bits then stand at the low end of the sum. Arguments that
 * would leave the exponent's range are held at its edge, where the result is 0 or infinite; the
 * comparisons let NaN through.
 */
#ifndef REF_VMATH_H
#define REF_VMATH_H

#include "ref/real.h"

#ifdef REF_F64
/* 2^n for an n that is a normal exponent, or wraps around from below 0. */
static inline double vmath_pow2(uint64_t n)
{
    uint64_t u = (n + 1023) << 52;
    double p;

    memcpy(&p, &u, sizeof p);
    return p;
}

/* e^x as said above. */
static inline double vmath_exp(double x)
{
    double magic = 0x1.8p52, t, n, r, p;
    uint64_t k, half;

    x = x < -746.0 ? -746.0 : x;
    x = x > 710.0 ? 710.0 : x;
    t = x * 0x1.71547652b82fep0 + magic;
    n = t - magic;
    r = (x - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
    p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = (p * r * r + r) + 1.0;
    memcpy(&k, &t, sizeof k);
    k -= 0x4338000000000000u;
    half = ((k + 4096) >> 1) - 2048;
    return p * vmath_pow2(half) * vmath_pow2(k - half);
}
#else
/* 2^n for an n that is a normal exponent, or wraps around from below 0. */
static inline float vmath_pow2(uint32_t n)
{
    uint32_t u = (n + 127) << 23;
    float p;

    memcpy(&p, &u, sizeof p);
    return p;
}

/* e^x as said above. */
static inline float vmath_exp(float x)
{
    float magic = 0x1.8p23f, t, n, r, p;
    uint32_t k, half;

    x = x < -104.0f ? -104.0f : x;
    x = x > 89.0f ? 89.0f : x;
    t = x * 0x1.715476p0f + magic;
    n = t - magic;
    r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
    p = 0x1.6d119ap-10f;
    p = p * r + 0x1.120cp-7f;
    p = p * r + 0x1.555518p-5f;
    p = p * r + 0x1.5554dcp-3f;
    p = p * r + 0.5f;
    p = (p * r * r + r) + 1.0f;
    memcpy(&k, &t, sizeof k);
    k -= 0x4b400000u;
    half = ((k + 512) >> 1) - 256;
    return p * vmath_pow2(half) * vmath_pow2(k - half);
}
#endif

/* 1 / (1 + e^-x) */
static inline real vmath_sigmoid(real x)
{
    return (real)1 / ((real)1 + vmath_exp(-x));
}

#endif
