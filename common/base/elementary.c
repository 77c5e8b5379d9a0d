#include "common/base/elementary.h"

#include <math.h>

/* log 2 in two parts: the first has 33 bits, so that its product with an exponent is exact. */
static const double ln2_high = 0x1.62e42fefp-1;
static const double ln2_low = 0x1.473de6af278edp-34;
static const double per_ln2 = 0x1.71547652b82fep+0;
static const double sqrt_half = 0x1.6a09e667f3bcdp-1;
static const double two_pi = 0x1.921fb54442d18p+2;

/* c[0] + x (c[1] + x (... + x c[n - 1])) */
static double horner(const double *c, int n, double x)
{
    double sum = c[n - 1];

    for (int i = n - 2; i >= 0; i--)
        sum = sum * x + c[i];
    return sum;
}

/* log((1 + s) / (1 - s)) = 2 s (1 + s^2 / 3 + s^4 / 5 + ...) with s = f / (2 + f) for 1 + f, and
 * 2 s = f - s f keeps the leading term free of the error of the division. |s| < 0.1716, so that
 * the first term left out is below 2^-57 of the sum. */
double elementary_log(double x)
{
    static const double c[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11,
                               2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
    double f, s, z, rest;
    int e;

    if (isnan(x) || x < 0)
        return NAN;
    if (x == 0)
        return -INFINITY;
    if (isinf(x))
        return x;
    f = frexp(x, &e);
    if (f < sqrt_half) {
        f *= 2;
        e--;
    }
    f -= 1;
    s = f / (2 + f);
    z = s * s;
    rest = s * (f - z * horner(c, sizeof c / sizeof c[0], z));
    return e * ln2_high + (f - (rest - e * ln2_low));
}

/* e^x = 2^k e^r with |r| <= log(2) / 2; r^15 / 15! is below 2^-62. */
double elementary_exp(double x)
{
    static const double c[] = {1.0 / 2,          1.0 / 6,        1.0 / 24,        1.0 / 120,
                               1.0 / 720,        1.0 / 5040,     1.0 / 40320,     1.0 / 362880,
                               1.0 / 3628800,    1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800,
                               1.0 / 87178291200};
    double k, r;

    if (isnan(x))
        return x;
    if (x > 709.8)
        return INFINITY;
    if (x < -745.2)
        return 0;
    k = floor(x * per_ln2 + 0.5);
    r = (x - k * ln2_high) - k * ln2_low;
    return ldexp(1 + (r + r * r * horner(c, sizeof c / sizeof c[0], r)), (int)k);
}

/* Taylor's series at |x| <= pi / 4: the first terms left out are x^19 / 19! and x^20 / 20!. */
static void sincos_eighth(double *s, double *c, double x)
{
    static const double sine[] = {
        -1.0 / 6,        1.0 / 120,        -1.0 / 5040,          1.0 / 362880,
        -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000};
    static const double cosine[] = {
        1.0 / 24,        -1.0 / 720,         1.0 / 40320,          -1.0 / 3628800,
        1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000, -1.0 / 6402373705728000};
    double z = x * x;

    *s = x + x * (z * horner(sine, sizeof sine / sizeof sine[0], z));
    *c = 1 - (z / 2 - z * z * horner(cosine, sizeof cosine / sizeof cosine[0], z));
}

void elementary_sincos_turns(double *s, double *c, double turns)
{
    double t, quarter, a, b;

    if (!isfinite(turns)) {
        *s = *c = NAN;
        return;
    }
    t = turns - floor(turns);
    quarter = floor(4 * t + 0.5); /* 0 .. 4; what it leaves is exact and at most 1/8 turn */
    sincos_eighth(&a, &b, (t - quarter / 4) * two_pi);
    switch ((int)quarter & 3) {
    case 0:
        *s = a, *c = b;
        break;
    case 1:
        *s = b, *c = -a;
        break;
    case 2:
        *s = -a, *c = -b;
        break;
    default:
        *s = -b, *c = a;
        break;
    }
    /* The sign of a zero would depend on the quarter. */
    *s += 0.0;
    *c += 0.0;
}
