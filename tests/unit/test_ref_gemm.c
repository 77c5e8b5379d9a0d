/* Matrix products of the reference backend: against a triple loop, and the same bits however
 * grains and sequences are dealt. */
#include "tests/unit/check_unit.h"
#include "tests/unit/ref_case.h"

#include <math.h>
#include <stdlib.h>

/* One product: sequences of seq rows, grains of K and of N with their widths. */
struct shape {
    int64_t sequences, seq, k_grains, k_width, n_grains, n_width;
};

enum extra { PLAIN, ACCUMULATE, RESIDUAL, RESIDUAL_IN_PLACE, BOTH, SCALED, MORE, EXTRAS };

static struct tensor operand(struct ref_case *c, enum dtype dt, int64_t rows, int64_t cols,
                             uint64_t seed)
{
    struct tensor t = ref_case_tensor(c, dt, rows, cols, 3);

    ref_case_fill(&t, seed, 1);
    return t;
}

static void make_pair(struct ref_case *c, struct tensor *a, struct tensor *b, const struct shape *s,
                      enum gemm_kind kind, enum dtype dt, uint64_t seed)
{
    int64_t k = s->k_grains * s->k_width, n = s->n_grains * s->n_width;
    int32_t kg = (int32_t)s->k_grains, ng = (int32_t)s->n_grains;

    *a = tensor_grained(operand(c, dt, s->sequences * s->seq, k, seed), (int32_t)s->sequences, kg);
    if (kind == GEMM_NN)
        *b = tensor_grained(operand(c, dt, k, n, seed + 1), kg, ng);
    else
        *b = tensor_grained(operand(c, dt, n, k, seed + 1), ng, kg);
}

static struct gemm make(struct ref_case *c, const struct shape *s, enum gemm_kind kind,
                        enum dtype dt)
{
    struct gemm g = {.kind = kind};
    int64_t m = s->sequences * s->seq;

    make_pair(c, &g.a, &g.b, s, kind, dt, 1);
    for (int i = 0; i < 2; i++)
        make_pair(c, &g.part[i].a, &g.part[i].b, s, kind, dt, 10 + 2 * (uint64_t)i);
    g.y = tensor_grained(ref_case_tensor(c, dt, m, s->n_grains * s->n_width, 2), 1,
                         (int32_t)s->n_grains);
    return g;
}

static double entry(const struct tensor *a, const struct tensor *b, const struct gemm *g, int64_t i,
                    int64_t j, int64_t lo, int64_t hi)
{
    double sum = 0;

    for (int64_t k = lo; k < hi; k++)
        sum += ref_case_get(a, i, k) *
               (g->kind == GEMM_NN ? ref_case_get(b, k, j) : ref_case_get(b, j, k));
    return sum;
}

/* The definition in op_types.h; y holds what accumulation starts from. */
static void by_definition(struct tensor *y, const struct gemm *g)
{
    int64_t width = g->a.cols / g->a.col_grains;

    for (int64_t i = 0; i < y->rows; i++)
        for (int64_t j = 0; j < y->cols; j++) {
            double sum = g->accumulate ? ref_case_get(y, i, j) : 0;

            for (int32_t k = 0; k < g->a.col_grains; k++) {
                double part = entry(&g->a, &g->b, g, i, j, k * width, (k + 1) * width);

                for (int p = 0; p < g->more; p++)
                    part +=
                        entry(&g->part[p].a, &g->part[p].b, g, i, j, k * width, (k + 1) * width);
                sum += part * (g->k_scale ? ref_case_get(g->k_scale, i, k) : 1);
            }
            ref_case_put(y, i, j, sum + (g->c ? ref_case_get(g->c, i, j) : 0));
        }
}

static void dress(struct gemm *g, enum extra extra, const struct tensor *c,
                  const struct tensor *scale)
{
    g->accumulate = extra == ACCUMULATE || extra == BOTH;
    g->c = extra == RESIDUAL || extra == BOTH ? c : NULL;
    if (extra == RESIDUAL_IN_PLACE)
        g->c = &g->y;
    g->k_scale = extra == SCALED ? scale : NULL;
    g->more = extra == MORE ? 2 : 0;
}

static void check_product(const struct backend *be, const struct shape *s, enum dtype dt,
                          enum extra extra)
{
    double bound = dt == DT_F64 ? 1e-14 : dt == DT_F32 ? 2e-6 : 4e-3;

    for (int kind = 0; kind < 2; kind++) {
        struct ref_case c;
        struct device *dev;
        struct gemm g;
        struct tensor res, scale, expected;

        ref_case_begin(&c);
        dev = ref_case_device(&c, be, 1 + kind);
        g = make(&c, s, (enum gemm_kind)kind, dt);
        res = operand(&c, dt, g.y.rows, g.y.cols, 5);
        scale = operand(&c, dev->wide, g.y.rows, s->k_grains, 6);
        if (extra == ACCUMULATE || extra == BOTH || extra == RESIDUAL_IN_PLACE)
            ref_case_fill(&g.y, 7, 1);
        dress(&g, extra, &res, &scale);
        expected = ref_case_copy(&c, &g.y, DT_F64);
        if (g.c == &g.y) {
            struct tensor before = ref_case_copy(&c, &g.y, DT_F64);
            struct gemm plain = g;

            plain.c = &before;
            by_definition(&expected, &plain);
        } else {
            by_definition(&expected, &g);
        }
        OK(op_gemm(dev, &g, 1));
        ck_assert_double_le(ref_case_error(&g.y, &expected), bound);
        ck_assert_int_eq(ref_case_spilt(&g.y), 0);
        ref_case_end(&c);
    }
}

START_TEST(product_is_its_definition)
{
    static const struct shape shapes[] = {
        {1, 1, 1, 1, 1, 1},   {3, 5, 1, 7, 1, 9},     {2, 17, 8, 3, 4, 5},
        {1, 33, 2, 16, 8, 8}, {2, 300, 4, 9, 1, 257}, {2, 8, 3, 5, 1, 6},
    };

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        check_product(&ref_backend, &shapes[i], DT_F32, (enum extra)_i);
        check_product(&ref_backend, &shapes[i], DT_BF16, (enum extra)_i);
        check_product(&ref64_backend, &shapes[i], DT_F64, (enum extra)_i);
    }
}
END_TEST

/* y of a layout in which `ranks` hold the grains of K: their partial products, joined. */
static void sum_of_ranks(struct ref_case *c, struct device *dev, struct tensor *y,
                         const struct gemm *whole, int64_t ranks)
{
    struct tensor parts = ref_case_tensor(c, dev->wide, ranks * y->rows, y->cols, 0);

    for (int64_t r = 0; r < ranks; r++) {
        struct gemm g = *whole;
        int64_t k = g.a.cols / ranks;
        int32_t grains = (int32_t)(g.a.col_grains / ranks);

        g.y = tensor_rows(&parts, r * y->rows, y->rows, 1);
        g.y.col_grains = whole->y.col_grains;
        g.a = tensor_cols(&whole->a, r * k, k, grains);
        g.b = g.kind == GEMM_NN ? tensor_rows(&whole->b, r * k, k, grains)
                                : tensor_cols(&whole->b, r * k, k, grains);
        for (int i = 0; i < g.more; i++) {
            g.part[i].a = tensor_cols(&whole->part[i].a, r * k, k, grains);
            g.part[i].b = g.kind == GEMM_NN ? tensor_rows(&whole->part[i].b, r * k, k, grains)
                                            : tensor_cols(&whole->part[i].b, r * k, k, grains);
        }
        OK(op_gemm(dev, &g, 1));
    }
    OK(op_sum_tree(dev, y, &parts));
}

START_TEST(cut_of_k_keeps_bits)
{
    static const struct shape shapes[] = {{2, 16, 8, 24, 1, 48}, {3, 100, 8, 13, 2, 41}};

    for (size_t i = 0; i < 2; i++)
        for (int kind = 0; kind < 2; kind++) {
            struct ref_case c;
            struct device *dev;
            struct gemm g;

            ref_case_begin(&c);
            dev = ref_case_device(&c, &ref_backend, 1 + _i);
            g = make(&c, &shapes[i], (enum gemm_kind)kind, DT_F32);
            g.more = 2;
            OK(op_gemm(dev, &g, 1));
            for (int64_t ranks = 1; ranks <= 8; ranks *= 2) {
                struct tensor y = ref_case_tensor(&c, DT_F32, g.y.rows, g.y.cols, 0);

                sum_of_ranks(&c, dev, &y, &g, ranks);
                ck_assert_msg(ref_case_same(&y, &g.y), "%lld ranks", (long long)ranks);
            }
            ref_case_end(&c);
        }
}
END_TEST

/* The same product by ranks that hold n_grains / ranks of N, sequence by sequence. */
static void piecewise(struct device *dev, struct tensor *y, const struct gemm *whole, int64_t ranks)
{
    int32_t sequences = whole->a.row_grains, grains = (int32_t)(whole->y.col_grains / ranks);
    int64_t seq = whole->a.rows / sequences, n = whole->y.cols / ranks;

    for (int64_t r = 0; r < ranks; r++)
        for (int64_t s = 0; s < sequences; s++) {
            struct gemm g = *whole;
            struct tensor rows = tensor_rows(y, s * seq, seq, 1);

            g.y = tensor_cols(&rows, r * n, n, grains);
            g.a = tensor_rows(&whole->a, s * seq, seq, 1);
            g.b = g.kind == GEMM_NN ? tensor_cols(&whole->b, r * n, n, grains)
                                    : tensor_rows(&whole->b, r * n, n, grains);
            OK(op_gemm(dev, &g, 1));
        }
}

START_TEST(cut_of_n_and_batch_keeps_bits)
{
    static const struct shape shapes[] = {{4, 16, 1, 96, 8, 24}, {3, 37, 4, 11, 8, 21}};

    for (size_t i = 0; i < 2; i++)
        for (int kind = 0; kind < 2; kind++) {
            struct ref_case c;
            struct device *dev, *two;
            struct gemm g;

            ref_case_begin(&c);
            dev = ref_case_device(&c, &ref_backend, 1);
            two = ref_case_device(&c, &ref_backend, 2);
            g = make(&c, &shapes[i], (enum gemm_kind)kind, _i ? DT_BF16 : DT_F32);
            OK(op_gemm(dev, &g, 1));
            for (int64_t ranks = 1; ranks <= 8; ranks *= 2) {
                struct tensor y = ref_case_tensor(&c, g.y.dtype, g.y.rows, g.y.cols, 0);

                piecewise(two, &y, &g, ranks);
                ck_assert_msg(ref_case_same(&y, &g.y), "%lld ranks", (long long)ranks);
            }
            ref_case_end(&c);
        }
}
END_TEST

START_TEST(groups_equal_single_products)
{
    static const struct shape shapes[3] = {
        {2, 20, 1, 30, 2, 17}, {2, 20, 8, 4, 1, 33}, {1, 9, 2, 5, 1, 3}};
    struct ref_case c;
    struct device *dev;
    struct gemm g[3];

    ref_case_begin(&c);
    dev = ref_case_device(&c, &ref_backend, 2);
    for (int i = 0; i < 3; i++)
        g[i] = make(&c, &shapes[i], GEMM_NT, i == 1 ? DT_BF16 : DT_F32);
    OK(op_gemm(dev, g, 3));
    for (int i = 0; i < 3; i++) {
        struct gemm alone = g[i];

        alone.y = ref_case_tensor(&c, g[i].y.dtype, g[i].y.rows, g[i].y.cols, 1);
        alone.y.col_grains = g[i].y.col_grains;
        OK(op_gemm(dev, &alone, 1));
        ck_assert(ref_case_same(&alone.y, &g[i].y));
    }
    ref_case_end(&c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ref gemm");
    TCase *tc = tcase_create("all");

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, product_is_its_definition, 0, EXTRAS);
    tcase_add_loop_test(tc, cut_of_k_keeps_bits, 0, 2);
    tcase_add_loop_test(tc, cut_of_n_and_batch_keeps_bits, 0, 2);
    tcase_add_test(tc, groups_equal_single_products);
    suite_add_tcase(suite, tc);
    return check_unit(suite);
}
