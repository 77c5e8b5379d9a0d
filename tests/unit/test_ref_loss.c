/* Embedding and cross entropy of the reference backend. */
#include "tests/unit/check_unit.h"
#include "tests/unit/ref_case.h"

#include <math.h>
#include <stdlib.h>

enum { M = 9, V = 40, VALID = 35, G = 8 };

struct scene {
    struct device *dev;
    struct tensor logits, grad, st, loss, targets; /* grad: a copy that becomes the gradient */
    struct vocab_cut cut;
};

static void make(struct ref_case *c, struct scene *s, const struct backend *be, int threads)
{
    s->dev = ref_case_device(c, be, threads);
    s->logits = tensor_grained(ref_case_random(c, s->dev, M, V, 1), 1, G);
    s->grad = tensor_grained(ref_case_tensor(c, s->dev->wide, M, V, 3), 1, G);
    s->st = ref_case_tensor(c, s->dev->wide, M, 3, 0);
    s->loss = ref_case_tensor(c, s->dev->wide, M, 1, 0);
    s->targets = ref_case_tensor(c, DT_I32, M, 1, 0);
    for (int64_t i = 0; i < M; i++)
        ref_case_put(&s->targets, i, 0, i == 4 ? -1 : (double)(i * 7 % VALID));
    s->cut = (struct vocab_cut){.first = 0, .valid = VALID};
}

static void run(struct scene *s, double scale)
{
    OK(op_convert(s->dev, &s->grad, &s->logits, 1));
    OK(op_ce_stats(s->dev, &s->st, &s->grad, &s->targets, s->cut));
    OK(op_ce_grad(s->dev, &s->loss, &s->grad, &s->st, &s->targets, s->cut, scale));
}

START_TEST(loss_is_its_definition)
{
    struct ref_case c;
    struct scene s;

    ref_case_begin(&c);
    make(&c, &s, _i ? &ref64_backend : &ref_backend, 2);
    run(&s, 0);
    ck_assert_double_eq(ref_case_get(&s.grad, 1, 1), ref_case_get(&s.logits, 1, 1));
    for (int64_t i = 0; i < M; i++) {
        double sum = 0, loss;

        for (int64_t j = 0; j < VALID; j++)
            sum += exp(ref_case_get(&s.logits, i, j));
        loss = i == 4 ? 0 : log(sum) - ref_case_get(&s.logits, i, i * 7 % VALID);
        ck_assert_double_eq_tol(ref_case_get(&s.loss, i, 0), loss, _i ? 1e-14 : 2e-6);
    }
    ref_case_end(&c);
}
END_TEST

static double sum_loss(void *context)
{
    struct scene *s = context;
    double sum = 0;

    run(s, 0);
    for (int64_t i = 0; i < M; i++)
        sum += ref_case_get(&s->loss, i, 0);
    return sum * 0.125;
}

START_TEST(gradient_agrees_with_differences)
{
    struct ref_case c;
    struct scene s;
    struct tensor grad;
    struct ref_case_loss loss = {sum_loss, &s};

    ref_case_begin(&c);
    make(&c, &s, &ref64_backend, 2);
    run(&s, 0.125);
    grad = ref_case_copy(&c, &s.grad, DT_F64);
    ck_assert_int_eq(ref_case_spilt(&s.grad), 0);
    ck_assert_double_le(ref_case_differences(&s.logits, &grad, loss), 1e-6);
    for (int64_t j = 0; j < V; j++)
        ck_assert_double_eq(ref_case_get(&grad, 4, j), 0);
    for (int64_t j = VALID; j < V; j++)
        ck_assert_double_eq(ref_case_get(&grad, 1, j), 0);
    ref_case_end(&c);
}
END_TEST

/* Ranks that hold a share of the columns; the last one's are partly or all padding. */
START_TEST(cut_vocabulary_keeps_bits)
{
    struct ref_case c;
    struct scene s;

    ref_case_begin(&c);
    make(&c, &s, &ref_backend, 1);
    s.cut.valid = _i ? 17 : VALID;
    for (int64_t i = 0; i < M; i++)
        ref_case_put(&s.targets, i, 0, i == 4 ? -1 : (double)(i * 7 % s.cut.valid));
    run(&s, 0.25);
    for (int64_t ranks = 1; ranks <= G; ranks *= 2) {
        struct tensor all = ref_case_tensor(&c, DT_F32, ranks * M, 3, 0), loss;
        struct tensor grad = ref_case_copy(&c, &s.logits, DT_F32);

        loss = ref_case_tensor(&c, DT_F32, M, 1, 0);
        for (int64_t r = 0; r < ranks; r++) {
            struct tensor mine = tensor_cols(&grad, r * V / ranks, V / ranks, (int32_t)(G / ranks));
            struct tensor st = tensor_rows(&all, r * M, M, 1);
            struct vocab_cut cut = {.first = r * V / ranks, .valid = s.cut.valid};

            OK(op_ce_stats(s.dev, &st, &mine, &s.targets, cut));
        }
        for (int64_t r = 0; r < ranks; r++) {
            struct tensor mine = tensor_cols(&grad, r * V / ranks, V / ranks, (int32_t)(G / ranks));
            struct vocab_cut cut = {.first = r * V / ranks, .valid = s.cut.valid};

            OK(op_ce_grad(s.dev, &loss, &mine, &all, &s.targets, cut, 0.25));
            ck_assert(ref_case_same(&loss, &s.loss));
        }
        ck_assert(ref_case_same(&grad, &s.grad));
    }
    ref_case_end(&c);
}
END_TEST

START_TEST(nan_and_infinity_reach_the_loss)
{
    static const double bad[] = {NAN, INFINITY, NAN};
    struct ref_case c;
    struct scene s;

    ref_case_begin(&c);
    make(&c, &s, &ref_backend, 1);
    ref_case_put(&s.logits, 2, _i == 2 ? 0 : 30, bad[_i]);
    run(&s, 1);
    ck_assert(isnan(ref_case_get(&s.loss, 2, 0)));
    ck_assert(isnan(ref_case_get(&s.grad, 2, 5)));
    ck_assert(!isnan(ref_case_get(&s.loss, 3, 0)));
    ref_case_put(&s.targets, 3, 0, VALID);
    run(&s, 1);
    ck_assert(isnan(ref_case_get(&s.loss, 3, 0))); /* no such token */
    ref_case_end(&c);
}
END_TEST

START_TEST(large_logits_do_not_overflow)
{
    struct ref_case c;
    struct scene s;

    ref_case_begin(&c);
    make(&c, &s, &ref_backend, 1);
    ref_case_put(&s.logits, 0, 3, 1e30);
    ref_case_put(&s.logits, 1, 3, -INFINITY);
    run(&s, 1);
    ck_assert_double_eq(ref_case_get(&s.grad, 0, 3), 1);
    ck_assert_double_gt(ref_case_get(&s.loss, 0, 0), 1e29);
    ck_assert(isfinite(ref_case_get(&s.loss, 1, 0)));
    ck_assert_double_eq(ref_case_get(&s.grad, 1, 3), 0);
    ref_case_end(&c);
}
END_TEST

START_TEST(bf16_logits_give_rounded_gradients)
{
    struct ref_case c;
    struct scene s;
    struct tensor half, rounded;

    ref_case_begin(&c);
    make(&c, &s, &ref_backend, 2);
    half = ref_case_copy(&c, &s.logits, DT_BF16);
    s.logits = ref_case_copy(&c, &half, DT_F32);
    run(&s, 0.5);
    OK(op_ce_stats(s.dev, &s.st, &half, &s.targets, s.cut));
    OK(op_ce_grad(s.dev, &s.loss, &half, &s.st, &s.targets, s.cut, 0.5));
    rounded = ref_case_copy(&c, &s.grad, DT_BF16);
    ck_assert(ref_case_same(&half, &rounded));
    ref_case_end(&c);
}
END_TEST

/* Token numbers below, in and above the rows that this rank holds. */
START_TEST(embedding_reads_its_rows)
{
    struct ref_case c;
    struct device *dev;
    struct tensor w, y, tokens;
    enum dtype wt = _i & 1 ? DT_BF16 : DT_F32, yt = _i & 2 ? DT_BF16 : DT_F32;

    ref_case_begin(&c);
    dev = ref_case_device(&c, &ref_backend, 2);
    w = ref_case_tensor(&c, wt, 6, 11, 2);
    ref_case_fill(&w, 1, 1);
    y = ref_case_tensor(&c, yt, 12, 11, 3);
    tokens = ref_case_tensor(&c, DT_I32, 12, 1, 0);
    for (int64_t i = 0; i < 12; i++)
        ref_case_put(&tokens, i, 0, (double)(i - 1));
    OK(op_embed_forward(dev, &y, &w, &tokens, 3));
    for (int64_t i = 0; i < 12; i++)
        for (int64_t j = 0; j < 11; j++) {
            int64_t row = i - 1 - 3;
            float x = row >= 0 && row < 6 ? (float)ref_case_get(&w, row, j) : 0;

            ck_assert(ref_case_get(&y, i, j) ==
                      (double)(yt == DT_BF16 ? bf16_to_float(bf16_from_float(x)) : x));
        }
    ck_assert_int_eq(ref_case_spilt(&y), 0);
    ref_case_end(&c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ref loss and embedding");
    TCase *tc = tcase_create("all");

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, loss_is_its_definition, 0, 2);
    tcase_add_test(tc, gradient_agrees_with_differences);
    tcase_add_loop_test(tc, cut_vocabulary_keeps_bits, 0, 2);
    tcase_add_loop_test(tc, nan_and_infinity_reach_the_loss, 0, 3);
    tcase_add_test(tc, large_logits_do_not_overflow);
    tcase_add_test(tc, bf16_logits_give_rounded_gradients);
    tcase_add_loop_test(tc, embedding_reads_its_rows, 0, 4);
    suite_add_tcase(suite, tc);
    return check_unit(suite);
}
