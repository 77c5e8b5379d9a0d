/* Shares of a batch, plans of micro-batches, and the slots that partial sums wait in. */
#include "common/tensor/sample_plan.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 40 };

START_TEST(shares_cover_the_batch_in_order)
{
    for (int64_t n = 1; n <= 40; n++)
        for (int64_t ranks = 1; ranks <= n; ranks++) {
            int64_t next = 0;

            for (int64_t r = 0; r < ranks; r++) {
                int64_t begin, end;

                sample_share(n, r, ranks, &begin, &end);
                ck_assert_int_eq(begin, next);
                ck_assert_int_gt(end, begin);
                next = end;
            }
            ck_assert_int_eq(next, n);
        }
}
END_TEST

/* Nonzero when [begin, end) is a node of the tree over [lo, hi). */
static int is_node(int64_t lo, int64_t hi, int64_t begin, int64_t end)
{
    int64_t mid = lo + (hi - lo) / 2;

    if (lo == begin && hi == end)
        return 1;
    if (hi - lo < 2)
        return 0;
    return end <= mid ? is_node(lo, mid, begin, end) : begin >= mid && is_node(mid, hi, begin, end);
}

START_TEST(shares_of_a_power_of_two_are_nodes)
{
    for (int64_t n = 1; n <= 40; n++)
        for (int64_t ranks = 1; ranks <= n; ranks *= 2)
            for (int64_t r = 0; r < ranks; r++) {
                int64_t begin, end;

                sample_share(n, r, ranks, &begin, &end);
                ck_assert(is_node(0, n, begin, end));
            }
}
END_TEST

/* A sum over the tree as text: "((01)(2(34)))", which no other order of additions gives. */
struct text {
    char s[8 * MOST];
};

static struct text leaf(int64_t sample)
{
    struct text t = {{(char)('0' + sample), 0}};

    return t;
}

static struct text join(const struct text *a, const struct text *b)
{
    struct text t = {"("};

    strcat(t.s, a->s);
    strcat(t.s, b->s);
    strcat(t.s, ")");
    return t;
}

static struct text tree(int64_t lo, int64_t hi)
{
    int64_t mid = lo + (hi - lo) / 2;
    struct text a, b;

    if (hi - lo == 1)
        return leaf(lo);
    a = tree(lo, mid);
    b = tree(mid, hi);
    return join(&a, &b);
}

/* What carrying out a plan does to the slots; -1 merges or slots outside fail. */
static void carry_out(struct text *slot, int32_t slots, const struct sample_plan *plan,
                      int64_t start)
{
    for (int32_t i = 0; i < plan->nodes; i++) {
        const struct sample_node *node = &plan->node[i];
        int64_t first = start + node->first;
        struct text sum = tree(first, first + node->count);

        for (int32_t m = 0; m < node->merges; m++) {
            ck_assert_int_lt(node->merge[m], slots);
            sum = join(&slot[node->merge[m]], &sum);
        }
        ck_assert_int_ge(node->slot, 0);
        ck_assert_int_lt(node->slot, slots);
        slot[node->slot] = sum;
    }
}

static void check_run(int64_t n, int64_t micro)
{
    struct text slot[MOST], whole = tree(0, n);
    struct sample_tree t;
    struct sample_plan plan;
    int32_t slots = sample_slots(0, n, micro, 1);

    ck_assert_int_ge(slots, 1);
    ck_assert_int_le(slots, MOST);
    memset(slot, 0, sizeof slot);
    sample_tree_start(&t, 0, n, 1);
    for (int64_t at = 0; at < n; at += micro) {
        sample_plan_next(&plan, &t, n - at < micro ? n - at : micro);
        ck_assert_int_eq(plan.exact, 1);
        carry_out(slot, slots, &plan, at);
    }
    ck_assert_str_eq(slot[0].s, whole.s);
}

START_TEST(any_micro_batch_gives_the_whole_tree)
{
    for (int64_t n = 1; n <= MOST; n++)
        for (int64_t micro = 1; micro <= n; micro++)
            check_run(n, micro);
}
END_TEST

START_TEST(slots_stay_few)
{
    /* A binary counter: one slot a level, and the one being made. */
    ck_assert_int_eq(sample_slots(0, 8, 8, 1), 1);
    ck_assert_int_eq(sample_slots(0, 8, 1, 1), 3);
    ck_assert_int_le(sample_slots(0, 1024, 1, 1), 11);
    ck_assert_int_eq(sample_slots(0, 1024, 1, 0), 1);
}
END_TEST

START_TEST(inexact_plans_add_to_slot_0)
{
    struct sample_tree t;
    struct sample_plan plan;

    sample_tree_start(&t, 4, 11, 0);
    for (int64_t at = 4; at < 11; at += 3) {
        sample_plan_next(&plan, &t, 11 - at < 3 ? 11 - at : 3);
        ck_assert_int_eq(plan.exact, 0);
        ck_assert_int_eq(plan.nodes, 1);
        ck_assert_int_eq(plan.node[0].count, plan.samples);
        ck_assert_int_eq(plan.node[0].merges, at > 4);
        ck_assert_int_eq(plan.node[0].slot, 0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sample plan");
    TCase *tc = tcase_create("all");

    tcase_add_test(tc, shares_cover_the_batch_in_order);
    tcase_add_test(tc, shares_of_a_power_of_two_are_nodes);
    tcase_add_test(tc, any_micro_batch_gives_the_whole_tree);
    tcase_add_test(tc, slots_stay_few);
    tcase_add_test(tc, inexact_plans_add_to_slot_0);
    suite_add_tcase(suite, tc);
    return check_unit(suite);
}
