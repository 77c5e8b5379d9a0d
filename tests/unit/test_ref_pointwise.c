/* Elementwise operations, conversions and rearrangements of the reference backend. */
#include "tests/unit/ref_case.h"

#include <math.h>
#include <stdlib.h>

struct glu {
    struct device *dev;
    struct tensor f, g, u, df, dg, du;
    enum swiglu_kind kind;
};

static void make_glu(struct ref_case *c, struct glu *x, const struct backend *be, int kind)
{
    x->dev = ref_case_device(c, be, 2);
    x->g = ref_case_random(c, x->dev, 7, 21, 1);
    x->u = ref_case_random(c, x->dev, 7, 21, 2);
    x->df = ref_case_random(c, x->dev, 7, 21, 3);
    x->f = ref_case_tensor(c, x->dev->wide, 7, 21, 1);
    x->dg = ref_case_tensor(c, x->dev->wide, 7, 21, 2);
    x->du = ref_case_tensor(c, x->dev->wide, 7, 21, 3);
    x->kind = (enum swiglu_kind)kind;
}

static double glu_loss(void *context)
{
    struct glu *x = context;

    OK(op_swiglu_forward(x->dev, &x->f, &x->g, &x->u, x->kind));
    return ref_case_dot(&x->f, &x->df);
}

static struct swiglu_grad glu_grad(const struct glu *x)
{
    struct swiglu_grad d = {.dg = x->dg, .du = x->du, .df = x->df, .g = x->g, .u = x->u};

    return d;
}

START_TEST(swiglu_backward_agrees_with_differences)
{
    struct ref_case c;
    struct glu x;
    struct swiglu_grad d;
    struct ref_case_loss loss = {glu_loss, &x};

    ref_case_begin(&c);
    make_glu(&c, &x, &ref64_backend, _i);
    d = glu_grad(&x);
    OK(op_swiglu_backward(x.dev, &d, x.kind));
    ck_assert_double_le(ref_case_differences(&x.g, &x.dg, loss), 1e-6);
    ck_assert_double_le(ref_case_differences(&x.u, &x.du, loss), 1e-6);
    ck_assert_int_eq(ref_case_spilt(&x.f) + ref_case_spilt(&x.dg) + ref_case_spilt(&x.du), 0);
    ref_case_end(&c);
}
END_TEST

START_TEST(swiglu_is_its_definition)
{
    struct ref_case c;
    struct glu x;

    ref_case_begin(&c);
    make_glu(&c, &x, &ref_backend, _i);
    (void)glu_loss(&x);
    for (int64_t i = 0; i < 7; i++)
        for (int64_t j = 0; j < 21; j++) {
            double g = ref_case_get(&x.g, i, j), u = ref_case_get(&x.u, i, j);
            double f = _i == SWIGLU_SILU ? g / (1 + exp(-g)) * u : g * u;

            ck_assert_double_eq_tol(ref_case_get(&x.f, i, j), f, 4e-7 * (1 + fabs(f)));
        }
    ref_case_end(&c);
}
END_TEST

START_TEST(swiglu_gradients_may_replace_operands)
{
    struct ref_case c;
    struct glu x;
    struct swiglu_grad d;

    ref_case_begin(&c);
    make_glu(&c, &x, &ref_backend, _i);
    d = glu_grad(&x);
    OK(op_swiglu_backward(x.dev, &d, x.kind));
    d.dg = d.g;
    d.du = d.df;
    OK(op_swiglu_backward(x.dev, &d, x.kind));
    ck_assert(ref_case_same(&d.dg, &x.dg));
    ck_assert(ref_case_same(&d.du, &x.du));
    ref_case_end(&c);
}
END_TEST

/* Every pair of types that may be added. */
START_TEST(add_rounds_once)
{
    struct ref_case c;
    struct device *dev;
    struct tensor a, b, y;

    ref_case_begin(&c);
    dev = ref_case_device(&c, &ref_backend, 2);
    a = ref_case_tensor(&c, _i & 1 ? DT_BF16 : DT_F32, 9, 33, 1);
    b = ref_case_tensor(&c, _i & 2 ? DT_BF16 : DT_F32, 9, 33, 2);
    y = ref_case_tensor(&c, _i & 4 ? DT_BF16 : DT_F32, 9, 33, 3);
    ref_case_fill(&a, 1, 1);
    ref_case_fill(&b, 2, 1);
    OK(op_add(dev, &y, &a, &b));
    for (int64_t i = 0; i < 9; i++)
        for (int64_t j = 0; j < 33; j++) {
            float sum = (float)ref_case_get(&a, i, j) + (float)ref_case_get(&b, i, j);
            float out = _i & 4 ? bf16_to_float(bf16_from_float(sum)) : sum;

            ck_assert(ref_case_get(&y, i, j) == (double)out);
        }
    ck_assert_int_eq(ref_case_spilt(&y), 0);
    if (a.dtype == y.dtype) {
        OK(op_add(dev, &a, &a, &b));
        ck_assert(ref_case_same(&a, &y));
    }
    ref_case_end(&c);
}
END_TEST

struct turn {
    struct device *dev;
    struct tensor x, y, table, dy;
    struct rope rope;
};

enum { TURN_SEQ = 6, TURN_DIM = 10, TURN_HEADS = 3, TURN_BATCH = 2, TURN_PLACES = 9 };

static void make_turn(struct ref_case *c, struct turn *t, const struct backend *be)
{
    int64_t rows = TURN_BATCH * TURN_SEQ, cols = TURN_HEADS * TURN_DIM;

    t->dev = ref_case_device(c, be, 2);
    t->x = ref_case_random(c, t->dev, rows, cols, 1);
    t->dy = ref_case_random(c, t->dev, rows, cols, 2);
    t->y = ref_case_tensor(c, t->dev->wide, rows, cols, 4);
    t->table = ref_case_tensor(c, t->dev->wide, TURN_PLACES, TURN_DIM, 1);
    for (int64_t p = 0; p < TURN_PLACES; p++)
        for (int64_t j = 0; j < TURN_DIM / 2; j++) {
            double angle = (double)p / pow(100, (double)j / 5);

            ref_case_put(&t->table, p, j, cos(angle));
            ref_case_put(&t->table, p, j + TURN_DIM / 2, sin(angle));
        }
    t->rope = (struct rope){.seq = TURN_SEQ, .head_dim = TURN_DIM, .pos0 = 3};
}

static double turn_loss(void *context)
{
    struct turn *t = context;

    OK(op_convert(t->dev, &t->y, &t->x));
    OK(op_rope(t->dev, &t->y, &t->table, t->rope));
    return ref_case_dot(&t->y, &t->dy);
}

START_TEST(rope_is_its_definition)
{
    struct ref_case c;
    struct turn t;

    ref_case_begin(&c);
    make_turn(&c, &t, &ref64_backend);
    (void)turn_loss(&t);
    for (int64_t i = 0; i < t.x.rows; i++)
        for (int64_t h = 0; h < TURN_HEADS; h++)
            for (int64_t j = 0; j < TURN_DIM / 2; j++) {
                int64_t a = h * TURN_DIM + j, b = a + TURN_DIM / 2;
                double angle = (double)(3 + i % TURN_SEQ) / pow(100, (double)j / 5);
                double x1 = ref_case_get(&t.x, i, a), x2 = ref_case_get(&t.x, i, b);

                ck_assert_double_eq_tol(ref_case_get(&t.y, i, a), x1 * cos(angle) - x2 * sin(angle),
                                        1e-14);
                ck_assert_double_eq_tol(ref_case_get(&t.y, i, b), x2 * cos(angle) + x1 * sin(angle),
                                        1e-14);
            }
    ck_assert_int_eq(ref_case_spilt(&t.y), 0);
    ref_case_end(&c);
}
END_TEST

START_TEST(rope_backward_agrees_with_differences)
{
    struct ref_case c;
    struct turn t;
    struct ref_case_loss loss = {turn_loss, &t};
    struct tensor dx;
    struct rope back;

    ref_case_begin(&c);
    make_turn(&c, &t, &ref64_backend);
    dx = ref_case_copy(&c, &t.dy, DT_F64);
    back = t.rope;
    back.inverse = 1;
    OK(op_rope(t.dev, &dx, &t.table, back));
    ck_assert_double_le(ref_case_differences(&t.x, &dx, loss), 1e-6);
    ref_case_end(&c);
}
END_TEST

START_TEST(rope_of_bf16_rounds_once)
{
    struct ref_case c;
    struct turn t;
    struct tensor x, rounded;

    ref_case_begin(&c);
    make_turn(&c, &t, &ref_backend);
    x = ref_case_copy(&c, &t.x, DT_BF16);
    t.x = ref_case_copy(&c, &x, DT_F32);
    (void)turn_loss(&t);
    OK(op_rope(t.dev, &x, &t.table, t.rope));
    rounded = ref_case_copy(&c, &t.y, DT_BF16);
    ck_assert(ref_case_same(&x, &rounded));
    ref_case_end(&c);
}
END_TEST

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
    OK(op_convert(dev, &f, &h));
    OK(op_convert(dev, &back, &f));
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
    OK(op_convert(dev, &h, &f));
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

    ref_case_begin(&c);
    dev = ref_case_device(&c, &ref_backend, 1);
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++) {
            struct tensor x = ref_case_tensor(&c, types[from], 3, 5, 1), y, expected;

            ref_case_fill(&x, 1, 1);
            y = ref_case_tensor(&c, types[to], 3, 5, 2);
            OK(op_convert(dev, &y, &x));
            expected = ref_case_copy(&c, &x, types[to]);
            ck_assert(ref_case_same(&y, &expected));
            ck_assert_int_eq(ref_case_spilt(&y), 0);
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
    Suite *suite = suite_create("ref elementwise");
    TCase *tc = tcase_create("all");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, swiglu_backward_agrees_with_differences, 0, 2);
    tcase_add_loop_test(tc, swiglu_is_its_definition, 0, 2);
    tcase_add_loop_test(tc, swiglu_gradients_may_replace_operands, 0, 2);
    tcase_add_loop_test(tc, add_rounds_once, 0, 8);
    tcase_add_test(tc, rope_is_its_definition);
    tcase_add_test(tc, rope_backward_agrees_with_differences);
    tcase_add_test(tc, rope_of_bf16_rounds_once);
    tcase_add_test(tc, bf16_codes_survive_conversion);
    tcase_add_test(tc, floats_round_to_nearest_even_bf16);
    tcase_add_test(tc, convert_between_all_types);
    tcase_add_loop_test(tc, columns_join_and_split, 0, 2);
    tcase_add_loop_test(tc, sum_over_parts_is_the_tree, 0, 2);
    suite_add_tcase(suite, tc);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
