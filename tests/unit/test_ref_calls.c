/* Larger calls of OpenBLAS: what was tried once holds for other numbers, and products have the same
 * bits with and without them. */
#include "ref/calls.h"
#include "ref/ref.h"
#include "ref/rows.h"
#include "tests/unit/check_unit.h"
#include "tests/unit/ref_case.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    struct call_shape s;
    int32_t down, across;
} shapes[] = {
    {{CALL_NT, 64, 64, 64}, 1, 8},   {{CALL_NN, 32, 64, 700}, 1, 4},
    {{CALL_TN, 128, 64, 256}, 1, 4}, {{CALL_TN, 64, 128, 96}, 4, 1},
    {{CALL_NT, 33, 20, 17}, 1, 3},   {{CALL_NN, 7, 5, 9}, 1, 2},
    {{CALL_TN, 10, 12, 33}, 2, 2},   {{CALL_NT, 256, 172, 128}, 1, 2},
    {{CALL_NN, 1, 1, 1}, 1, 8},      {{CALL_NT, 16, 24, 300}, 1, 2},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static struct tensor stored(struct ref_case *c, int64_t rows, int64_t cols, int turned,
                            uint64_t seed)
{
    struct tensor t = ref_case_tensor(c, DT_F32, turned ? cols : rows, turned ? rows : cols, 3);

    ref_case_fill(&t, seed, 1);
    return t;
}

/* y = beta y + the product of rows [row, ...) and columns [col, ...) of what a and b make. */
static void call(const struct call_shape *s, const struct tensor *a, const struct tensor *b,
                 int64_t row, int64_t col, float beta, struct tensor *y)
{
    struct call_operand pa = {a->data, a->stride}, pb = {b->data, b->stride};

    pa.p += s->kind == CALL_TN ? row : row * pa.ld;
    pb.p += s->kind == CALL_NT ? col * pb.ld : col;
    ref_call(s, pa, pb, beta, (float *)y->data + row * y->stride + col, y->stride);
}

START_TEST(a_yes_holds_for_other_numbers)
{
    struct ref_case c;
    struct ref_calls calls = {0};
    struct call_shape s = shapes[_i].s, all = s;
    int32_t down = shapes[_i].down, across = shapes[_i].across;
    struct tensor a, b, one, many;
    int joins = ref_joins(&calls, &s, down, across);

    ref_case_begin(&c);
    all.rows *= down;
    all.cols *= across;
    for (uint64_t seed = 1; joins && seed <= 20; seed++) {
        a = stored(&c, all.rows, s.k, s.kind == CALL_TN, seed);
        b = stored(&c, s.k, all.cols, s.kind == CALL_NT, seed + 100);
        one = ref_case_tensor(&c, DT_F32, all.rows, all.cols, 2);
        many = ref_case_tensor(&c, DT_F32, all.rows, all.cols, 5);
        call(&all, &a, &b, 0, 0, 0, &one);
        for (int32_t i = 0; i < down * across; i++)
            call(&s, &a, &b, i / across * s.rows, i % across * s.cols, 0, &many);
        ck_assert(ref_case_same(&one, &many));
    }
    ck_assert_int_eq(calls.n, 1);
    ck_assert_int_eq(ref_joins(&calls, &s, down, across), joins);
    ck_assert_int_eq(calls.n, 1);
    ck_assert(ref_joins(&calls, &s, 1, 1));
    ref_case_end(&c);
}
END_TEST

START_TEST(a_product_adds_itself_where_it_says)
{
    struct ref_case c;
    struct ref_calls calls = {0};
    struct call_shape s = shapes[_i].s;
    struct tensor a, b, fused, sum, product;
    int fuses = ref_fuses(&calls, &s);

    ref_case_begin(&c);
    if (s.k > 256)
        ck_assert(!fuses && calls.n == 0);
    for (uint64_t seed = 1; fuses && seed <= 20; seed++) {
        a = stored(&c, s.rows, s.k, s.kind == CALL_TN, seed);
        b = stored(&c, s.k, s.cols, s.kind == CALL_NT, seed + 100);
        sum = stored(&c, s.rows, s.cols, 0, seed + 200);
        fused = ref_case_copy(&c, &sum, DT_F32);
        product = ref_case_tensor(&c, DT_F32, s.rows, s.cols, 0);
        call(&s, &a, &b, 0, 0, 1, &fused);
        call(&s, &a, &b, 0, 0, 0, &product);
        for (int64_t i = 0; i < s.rows; i++)
            row_add(tensor_row(&sum, i), tensor_row(&sum, i), tensor_row(&product, i), s.cols);
        ck_assert(ref_case_same(&sum, &fused));
    }
    ref_case_end(&c);
}
END_TEST

/* A device that knows no more than that nothing joins: one call for each piece. */
static struct device *plain_device(struct ref_case *c)
{
    struct device *dev = ref_case_device(c, &ref_backend, 1);

    ((struct ref_device *)dev)->calls.n = CALLS_KNOWN;
    return dev;
}

START_TEST(a_full_table_says_no)
{
    struct ref_case c;
    struct ref_calls *calls;

    ref_case_begin(&c);
    calls = &((struct ref_device *)plain_device(&c))->calls;
    for (int i = 0; i < SHAPES; i++) {
        ck_assert(!ref_joins(calls, &shapes[i].s, 2, 2));
        ck_assert(!ref_fuses(calls, &shapes[i].s));
    }
    ck_assert_int_eq(calls->n, CALLS_KNOWN);
    ref_case_end(&c);
}
END_TEST

/* rows sequences of 24, K and N in 8 pieces each: with a tree (grains 8) and without (1). */
START_TEST(products_keep_their_bits)
{
    static const int64_t widths[] = {8, 20, 64};
    struct ref_case c;
    int64_t w = widths[_i], n = 8 * w;

    ref_case_begin(&c);
    for (int32_t grains = 1; grains <= 8; grains += 7)
        for (int nt = 0; nt < 2; nt++) {
            struct device *dev[] = {ref_case_device(&c, &ref_backend, 1), plain_device(&c)};
            struct gemm g = {.kind = nt ? GEMM_NT : GEMM_NN};
            struct tensor y[2];

            g.a = tensor_grained(stored(&c, 96, n, 0, 7), 4, grains);
            g.b = nt ? tensor_grained(stored(&c, n, n, 0, 8), 8, grains)
                     : tensor_grained(stored(&c, n, n, 0, 8), grains, 8);
            for (int i = 0; i < 2; i++) {
                y[i] = g.y = tensor_grained(ref_case_tensor(&c, DT_F32, 96, n, 1), 1, 8);
                OK(op_gemm(dev[i], &g, 1));
            }
            ck_assert(ref_case_same(&y[0], &y[1]));
            ck_assert_int_gt(((struct ref_device *)dev[0])->calls.n, 0);
        }
    ref_case_end(&c);
}
END_TEST

START_TEST(divisors_leave_tasks)
{
    ck_assert_int_eq(calls_divisor(8, 100, 800, 8, 1), 8);
    ck_assert_int_eq(calls_divisor(8, 100, 799, 8, 1), 4);
    ck_assert_int_eq(calls_divisor(8, 100, 800, 16, 4), 4);
    ck_assert_int_eq(calls_divisor(8, 100, 800, 8, 9), 1);
    ck_assert_int_eq(calls_divisor(6, 100, 500, 6, 1), 3);
    ck_assert_int_eq(calls_divisor(1, 100, 1, 1, 1), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ref calls");
    TCase *tc = tcase_create("all");

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, a_yes_holds_for_other_numbers, 0, SHAPES);
    tcase_add_loop_test(tc, a_product_adds_itself_where_it_says, 0, SHAPES);
    tcase_add_test(tc, a_full_table_says_no);
    tcase_add_loop_test(tc, products_keep_their_bits, 0, 3);
    tcase_add_test(tc, divisors_leave_tasks);
    suite_add_tcase(suite, tc);
    return check_unit(suite);
}
