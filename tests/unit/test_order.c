/* The order of samples: permutations that are computed. */
#include "common/data/order.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

/* Computed apart, in Python: what a seed means must not change unnoticed. */
START_TEST(test_values)
{
    static const int64_t first[10] = {2, 8, 9, 7, 5, 1, 4, 6, 0, 3};
    static const int64_t second[10] = {1, 7, 9, 4, 3, 0, 5, 2, 8, 6};
    int64_t n = INT64_C(1) << 40;

    for (int64_t i = 0; i < 10; i++) {
        ck_assert_int_eq(order_sample(7, 0, 10, i), first[i]);
        ck_assert_int_eq(order_sample(7, 1, 10, i), second[i]);
    }
    ck_assert_int_eq(order_sample(7, 3, n, 0), INT64_C(506016178243));
    ck_assert_int_eq(order_sample(7, 3, n, 1), INT64_C(937891309853));
    ck_assert_int_eq(order_sample(7, 3, n, n - 1), INT64_C(254146676556));
}
END_TEST

static void assert_permutation(int64_t n, uint64_t seed, int64_t epoch)
{
    char *seen = calloc((size_t)n, 1);

    ck_assert_ptr_nonnull(seen);
    for (int64_t i = 0; i < n; i++) {
        int64_t sample = order_sample(seed, epoch, n, i);

        ck_assert(sample >= 0 && sample < n && !seen[sample]);
        seen[sample] = 1;
        ck_assert_int_eq(order_position(seed, epoch, n, sample), i);
    }
    free(seen);
}

START_TEST(test_permutation)
{
    for (int64_t n = 1; n < 70; n++)
        for (int64_t epoch = 0; epoch < 3; epoch++)
            assert_permutation(n, 1, epoch);
    assert_permutation(1000, UINT64_MAX, 1000000);
    assert_permutation(4096, 0, 0);
    assert_permutation(10007, 5, INT64_C(1) << 40);
}
END_TEST

/* Numbers beyond 32 bits come back whole. */
START_TEST(test_large)
{
    static const int64_t sizes[] = {(INT64_C(1) << 31) + 7, (INT64_C(1) << 40) - 1,
                                    INT64_C(1) << 40};

    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        int64_t n = sizes[k], high = 0;

        for (int64_t j = 0; j < 200; j++) {
            int64_t i = j % 2 ? n - 1 - j : j, sample = order_sample(3, 2, n, i);

            ck_assert(sample >= 0 && sample < n);
            ck_assert_int_eq(order_position(3, 2, n, sample), i);
            high += sample >= n / 2;
        }
        ck_assert(high > 65 && high < 135);
    }
}
END_TEST

/* Eight samples, three epochs: orders differ from each other, from the identity, and by seed. */
START_TEST(test_epochs_differ)
{
    int by_epoch[3] = {0}, by_seed = 0, identity = 0;

    for (int64_t i = 0; i < 8; i++)
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            int64_t sample = order_sample(42, epoch, 8, i);

            by_epoch[epoch] += sample != order_sample(42, (epoch + 1) % 3, 8, i);
            by_seed += sample != order_sample(43, epoch, 8, i);
            identity += sample != i;
        }
    ck_assert(by_epoch[0] > 2 && by_epoch[1] > 2 && by_epoch[2] > 2);
    ck_assert(by_seed > 8 && identity > 8);
}
END_TEST

/* Chi-square of count from what is expected, over n cells. */
static double chi_square(const int64_t *count, int n, double expected)
{
    double chi = 0;

    for (int i = 0; i < n; i++)
        chi += pow((double)count[i] - expected, 2) / expected;
    return chi;
}

/* Over the epochs all 24 orders of four samples are equally frequent (23 degrees of freedom), the
 * places of each of 25 samples, and the 30 pairs of places of two of six neighbours. */
START_TEST(test_even)
{
    int64_t orders[256] = {0}, met[24], places[25 * 25] = {0}, pairs[36] = {0}, followers[30];
    int n = 0;

    for (int64_t epoch = 0; epoch < 24000; epoch++) {
        int64_t code = 0;

        for (int64_t i = 0; i < 4; i++)
            code = 4 * code + order_sample(11, epoch, 4, i);
        orders[code]++;
        pairs[6 * order_sample(13, epoch, 6, 2) + order_sample(13, epoch, 6, 3)]++;
    }
    for (int code = 0; code < 256; code++)
        if (orders[code] && n < 24)
            met[n++] = orders[code];
    ck_assert_int_eq(n, 24);
    ck_assert_double_lt(chi_square(met, 24, 1000), 23 + 5 * sqrt(2 * 23.0));
    n = 0;
    for (int code = 0; code < 36; code++)
        if (code % 7 != 0)
            followers[n++] = pairs[code];
    ck_assert_double_lt(chi_square(followers, 30, 800), 29 + 5 * sqrt(2 * 29.0));
    for (int64_t epoch = 0; epoch < 2500; epoch++)
        for (int64_t i = 0; i < 25; i++)
            places[25 * i + order_sample(12, epoch, 25, i)]++;
    ck_assert_double_lt(chi_square(places, 25 * 25, 100), 576 + 5 * sqrt(2 * 576.0));
}
END_TEST

/* Orders of both parities are equally frequent: 500 of 1000 epochs, standard deviation 16. */
START_TEST(test_parity)
{
    int odd = 0;

    for (int64_t epoch = 0; epoch < 1000; epoch++) {
        int inversions = 0;

        for (int64_t i = 0; i < 9; i++)
            for (int64_t j = 0; j < i; j++)
                inversions += order_sample(14, epoch, 9, j) > order_sample(14, epoch, 9, i);
        odd += inversions % 2;
    }
    ck_assert(odd > 420 && odd < 580);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("order");
    TCase *tests = tcase_create("order");

    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, test_values);
    tcase_add_test(tests, test_permutation);
    tcase_add_test(tests, test_large);
    tcase_add_test(tests, test_epochs_differ);
    tcase_add_test(tests, test_even);
    tcase_add_test(tests, test_parity);
    suite_add_tcase(suite, tests);
    return check_unit(suite);
}
