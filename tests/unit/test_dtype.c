/* Values on the host: the first that is not finite, in every type and at every place of a block. */
#include "common/tensor/dtype.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

enum { N = 9000 }; /* two blocks and a part */

static const enum dtype types[] = {DT_F32, DT_F64, DT_BF16};
static const double others[] = {INFINITY, -INFINITY, NAN};

START_TEST(test_all_finite)
{
    enum dtype dt = types[_i];
    char *x = malloc(N * dtype_size(dt));

    for (int64_t i = 0; i < N; i++)
        dtype_store(x, dt, i, (i % 2 ? -1.0 : 1.0) * ldexp(1.0, (int)(i % 250) - 125));
    dtype_store(x, dt, 17,
                dt == DT_F64 ? 1.7976931348623157e308 : 3.3895e38); /* near the largest */
    ck_assert_int_eq(dtype_not_finite(x, dt, N), -1);
    ck_assert_int_eq(dtype_not_finite(x, dt, 0), -1);
    free(x);
}
END_TEST

START_TEST(test_first)
{
    static const int64_t at[] = {0, 1, 63, 4095, 4096, 4097, 8191, 8192, N - 1};
    enum dtype dt = types[_i];
    char *x = calloc(N, dtype_size(dt));

    for (size_t k = 0; k < sizeof at / sizeof *at; k++)
        for (size_t j = 0; j < sizeof others / sizeof *others; j++) {
            dtype_store(x, dt, at[k], others[j]);
            dtype_store(x, dt, N - 1, NAN); /* the first counts */
            ck_assert_int_eq(dtype_not_finite(x, dt, N), at[k]);
            ck_assert_int_eq(dtype_not_finite(x, dt, at[k]), -1);
            dtype_store(x, dt, at[k], 1.0);
            dtype_store(x, dt, N - 1, 1.0);
        }
    free(x);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("dtype");
    TCase *tc = tcase_create("dtype");

    tcase_add_loop_test(tc, test_all_finite, 0, 3);
    tcase_add_loop_test(tc, test_first, 0, 3);
    suite_add_tcase(s, tc);
    return check_unit(s);
}
