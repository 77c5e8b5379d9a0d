/* Elementwise operations of the reference backend. */
#include "tests/unit/check_unit.h"
#include "tests/unit/ref_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* Gate, up and their products' operands, and what the two ops in turn make of them. */
struct glu_beside {
    struct glu x;
    struct gemm g[2], back;
    struct tensor f, dg, du;
};

static void make_beside(struct ref_case *c, struct glu_beside *b, int kind)
{
    struct tensor a;

    make_glu(c, &b->x, kind & 2 ? &ref64_backend : &ref_backend, kind & 1);
    a = ref_case_random(c, b->x.dev, 7, 9, 4);
    b->g[0] = (struct gemm){
        .y = b->x.g, .a = a, .b = ref_case_random(c, b->x.dev, 21, 9, 5), .kind = GEMM_NT};
    b->g[1] = b->g[0];
    b->g[1].y = b->x.u;
    b->g[1].b = ref_case_random(c, b->x.dev, 21, 9, 6);
    b->back = (struct gemm){
        .y = b->x.df, .a = a, .b = ref_case_random(c, b->x.dev, 9, 21, 7), .kind = GEMM_NN};
}

START_TEST(swiglu_beside_its_products_has_the_bits_of_both)
{
    struct glu_beside b;
    struct swiglu_grad d;
    struct ref_case c;

    ref_case_begin(&c);
    make_beside(&c, &b, _i);
    d = glu_grad(&b.x);
    OK(op_gemm(b.x.dev, b.g, 2));
    OK(op_swiglu_forward(b.x.dev, &b.x.f, &b.x.g, &b.x.u, b.x.kind));
    OK(op_gemm(b.x.dev, &b.back, 1));
    OK(op_swiglu_backward(b.x.dev, &d, b.x.kind));
    b.f = ref_case_copy(&c, &b.x.f, b.x.f.dtype);
    b.dg = ref_case_copy(&c, &b.x.dg, b.x.dg.dtype);
    b.du = ref_case_copy(&c, &b.x.du, b.x.du.dtype);
    ref_case_fill(&b.x.f, 8, 1.0);
    ref_case_fill(&b.x.dg, 9, 1.0);
    ref_case_fill(&b.x.du, 10, 1.0);
    ref_case_fill(&b.x.g, 11, 1.0);
    ref_case_fill(&b.x.u, 12, 1.0);
    ref_case_fill(&b.x.df, 13, 1.0);
    OK(op_gemm_swiglu_forward(b.x.dev, b.g, &b.x.f, b.x.kind));
    OK(op_gemm_swiglu_backward(b.x.dev, &b.back, &d, b.x.kind));
    ck_assert(ref_case_same(&b.x.f, &b.f));
    ck_assert(ref_case_same(&b.x.dg, &b.dg));
    ck_assert(ref_case_same(&b.x.du, &b.du));
    ref_case_end(&c);
}
END_TEST

START_TEST(swiglu_beside_its_products_refuses_strangers)
{
    struct glu_beside b;
    struct swiglu_grad d;
    struct ref_case c;

    ref_case_begin(&c);
    make_beside(&c, &b, 0);
    d = glu_grad(&b.x);
    d.df = b.x.f;
    ck_assert_int_eq(op_gemm_swiglu_backward(b.x.dev, &b.back, &d, b.x.kind), ST_ESHAPE);
    ck_assert_ptr_nonnull(strstr(status_message(), "df must be the product's y"));
    d = (struct swiglu_grad){.dg = tensor_cols(&b.x.dg, 0, 20, 1),
                             .du = tensor_cols(&b.x.du, 0, 20, 1),
                             .df = tensor_cols(&b.x.df, 0, 20, 1),
                             .g = tensor_cols(&b.x.g, 0, 20, 1),
                             .u = tensor_cols(&b.x.u, 0, 20, 1)};
    ck_assert_int_eq(op_gemm_swiglu_backward(b.x.dev, &b.back, &d, b.x.kind), ST_ESHAPE);
    b.g[1].y = tensor_cols(&b.x.u, 0, 20, 1);
    b.g[1].b = tensor_rows(&b.g[1].b, 0, 20, 1);
    ck_assert_int_eq(op_gemm_swiglu_forward(b.x.dev, b.g, &b.x.f, b.x.kind), ST_ESHAPE);
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

    OK(op_convert(t->dev, &t->y, &t->x, 1));
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

int main(void)
{
    Suite *suite = suite_create("ref elementwise");
    TCase *tc = tcase_create("all");

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, swiglu_backward_agrees_with_differences, 0, 2);
    tcase_add_loop_test(tc, swiglu_is_its_definition, 0, 2);
    tcase_add_loop_test(tc, swiglu_gradients_may_replace_operands, 0, 2);
    tcase_add_loop_test(tc, swiglu_beside_its_products_has_the_bits_of_both, 0, 4);
    tcase_add_test(tc, swiglu_beside_its_products_refuses_strangers);
    tcase_add_loop_test(tc, add_rounds_once, 0, 8);
    tcase_add_test(tc, rope_is_its_definition);
    tcase_add_test(tc, rope_backward_agrees_with_differences);
    tcase_add_test(tc, rope_of_bf16_rounds_once);
    suite_add_tcase(suite, tc);
    return check_unit(suite);
}
