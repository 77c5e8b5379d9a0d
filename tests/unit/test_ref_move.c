/* Conversions, rearrangements and sums over parts of the reference backend. */
#include "tests/unit/check_unit.h"
#include "tests/unit/ref_case.h"

#include <math.h>
#include <stdlib.h>

/* All 65536 codes of bf16: to float exactly, back to themselves; NaN stays NaN. */
START_TEST(bf16_codes_survive_conversion)
{
    struct ref_case c;
    struct device *dev;
    struct tensor h, f, back;

    ref_case_begin(&c);
    dev = ref_case_device(&c, &ref_backend, 2);
    h = ref_case_tensor(&c, DT_BF16, 256, 256, 0);
    f = ref_case_tensor(&c, DT_F32, 256, 256, 0);
    back = ref_case_tensor(&c, DT_BF16, 256, 256, 0);
    for (uint32_t i = 0; i < 65536; i++)
        ((uint16_t *)h.data)[i] = (uint16_t)i;
    OK(op_convert(dev, &f, &h, 1));
    OK(op_convert(dev, &back, &f, 1));
    for (uint32_t i = 0; i < 65536; i++) {
        uint32_t bits = i << 16;
        float x = ((float *)f.data)[i];
        uint16_t code = ((uint16_t *)back.data)[i];

        if (isnan(bf16_to_float((uint16_t)i))) {
            ck_assert(isnan(x) && isnan(bf16_to_float(code)));
        } else {
            ck_assert(memcmp(&x, &bits, 4) == 0);
            ck_assert_uint_eq(code, i);
        }
    }
    ref_case_end(&c);
}
END_TEST

/* Nearest of the two bf16 neighbours, the even one when both are as near: in double. */
static uint16_t nearest_bf16(float x)
{
    uint32_t bits, low;
    double below, above, at = (double)x;

    memcpy(&bits, &x, 4);
    low = bits >> 16;
    below = (double)bf16_to_float((uint16_t)low);
    above = (low & 0x7fff) == 0x7f7f ? copysign(0x1p128, at)
                                     : (double)bf16_to_float((uint16_t)(low + 1));
    if (fabs(at - below) != fabs(above - at))
        return (uint16_t)(fabs(at - below) < fabs(above - at) ? low : low + 1);
    return (uint16_t)(low % 2 == 0 ? low : low + 1);
}

/* For every bf16 code the floats just around it, its midpoint and between: both signs. */
START_TEST(floats_round_to_nearest_even_bf16)
{
    static const uint32_t offset[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0x4000, 0xc123};
    struct ref_case c;
    struct device *dev;
    struct tensor f, h;

    ref_case_begin(&c);
    dev = ref_case_device(&c, &ref_backend, 1);
    f = ref_case_tensor(&c, DT_F32, 65536, 8, 0);
    h = ref_case_tensor(&c, DT_BF16, 65536, 8, 0);
    for (uint32_t i = 0; i < 65536; i++)
        for (uint32_t k = 0; k < 8; k++)
            ((uint32_t *)f.data)[i * 8 + k] = (i << 16) + offset[k];
    OK(op_convert(dev, &h, &f, 1));
    for (uint32_t i = 0; i < 65536 * 8; i++) {
        float x = ((float *)f.data)[i];
        uint16_t code = ((uint16_t *)h.data)[i];

        if (isnan(x))
            ck_assert(isnan(bf16_to_float(code)));
        else if (isinf(x))
            ck_assert(bf16_to_float(code) == x);
        else
            ck_assert_uint_eq(code, nearest_bf16(x));
    }
    ref_case_end(&c);
}
END_TEST

START_TEST(convert_between_all_types)
{
    static const enum dtype types[] = {DT_F32, DT_F64, DT_BF16};
    struct ref_case c;
    struct device *dev;
    struct tensor x[9], y[9];

    ref_case_begin(&c);
    dev = ref_case_device(&c, &ref_backend, 1);
    for (int i = 0; i < 9; i++) { /* each pair of a shape of its own */
        x[i] = ref_case_tensor(&c, types[i / 3], 3 + i, 5, 1);
        ref_case_fill(&x[i], (unsigned)i + 1, 1);
        y[i] = ref_case_tensor(&c, types[i % 3], 3 + i, 5, 2);
    }
    OK(op_convert(dev, y, x, 9));
    OK(op_convert(dev, y, x, 0));
    for (int i = 0; i < 9; i++) {
        struct tensor expected = ref_case_copy(&c, &x[i], types[i % 3]);

        ck_assert(ref_case_same(&y[i], &expected));
        ck_assert_int_eq(ref_case_spilt(&y[i]), 0);
    }
    ref_case_end(&c);
}
END_TEST

START_TEST(columns_join_and_split)
{
    struct ref_case c;
    struct device *dev;
    struct tensor parts, y, back;
    enum dtype dt = _i ? DT_BF16 : DT_F32;

    ref_case_begin(&c);
    dev = ref_case_device(&c, &ref_backend, 2);
    parts = ref_case_tensor(&c, dt, 4 * 5, 3, 0);
    ref_case_fill(&parts, 1, 1);
    y = ref_case_tensor(&c, dt, 5, 12, 1);
    back = ref_case_tensor(&c, dt, 4 * 5, 3, 2);
    OK(op_cols_join(dev, &y, &parts));
    for (int64_t i = 0; i < 5; i++)
        for (int64_t j = 0; j < 12; j++)
            ck_assert(ref_case_get(&y, i, j) == ref_case_get(&parts, j / 3 * 5 + i, j % 3));
    OK(op_cols_split(dev, &back, &y));
    ck_assert(ref_case_same(&back, &parts));
    ck_assert_int_eq(ref_case_spilt(&y) + ref_case_spilt(&back), 0);
    ref_case_end(&c);
}
END_TEST

static float tree(const struct tensor *parts, int64_t rows, int64_t i, int64_t j,
                  const int64_t span[2])
{
    int64_t lo = span[0], hi = span[1], mid = lo + (hi - lo) / 2;

    if (hi - lo == 1)
        return (float)ref_case_get(parts, lo * rows + i, j);
    return tree(parts, rows, i, j, (const int64_t[2]){lo, mid}) +
           tree(parts, rows, i, j, (const int64_t[2]){mid, hi});
}

START_TEST(sum_over_parts_is_the_tree)
{
    struct ref_case c;
    struct device *dev;

    ref_case_begin(&c);
    dev = ref_case_device(&c, &ref_backend, 2);
    for (int64_t p = 1; p <= 9; p++) {
        struct tensor parts = ref_case_tensor(&c, DT_F32, p * 4, 19, 1);
        struct tensor s = ref_case_tensor(&c, _i ? DT_BF16 : DT_F32, 4, 19, 2);

        ref_case_fill(&parts, (uint64_t)p, 1);
        OK(op_sum_tree(dev, &s, &parts));
        for (int64_t i = 0; i < 4; i++)
            for (int64_t j = 0; j < 19; j++) {
                float sum = tree(&parts, 4, i, j, (const int64_t[2]){0, p});

                ck_assert(ref_case_get(&s, i, j) ==
                          (double)(_i ? bf16_to_float(bf16_from_float(sum)) : sum));
            }
        ck_assert_int_eq(ref_case_spilt(&s), 0);
    }
    ref_case_end(&c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ref conversions");
    TCase *tc = tcase_create("all");

    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, bf16_codes_survive_conversion);
    tcase_add_test(tc, floats_round_to_nearest_even_bf16);
    tcase_add_test(tc, convert_between_all_types);
    tcase_add_loop_test(tc, columns_join_and_split, 0, 2);
    tcase_add_loop_test(tc, sum_over_parts_is_the_tree, 0, 2);
    suite_add_tcase(suite, tc);
    return check_unit(suite);
}
