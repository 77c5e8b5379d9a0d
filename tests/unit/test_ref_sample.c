/* Gradients that are sums over samples: against their definition, and the same bits however the
 * batch is dealt to micro-batches, columns to ranks, work to threads. */
#include "tests/unit/check_unit.h"
#include "tests/unit/ref_case.h"

#include <stdlib.h>

enum { SEQ = 5, OUT = 16, IN = 24, VOCABULARY = 13, MOST = 12 };

/* A batch and what the three operations read of it. */
struct batch {
    struct device *dev;
    struct tensor dy, x;      /* [n SEQ, OUT], [n SEQ, IN] */
    struct tensor tokens;     /* [n SEQ, 1] */
    struct tensor gain, coef; /* [1, IN], [n SEQ, 2] */
    struct tensor dx;         /* [n SEQ, IN], spoilt by each run */
};

static void make_batch(struct ref_case *c, struct batch *b, const struct backend *be, int threads,
                       int64_t n)
{
    b->dev = ref_case_device(c, be, threads);
    b->dy = ref_case_random(c, b->dev, n * SEQ, OUT, 1);
    b->x = ref_case_random(c, b->dev, n * SEQ, IN, 2);
    b->tokens = ref_case_tensor(c, DT_I32, n * SEQ, 1, 0);
    for (int64_t i = 0; i < n * SEQ; i++) /* some rows often, some never, some outside */
        ref_case_put(&b->tokens, i, 0, (double)((i * i + i / 3) % (VOCABULARY + 3)) - 1);
    b->gain = ref_case_random(c, b->dev, 1, IN, 3);
    b->coef = ref_case_random(c, b->dev, n * SEQ, 2, 4);
    b->dx = ref_case_random(c, b->dev, n * SEQ, IN, 5);
}

enum which { WEIGHT, GAIN, EMBEDDING, KINDS };

static struct tensor gradient(struct ref_case *c, const struct batch *b, enum which which,
                              int32_t slots)
{
    static const int64_t rows[KINDS] = {OUT, 1, VOCABULARY}, cols[KINDS] = {IN, IN, OUT};
    struct tensor all =
        ref_case_tensor(c, b->dev->wide, slots * rows[which], cols[which], which == GAIN ? 0 : 3);

    return tensor_rows(&all, 0, rows[which], 1);
}

static int64_t plane_of(const struct tensor *grad)
{
    return grad->rows * grad->stride * (int64_t)dtype_size(grad->dtype);
}

static struct tensor part(const struct tensor *t, int64_t first, int64_t samples)
{
    return tensor_rows(t, first * SEQ, samples * SEQ, 1);
}

/* Carries out plan for samples [first, first + plan->samples). */
static void run(const struct batch *b, enum which which, struct tensor *grad, int64_t first,
                const struct sample_plan *plan)
{
    struct tensor dy = part(&b->dy, first, plan->samples), x = part(&b->x, first, plan->samples);
    struct tensor tokens = part(&b->tokens, first, plan->samples);

    if (which == WEIGHT) {
        struct weight_grad w = {.dw = *grad, .dy = dy, .x = x};

        OK(op_weight_grad(b->dev, &w, 1, plan));
    } else if (which == GAIN) {
        struct rms_grad g = {.dgain = *grad, .gain = b->gain, .x = x, .t = x};
        struct tensor coef = part(&b->coef, first, plan->samples);

        g.dx = part(&b->dx, first, plan->samples);
        OK(op_rms_backward(b->dev, &g, &coef, plan));
    } else {
        OK(op_embed_backward(b->dev, grad, &dy, &tokens, 2, plan));
    }
}

/* The gradient of samples [first, end) of the batch in micro-batches of `micro`, in slot 0. */
static struct tensor in_steps(struct ref_case *c, const struct batch *b, enum which which,
                              int64_t n, int64_t micro, int exact)
{
    struct tensor grad = gradient(c, b, which, sample_slots(0, n, micro, exact));
    struct sample_tree tree;
    struct sample_plan plan;

    sample_tree_start(&tree, 0, n, exact);
    for (int64_t at = 0; at < n; at += micro) {
        sample_plan_next(&plan, &tree, n - at < micro ? n - at : micro);
        plan.plane = plane_of(&grad);
        run(b, which, &grad, at, &plan);
    }
    return grad;
}

/* The tree over samples written out, each sample by itself. */
static struct tensor by_tree(struct ref_case *c, const struct batch *b, enum which which,
                             int64_t lo, int64_t hi)
{
    struct tensor sum = gradient(c, b, which, 1), left, right;
    struct sample_plan one = ref_case_plan(1, 0);

    if (hi - lo == 1) {
        run(b, which, &sum, lo, &one);
        return sum;
    }
    left = by_tree(c, b, which, lo, lo + (hi - lo) / 2);
    right = by_tree(c, b, which, lo + (hi - lo) / 2, hi);
    for (int64_t i = 0; i < sum.rows; i++)
        for (int64_t j = 0; j < sum.cols; j++)
            ref_case_put(&sum, i, j, ref_case_get(&left, i, j) + ref_case_get(&right, i, j));
    return sum;
}

START_TEST(micro_batches_keep_bits)
{
    for (int64_t n = 1; n <= MOST; n++) {
        struct ref_case c;
        struct batch b;
        struct tensor whole;

        ref_case_begin(&c);
        make_batch(&c, &b, &ref_backend, 1 + (int)(n % 2), n);
        whole = by_tree(&c, &b, (enum which)_i, 0, n);
        for (int64_t micro = 1; micro <= n; micro++) {
            struct tensor grad = in_steps(&c, &b, (enum which)_i, n, micro, 1);

            ck_assert_msg(ref_case_same(&grad, &whole), "%lld samples in steps of %lld",
                          (long long)n, (long long)micro);
        }
        ref_case_end(&c);
    }
}
END_TEST

/* A plan may name any slots: 3 and 1 are added, slot 0 gets the sum, 1 and 3 stay as they are. */
START_TEST(a_sum_may_move_to_another_slot)
{
    struct ref_case c;
    struct batch b;
    struct tensor grad, one, all;
    struct sample_plan plan = ref_case_plan(2, 0);

    ref_case_begin(&c);
    make_batch(&c, &b, &ref_backend, 2, 2);
    one = gradient(&c, &b, (enum which)_i, 1);
    run(&b, (enum which)_i, &one, 0, &plan);
    for (int32_t merges = 1; merges <= 2; merges++) {
        grad = gradient(&c, &b, (enum which)_i, 4);
        all = tensor_rows(&grad, 0, 4 * grad.rows, 1);
        ref_case_fill(&all, 3, 1);
        plan.plane = plane_of(&grad);
        plan.node[0].merges = merges;
        plan.node[0].merge[0] = 3;
        plan.node[0].merge[1] = 1;
        plan.node[0].slot = 0;
        run(&b, (enum which)_i, &grad, 0, &plan);
        for (int64_t i = 0; i < grad.rows; i++)
            for (int64_t j = 0; j < grad.cols; j++) {
                float sum = (float)ref_case_get(&one, i, j);

                sum = (float)ref_case_get(&all, 3 * grad.rows + i, j) + sum;
                if (merges == 2)
                    sum = (float)ref_case_get(&all, grad.rows + i, j) + sum;
                ck_assert(ref_case_get(&grad, i, j) == (double)sum);
            }
    }
    ref_case_end(&c);
}
END_TEST

static double definition(const struct batch *b, enum which which, int64_t i, int64_t j)
{
    double sum = 0;

    for (int64_t t = 0; t < b->dy.rows; t++) {
        double x = ref_case_get(&b->x, t, j);

        if (which == WEIGHT)
            sum += ref_case_get(&b->dy, t, i) * x;
        else if (which == GAIN)
            sum += ref_case_get(&b->coef, t, 0) * x * x;
        else if (ref_case_get(&b->tokens, t, 0) == (double)(i + 2))
            sum += ref_case_get(&b->dy, t, j);
    }
    return sum;
}

START_TEST(sums_are_their_definition)
{
    for (int f64 = 0; f64 < 2; f64++)
        for (int64_t micro = 1; micro <= 7; micro += 3) {
            struct ref_case c;
            struct batch b;
            struct tensor grad, rough, expected;

            ref_case_begin(&c);
            make_batch(&c, &b, f64 ? &ref64_backend : &ref_backend, 2, 7);
            grad = in_steps(&c, &b, (enum which)_i, 7, micro, 1);
            rough = in_steps(&c, &b, (enum which)_i, 7, micro, 0);
            expected = ref_case_tensor(&c, DT_F64, grad.rows, grad.cols, 0);
            for (int64_t i = 0; i < grad.rows; i++)
                for (int64_t j = 0; j < grad.cols; j++)
                    ref_case_put(&expected, i, j, definition(&b, (enum which)_i, i, j));
            ck_assert_double_le(ref_case_error(&grad, &expected), f64 ? 1e-15 : 1e-6);
            ck_assert_double_le(ref_case_error(&rough, &expected), f64 ? 1e-15 : 1e-6);
            ck_assert_int_eq(ref_case_spilt(&grad), 0);
            ref_case_end(&c);
        }
}
END_TEST

/* dw by ranks that hold a share of its rows (or columns), each with its grains. */
static void by_ranks(const struct batch *b, struct tensor *dw, int64_t ranks, int down,
                     const struct sample_plan *plan)
{
    for (int64_t r = 0; r < ranks; r++) {
        struct weight_grad w = {.dw = *dw, .dy = b->dy, .x = b->x};
        int32_t grains = (int32_t)(8 / ranks);

        if (down) {
            w.dw = tensor_rows(dw, r * OUT / ranks, OUT / ranks, grains);
            w.dy = tensor_cols(&b->dy, r * OUT / ranks, OUT / ranks, 1);
        } else {
            w.dw = tensor_cols(dw, r * IN / ranks, IN / ranks, grains);
            w.x = tensor_cols(&b->x, r * IN / ranks, IN / ranks, 1);
        }
        OK(op_weight_grad(b->dev, &w, 1, plan));
    }
}

START_TEST(cut_weight_gradients_keep_bits)
{
    struct ref_case c;
    struct batch b;
    struct tensor whole;
    struct sample_plan plan = ref_case_plan(6, 0);

    ref_case_begin(&c);
    make_batch(&c, &b, &ref_backend, 2, 6);
    whole = gradient(&c, &b, WEIGHT, 1);
    by_ranks(&b, &whole, 1, _i, &plan);
    for (int64_t ranks = 2; ranks <= 8; ranks *= 2) {
        struct tensor dw = gradient(&c, &b, WEIGHT, 1);

        by_ranks(&b, &dw, ranks, _i, &plan);
        ck_assert(ref_case_same(&dw, &whole));
    }
    ref_case_end(&c);
}
END_TEST

START_TEST(large_weight_gradients_in_blocks)
{
    struct ref_case c;
    struct device *dev;
    struct sample_plan plan = ref_case_plan(3, 0);
    struct weight_grad w;
    struct tensor expected;

    ref_case_begin(&c);
    dev = ref_case_device(&c, &ref_backend, 2);
    w.dy = ref_case_random(&c, dev, 6, 517, 1);
    w.x = ref_case_random(&c, dev, 6, 301, 2);
    w.dw = ref_case_tensor(&c, DT_F32, 517, 301, 5);
    expected = ref_case_tensor(&c, DT_F64, 517, 301, 0);
    OK(op_weight_grad(dev, &w, 1, &plan));
    for (int64_t i = 0; i < 517; i++)
        for (int64_t j = 0; j < 301; j++) {
            double sum = 0;

            for (int64_t t = 0; t < 6; t++)
                sum += ref_case_get(&w.dy, t, i) * ref_case_get(&w.x, t, j);
            ref_case_put(&expected, i, j, sum);
        }
    ck_assert_double_le(ref_case_error(&w.dw, &expected), 1e-6);
    ck_assert_int_eq(ref_case_spilt(&w.dw), 0);
    ref_case_end(&c);
}
END_TEST

START_TEST(negative_zero_never_appears)
{
    struct ref_case c;
    struct device *dev;
    struct tensor dw, dy, tokens, zero;
    struct sample_plan plan = ref_case_plan(2, 0);

    ref_case_begin(&c);
    dev = ref_case_device(&c, &ref_backend, 1);
    dw = ref_case_tensor(&c, DT_F32, 3, 4, 0);
    zero = ref_case_tensor(&c, DT_F32, 3, 4, 0);
    dy = ref_case_tensor(&c, DT_F32, 2, 4, 0);
    tokens = ref_case_tensor(&c, DT_I32, 2, 1, 0);
    ref_case_set(&dy, -0.0);
    ref_case_set(&zero, 0.0);
    ref_case_set(&tokens, 1);
    OK(op_embed_backward(dev, &dw, &dy, &tokens, 0, &plan));
    ck_assert(ref_case_same(&dw, &zero));
    ref_case_end(&c);
}
END_TEST

START_TEST(bf16_operands_are_read_exactly)
{
    struct ref_case c;
    struct batch b;
    struct weight_grad w, wide;
    struct sample_plan plan = ref_case_plan(4, 0);

    ref_case_begin(&c);
    make_batch(&c, &b, &ref_backend, 2, 4);
    w.dy = ref_case_copy(&c, &b.dy, DT_BF16);
    w.x = ref_case_copy(&c, &b.x, DT_BF16);
    wide.dy = ref_case_copy(&c, &w.dy, DT_F32);
    wide.x = ref_case_copy(&c, &w.x, DT_F32);
    w.dw = gradient(&c, &b, WEIGHT, 1);
    wide.dw = gradient(&c, &b, WEIGHT, 1);
    OK(op_weight_grad(b.dev, &w, 1, &plan));
    OK(op_weight_grad(b.dev, &wide, 1, &plan));
    ck_assert(ref_case_same(&w.dw, &wide.dw));
    ref_case_end(&c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ref sums over samples");
    TCase *tc = tcase_create("all");

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, micro_batches_keep_bits, 0, KINDS);
    tcase_add_loop_test(tc, a_sum_may_move_to_another_slot, 0, KINDS);
    tcase_add_loop_test(tc, sums_are_their_definition, 0, KINDS);
    tcase_add_loop_test(tc, cut_weight_gradients_keep_bits, 0, 2);
    tcase_add_test(tc, large_weight_gradients_in_blocks);
    tcase_add_test(tc, negative_zero_never_appears);
    tcase_add_test(tc, bf16_operands_are_read_exactly);
    suite_add_tcase(suite, tc);
    return check_unit(suite);
}
