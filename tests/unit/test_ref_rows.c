/* e^x and sums of rows: accuracy over the whole range of float, and the order of additions written
 * out, whichever vector instructions the processor has. */
#include "ref/rows.h"
#include "ref/vmath.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <stdlib.h>

enum { N = 1 << 16 };

/* |y - e^x| in units of the last place of a float at e^x; infinite on a wrong special case. */
static double ulps(float x, float y)
{
    double exact = exp((double)x), unit;
    int exponent;

    if (isnan(x))
        return isnan(y) ? 0 : INFINITY;
    if (exact >= 0x1.ffffffp127) /* rounds to infinity */
        return isinf(y) && y > 0 ? 0 : INFINITY;
    (void)frexp(exact, &exponent);
    unit = ldexp(1, (exponent < -125 ? -125 : exponent) - 24);
    return isfinite(y) && y >= 0 ? fabs((double)y - exact) / unit : INFINITY;
}

/* Every 997th of all 2^32 floats: all exponents, both signs, denormal, infinite, NaN. */
START_TEST(exp_is_within_1_5_units)
{
    float *x = malloc(N * sizeof *x), *y = malloc(N * sizeof *y);
    double worst = 0;
    uint64_t bits = 0;
    int64_t others = 0; /* that differ when many are done at once */

    ck_assert(x && y);
    while (bits < 0x100000000u) {
        int64_t n = 0;

        for (; n < N && bits < 0x100000000u; n++, bits += 997) {
            uint32_t u = (uint32_t)bits;

            memcpy(&x[n], &u, sizeof u);
        }
        row_exp(y, x, 1, 0, n);
        for (int64_t i = 0; i < n; i++) {
            double e = ulps(x[i], y[i]);
            float alone = vmath_exp(x[i]);

            worst = e > worst ? e : worst;
            others += memcmp(&alone, &y[i], 4) != 0 && !isnan(y[i]);
        }
    }
    free(x);
    free(y);
    ck_assert_double_le(worst, 1.5);
    ck_assert_int_eq(others, 0);
}
END_TEST

START_TEST(exp_special_values)
{
    ck_assert(vmath_exp(0.0f) == 1);
    ck_assert(vmath_exp(-INFINITY) == 0);
    ck_assert(isinf(vmath_exp(INFINITY)));
    ck_assert(isnan(vmath_exp(NAN)));
    ck_assert(vmath_exp(-104.0f) == 0);
    ck_assert(vmath_exp(-1e30f) == 0);
    ck_assert(vmath_exp(88.72283f) < INFINITY);
    ck_assert(vmath_sigmoid(-200.0f) == 0);
    ck_assert(vmath_sigmoid(200.0f) == 1);
    ck_assert(vmath_sigmoid(0.0f) == 0.5f);
}
END_TEST

/* The order that rows.h promises, one addition at a time. */
static float lanes(const float *term, int64_t n)
{
    volatile float lane[16] = {0};

    for (int64_t i = 0; i < n; i++)
        lane[i % 16] += term[i];
    for (int w = 8; w > 0; w /= 2)
        for (int j = 0; j < w; j++)
            lane[j] += lane[j + w];
    return lane[0];
}

static float noise(uint32_t i)
{
    return (float)((i * 2654435761u) >> 8) / (float)(1 << 23) - 1;
}

START_TEST(sums_run_in_the_promised_order)
{
    float a[100], b[100], t[100], term[100];

    for (uint32_t i = 0; i < 100; i++) {
        a[i] = noise(i + 1);
        b[i] = noise(i + 1000);
        t[i] = noise(i + 2000);
    }
    for (int64_t n = 0; n <= 100; n++) {
        float sum = lanes(a, n);

        ck_assert(row_sum(a, n) == sum);
        for (int64_t i = 0; i < n; i++)
            term[i] = a[i] * b[i];
        ck_assert(row_dot(a, b, n) == lanes(term, n));
        for (int64_t i = 0; i < n; i++)
            term[i] = a[i] * a[i];
        ck_assert(row_sumsq(a, n) == lanes(term, n));
        for (int64_t i = 0; i < n; i++) {
            volatile float tb = t[i] * b[i];

            term[i] = tb * a[i];
        }
        ck_assert(row_rms_dot(t, b, a, n) == lanes(term, n));
    }
}
END_TEST

START_TEST(products_are_not_contracted)
{
    float a[37], b[37], y[37], ab[2] = {0.7f, 0.3f};

    for (uint32_t i = 0; i < 37; i++) {
        a[i] = noise(i + 1);
        b[i] = noise(i + 100);
        y[i] = noise(i + 200);
    }
    row_rms_backward(y, a, b, b, ab, 37);
    for (uint32_t i = 0; i < 37; i++) {
        volatile float at = ab[0] * a[i], atg = at * b[i], bx = ab[1] * b[i], d = atg - bx;

        ck_assert(y[i] == noise(i + 200) + d);
    }
}
END_TEST

START_TEST(largest_of_a_row)
{
    float x[40];

    for (uint32_t i = 0; i < 40; i++)
        x[i] = noise(i + 5);
    for (int64_t at = 0; at < 40; at++) {
        float keep = x[at];

        x[at] = 7;
        ck_assert(row_max(x, 40) == 7);
        ck_assert(row_max(x, at) < 7);
        x[at] = keep;
    }
    ck_assert(row_max(x, 0) == -INFINITY);
    x[3] = NAN;
    ck_assert(!isnan(row_max(x, 40)));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ref rows");
    TCase *tc = tcase_create("all");

    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, exp_is_within_1_5_units);
    tcase_add_test(tc, exp_special_values);
    tcase_add_test(tc, sums_run_in_the_promised_order);
    tcase_add_test(tc, products_are_not_contracted);
    tcase_add_test(tc, largest_of_a_row);
    suite_add_tcase(suite, tc);
    return check_unit(suite);
}
