/* The ledger: counts by purpose, spans of time, the table. */
#include "common/backend/ledger.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

START_TEST(test_names)
{
    ck_assert_str_eq(ledger_name(LEDGER_TP_FORWARD), "tp forward");
    ck_assert_str_eq(ledger_name(LEDGER_SAVE), "checkpoint");
    ck_assert_str_eq(ledger_name(LEDGER_COUNT), "unknown purpose");
    ck_assert_str_eq(ledger_name((enum ledger_purpose) - 1), "unknown purpose");
    for (int p = 0; p < LEDGER_COUNT; p++)
        for (int q = 0; q < p; q++)
            ck_assert_str_ne(ledger_name((enum ledger_purpose)p),
                             ledger_name((enum ledger_purpose)q));
}
END_TEST

START_TEST(test_counts)
{
    struct ledger l = {0};
    struct ledger_row sum;

    ck_assert_int_eq(ledger_for(&l, LEDGER_DP), LEDGER_TP_FORWARD);
    ledger_add(&l, 10, 80);
    ledger_add(&l, 5, 1);
    ck_assert_int_eq(ledger_for(&l, LEDGER_ZERO), LEDGER_DP);
    ledger_add(&l, (int64_t)1 << 40, (int64_t)1 << 42);
    ck_assert_int_eq(l.row[LEDGER_DP].calls, 2);
    ck_assert_int_eq(l.row[LEDGER_DP].elements, 15);
    ck_assert_int_eq(l.row[LEDGER_DP].wire_bytes, 81);
    ck_assert_int_eq(l.row[LEDGER_ZERO].elements, (int64_t)1 << 40);
    sum = ledger_sum(&l, LEDGER_DP, LEDGER_ZERO);
    ck_assert_int_eq(sum.calls, 3);
    ck_assert_int_eq(sum.elements, ((int64_t)1 << 40) + 15);
    ck_assert_int_eq(sum.wire_bytes, ((int64_t)1 << 42) + 81);
    ck_assert_int_eq(ledger_sum(&l, LEDGER_TP_FORWARD, LEDGER_HEAD).calls, 0);
    ledger_clear(&l);
    ck_assert_int_eq(ledger_sum(&l, 0, LEDGER_COUNT - 1).calls, 0);
    ck_assert_int_eq(ledger_sum(&l, 0, LEDGER_COUNT - 1).elements, 0);
    ck_assert_int_eq(l.purpose, LEDGER_ZERO);
}
END_TEST

/* Two communicators, two purposes; begun 1, 2, 4 and 5 s, waits of 3 and 1 s. */
START_TEST(test_time)
{
    struct ledger l = {0};
    int a, b;

    ledger_for(&l, LEDGER_DP);
    ck_assert_int_eq(ledger_begin(&l, &a, 1), ST_OK);
    ck_assert_int_eq(ledger_begin(&l, &b, 2), ST_OK);
    ck_assert_int_eq(ledger_begin(&l, &a, 3), ST_OK); /* the same span */
    ledger_for(&l, LEDGER_ZERO);
    ck_assert_int_eq(ledger_begin(&l, &a, 4), ST_OK);
    ledger_end(&l, &a, 5, 8);
    ck_assert(l.row[LEDGER_DP].seconds == 7 && l.row[LEDGER_DP].exposed == 1.5);
    ck_assert(l.row[LEDGER_ZERO].seconds == 4 && l.row[LEDGER_ZERO].exposed == 1.5);
    ledger_end(&l, &a, 8, 9); /* nothing in flight */
    ck_assert(l.row[LEDGER_DP].seconds == 7);
    ledger_end(&l, &b, 9, 10);
    ck_assert(l.row[LEDGER_DP].seconds == 15 && l.row[LEDGER_DP].exposed == 2.5);
    ck_assert_int_eq(l.spans, 0);
}
END_TEST

START_TEST(test_full)
{
    struct ledger l = {0};
    char who[LEDGER_SPANS + 1];

    for (int i = 0; i < LEDGER_SPANS; i++)
        ck_assert_int_eq(ledger_begin(&l, &who[i], 0), ST_OK);
    ck_assert_int_eq(ledger_begin(&l, &who[LEDGER_SPANS], 0), ST_EINTERNAL);
    ck_assert_int_eq(ledger_begin(&l, &who[3], 0), ST_OK);
    for (int i = 0; i < LEDGER_SPANS; i++)
        ledger_end(&l, &who[i], 0, 1);
    ck_assert_int_eq(l.spans, 0);
    ck_assert(l.row[0].seconds == LEDGER_SPANS);
}
END_TEST

START_TEST(test_none)
{
    ledger_add(NULL, 1, 1);
    ck_assert_int_eq(ledger_begin(NULL, "", 0), ST_OK);
    ledger_end(NULL, "", 0, 1);
    ck_assert_int_eq(ledger_for(NULL, LEDGER_PP), LEDGER_PP);
}
END_TEST

START_TEST(test_table)
{
    struct ledger l = {0};
    char text[2048] = "";
    FILE *f = fmemopen(text, sizeof text - 1, "w");

    l.row[LEDGER_EMBED] = (struct ledger_row){3, 1000, 4000, 0.25, 0.125};
    ledger_print(&l, true, f);
    fclose(f);
    ck_assert_ptr_nonnull(strstr(text, "wire bytes"));
    ck_assert_ptr_nonnull(strstr(text, "embedding               3             1000             "
                                       "4000      250.000      125.000\n"));
    ck_assert_ptr_nonnull(strstr(text, "\nall"));
    ck_assert_ptr_null(strstr(text, "pipeline"));

    f = fmemopen(text, sizeof text - 1, "w");
    ledger_print(&l, false, f);
    fclose(f);
    ck_assert_ptr_nonnull(
        strstr(text, "embedding               3             1000             4000\n"));
    ck_assert_ptr_null(strstr(text, "ms"));
}
END_TEST

int main(void)
{
    Suite *s = suite_create("ledger");
    TCase *tc = tcase_create("ledger");

    tcase_add_test(tc, test_names);
    tcase_add_test(tc, test_counts);
    tcase_add_test(tc, test_time);
    tcase_add_test(tc, test_full);
    tcase_add_test(tc, test_none);
    tcase_add_test(tc, test_table);
    suite_add_tcase(s, tc);
    return check_unit(s);
}
