/* Learning-rate schedules against values worked out by hand. */
#include "common/train/lr.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <math.h>
#include <string.h>

/* peak 1, floor 0.1, warm-up 4, 12 updates: 8 of them fall (wsd: the last 4). */
static struct lr twelve(enum schedule_kind kind)
{
    return (struct lr){
        .kind = kind, .peak = 1, .min_ratio = 0.1, .warmup = 4, .steps = 12, .decay = 4};
}

START_TEST(test_table)
{
    static const double want[4][12] = {
        [SCHEDULE_CONSTANT] = {0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 1, 1, 1, 1},
        [SCHEDULE_LINEAR] = {0.25, 0.5, 0.75, 1, 0.8875, 0.775, 0.6625, 0.55, 0.4375, 0.325, 0.2125,
                             0.1},
        /* 0.1 + 0.45 (1 + cos(pi t)), t = 1/8 ... 1; cos(pi/8) = 0.923879532511286756 */
        [SCHEDULE_COSINE] = {0.25, 0.5, 0.75, 1, 0.965745789630079040, 0.868198051533946386,
                             0.722207544564290397, 0.55, 0.377792455435709603, 0.231801948466053614,
                             0.134254210369920960, 0.1},
        [SCHEDULE_WSD] = {0.25, 0.5, 0.75, 1, 1, 1, 1, 1, 0.775, 0.55, 0.325, 0.1},
    };

    for (int kind = 0; kind < 4; kind++) {
        struct lr s = twelve((enum schedule_kind)kind);

        ck_assert_int_eq(lr_check(&s), ST_OK);
        for (int step = 0; step < 12; step++)
            ck_assert_double_eq_tol(lr_at(&s, step), want[kind][step], 1e-15);
    }
}
END_TEST

START_TEST(test_ends)
{
    static const double ratios[] = {0, 0.1, 1.0 / 3, 1};

    for (int kind = 0; kind < 4; kind++)
        for (size_t i = 0; i < sizeof ratios / sizeof ratios[0]; i++) {
            struct lr s = {.kind = (enum schedule_kind)kind,
                           .peak = 3e-3,
                           .min_ratio = ratios[i],
                           .warmup = 77,
                           .steps = 1000,
                           .decay = 200};
            double last = kind == SCHEDULE_CONSTANT ? s.peak : s.min_ratio * s.peak;

            ck_assert(lr_at(&s, 0) == s.peak / 77);
            ck_assert(lr_at(&s, 76) == s.peak);
            ck_assert(lr_at(&s, 999) == last);
            ck_assert(lr_at(&s, 1000) == last && lr_at(&s, INT64_MAX) == last);
            for (int64_t step = 77; step < 1000; step++)
                ck_assert(lr_at(&s, step) <= lr_at(&s, step - 1));
        }
}
END_TEST

START_TEST(test_no_warmup)
{
    struct lr s = twelve(SCHEDULE_LINEAR);

    s.warmup = 0;
    s.steps = 4;
    ck_assert_int_eq(lr_check(&s), ST_OK);
    ck_assert_double_eq_tol(lr_at(&s, 0), 0.775, 1e-15);
    ck_assert(lr_at(&s, 3) == 0.1);
    s.steps = 1;
    ck_assert_int_eq(lr_check(&s), ST_OK);
    ck_assert(lr_at(&s, 0) == 0.1);
    s.kind = SCHEDULE_CONSTANT;
    ck_assert(lr_at(&s, 0) == 1);
}
END_TEST

/* Counts beyond 32 bits keep their place. */
START_TEST(test_long_run)
{
    struct lr s = {
        .kind = SCHEDULE_LINEAR, .peak = 1, .min_ratio = 0, .warmup = 0, .steps = INT64_C(1) << 40};

    ck_assert(lr_at(&s, (INT64_C(1) << 39) - 1) == 0.5);
    ck_assert(lr_at(&s, (INT64_C(1) << 40) - 2) == 0x1p-40);
}
END_TEST

static void assert_refused(struct lr s, const char *word)
{
    status_clear();
    ck_assert_int_eq(lr_check(&s), ST_ECONFIG);
    ck_assert_msg(strstr(status_message(), word) != NULL, "'%s' lacks '%s'", status_message(),
                  word);
}

#define REFUSED(word, kind, change)  \
    do {                             \
        struct lr s_ = twelve(kind); \
        s_.change;                   \
        assert_refused(s_, word);    \
    } while (0)

START_TEST(test_refused)
{
    struct lr s = twelve(SCHEDULE_CONSTANT);

    REFUSED("train.lr is", SCHEDULE_COSINE, peak = -1);
    REFUSED("train.lr is", SCHEDULE_COSINE, peak = NAN);
    REFUSED("train.lr_min", SCHEDULE_COSINE, min_ratio = 1.5);
    REFUSED("train.lr_min", SCHEDULE_COSINE, min_ratio = NAN);
    REFUSED("train.steps", SCHEDULE_COSINE, steps = 0);
    REFUSED("train.warmup is -1", SCHEDULE_COSINE, warmup = -1);
    REFUSED("train.warmup is 12", SCHEDULE_COSINE, warmup = 12);
    REFUSED("train.warmup is 13", SCHEDULE_CONSTANT, warmup = 13);
    REFUSED("train.decay", SCHEDULE_WSD, decay = 0);
    REFUSED("at least 9 steps", SCHEDULE_WSD, decay = 9);
    s.warmup = 12;
    ck_assert_int_eq(lr_check(&s), ST_OK);
    ck_assert(lr_at(&s, 10) == 11.0 / 12 && lr_at(&s, 11) == 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lr");
    TCase *tests = tcase_create("lr");

    tcase_add_test(tests, test_table);
    tcase_add_test(tests, test_ends);
    tcase_add_test(tests, test_no_warmup);
    tcase_add_test(tests, test_long_run);
    tcase_add_test(tests, test_refused);
    suite_add_tcase(suite, tests);
    return check_unit(suite);
}
