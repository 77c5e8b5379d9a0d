/* The bias of the reference backend and its gradient. */
#include "tests/unit/check_unit.h"
#include "tests/unit/ref_case.h"

#include <stdlib.h>

enum { SAMPLES = 4, SEQ = 37, M = SAMPLES * SEQ, N = 12 };

/* y in columns of a wider tensor, as q, k and v are. */
struct scene {
    struct device *dev;
    struct tensor y, x, bias, dy, dbias; /* [M, N], its values before, [1, N], [M, N], [1, N] */
};

static void make_scene(struct ref_case *c, struct scene *s, const struct backend *be, int threads)
{
    struct device *dev = ref_case_device(c, be, threads);

    s->dev = dev;
    s->x = ref_case_random(c, dev, M, N, 1);
    s->y = ref_case_tensor(c, dev->wide, M, N, 5);
    s->bias = ref_case_random(c, dev, 1, N, 2);
    s->dy = ref_case_random(c, dev, M, N, 3);
    s->dbias = ref_case_tensor(c, dev->wide, 1, N, 0);
}

static double loss(void *context)
{
    struct scene *s = context;

    OK(op_convert(s->dev, &s->y, &s->x, 1));
    OK(op_bias_forward(s->dev, &s->y, &s->bias));
    return ref_case_dot(&s->y, &s->dy);
}

START_TEST(bias_is_added_to_every_row)
{
    struct ref_case c;
    struct scene s;

    ref_case_begin(&c);
    make_scene(&c, &s, _i ? &ref64_backend : &ref_backend, 2);
    (void)loss(&s);
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            double x = ref_case_get(&s.x, i, j), b = ref_case_get(&s.bias, 0, j);

            ck_assert_double_eq(ref_case_get(&s.y, i, j), _i ? x + b : (double)(float)(x + b));
        }
    ck_assert_int_eq(ref_case_spilt(&s.y), 0);
    ref_case_end(&c);
}
END_TEST

START_TEST(bias_of_bf16_rounds_once)
{
    struct ref_case c;
    struct scene s;
    struct tensor x, b, rounded;

    ref_case_begin(&c);
    make_scene(&c, &s, &ref_backend, 1);
    x = ref_case_copy(&c, &s.x, DT_BF16);
    b = ref_case_copy(&c, &s.bias, DT_BF16);
    s.x = ref_case_copy(&c, &x, DT_F32);
    s.bias = ref_case_copy(&c, &b, DT_F32);
    (void)loss(&s);
    OK(op_bias_forward(s.dev, &x, &b));
    rounded = ref_case_copy(&c, &s.y, DT_BF16);
    ck_assert(ref_case_same(&x, &rounded));
    ref_case_end(&c);
}
END_TEST

START_TEST(bias_backward_agrees_with_differences)
{
    struct ref_case c;
    struct scene s;
    struct sample_plan plan = ref_case_plan(SAMPLES, 0);
    struct ref_case_loss l = {loss, &s};

    ref_case_begin(&c);
    make_scene(&c, &s, &ref64_backend, 2);
    OK(op_bias_backward(s.dev, &s.dbias, &s.dy, &plan));
    ck_assert_double_le(ref_case_differences(&s.bias, &s.dbias, l), 1e-9);
    ref_case_end(&c);
}
END_TEST

/* Two micro-batches of two samples join to the bits of one of four, on any number of threads. */
START_TEST(bias_backward_joins_in_sample_order)
{
    struct ref_case c;
    struct scene s;
    struct sample_tree tree;
    struct sample_plan plan = ref_case_plan(SAMPLES, 0);
    struct tensor slots, first;

    ref_case_begin(&c);
    make_scene(&c, &s, &ref_backend, 3);
    OK(op_bias_backward(s.dev, &s.dbias, &s.dy, &plan));
    slots = ref_case_tensor(&c, DT_F32, 4, N, 0);
    first = tensor_rows(&slots, 0, 1, 1);
    sample_tree_start(&tree, 0, SAMPLES, 1);
    for (int64_t i = 0; i < SAMPLES; i += 2) {
        struct tensor half = tensor_rows(&s.dy, i * SEQ, 2 * SEQ, 2);

        sample_plan_next(&plan, &tree, 2);
        plan.plane = N * (int64_t)sizeof(float);
        OK(op_bias_backward(ref_case_device(&c, &ref_backend, 1), &first, &half, &plan));
    }
    ck_assert(ref_case_same(&first, &s.dbias));
    ref_case_end(&c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ref bias");
    TCase *tc = tcase_create("all");

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, bias_is_added_to_every_row, 0, 2);
    tcase_add_test(tc, bias_of_bf16_rounds_once);
    tcase_add_test(tc, bias_backward_agrees_with_differences);
    tcase_add_test(tc, bias_backward_joins_in_sample_order);
    suite_add_tcase(suite, tc);
    return check_unit(suite);
}
