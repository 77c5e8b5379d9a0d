/* Grad norm, clipping and AdamW of the reference backend. */
#include "tests/unit/check_unit.h"
#include "tests/unit/ref_case.h"

#include <math.h>
#include <stdlib.h>

static struct tensor f64_column(struct ref_case *c, int64_t rows)
{
    return ref_case_tensor(c, DT_F64, rows, 1, 0);
}

/* Shapes with one element, long rows, and grains both ways. */
START_TEST(sumsq_is_a_table_by_grain)
{
    static const int64_t shape[4][4] = {
        {1, 1, 1, 1}, {6, 8, 3, 2}, {1, 40000, 1, 4}, {2000, 33, 1, 1}};
    struct ref_case c;
    struct device *dev;
    struct tensor t[4], table;
    int64_t entry = 0;

    ref_case_begin(&c);
    dev = ref_case_device(&c, &ref_backend, 2);
    for (int i = 0; i < 4; i++) {
        t[i] = ref_case_tensor(&c, i == 1 ? DT_BF16 : DT_F32, shape[i][0], shape[i][1], 3);
        ref_case_fill(&t[i], (uint64_t)i, 1);
        t[i] = tensor_grained(t[i], (int32_t)shape[i][2], (int32_t)shape[i][3]);
    }
    table = f64_column(&c, 1 + 6 + 4 + 1);
    OK(op_sumsq(dev, &table, t, 4));
    for (int i = 0; i < 4; i++)
        for (int64_t g = 0; g < shape[i][2] * shape[i][3]; g++) {
            int64_t rows = shape[i][0] / shape[i][2], cols = shape[i][1] / shape[i][3];
            struct tensor down = tensor_rows(&t[i], g / shape[i][3] * rows, rows, 1);
            struct tensor grain = tensor_cols(&down, g % shape[i][3] * cols, cols, 1);
            double sum = ref_case_dot(&grain, &grain);

            ck_assert_double_eq_tol(ref_case_get(&table, entry++, 0), sum, 1e-13 * sum);
        }
    ck_assert_int_eq(entry, table.rows);
    ref_case_end(&c);
}
END_TEST

START_TEST(sumsq_of_shares_keeps_bits)
{
    struct ref_case c;
    struct device *one, *two;
    struct tensor t, whole, part;

    ref_case_begin(&c);
    one = ref_case_device(&c, &ref_backend, 1);
    two = ref_case_device(&c, &ref_backend, 2);
    t = ref_case_tensor(&c, DT_F32, 800, 360, 0);
    ref_case_fill(&t, 1, 1);
    t = tensor_grained(t, _i ? 1 : 8, _i ? 8 : 1);
    whole = f64_column(&c, 8);
    OK(op_sumsq(two, &whole, &t, 1));
    for (int64_t ranks = 1; ranks <= 8; ranks *= 2)
        for (int64_t r = 0; r < ranks; r++) {
            int32_t g = (int32_t)(8 / ranks);
            struct tensor mine = _i ? tensor_cols(&t, r * 360 / ranks, 360 / ranks, g)
                                    : tensor_rows(&t, r * 800 / ranks, 800 / ranks, g);
            struct tensor expected = tensor_rows(&whole, r * g, g, 1);

            part = f64_column(&c, g);
            OK(op_sumsq(one, &part, &mine, 1));
            ck_assert(ref_case_same(&part, &expected));
        }
    ref_case_end(&c);
}
END_TEST

START_TEST(clip_limits_the_norm)
{
    static const struct {
        double table[3], limit, norm, scale;
    } rows[] = {
        {{4, 9, 12}, 0, 5, 1}, {{4, 9, 12}, 10, 5, 1},    {{4, 9, 12}, 2, 5, 2 / 5.000001},
        {{0, 0, 0}, 1, 0, 1},  {{4, NAN, 12}, 1, NAN, 0}, {{INFINITY, 1, 1}, 0, INFINITY, 0},
    };
    struct ref_case c;
    struct device *dev;
    struct tensor table, out;
    double norm;

    ref_case_begin(&c);
    dev = ref_case_device(&c, &ref_backend, 1);
    table = f64_column(&c, 3);
    out = f64_column(&c, 2);
    for (int64_t i = 0; i < 3; i++)
        ref_case_put(&table, i, 0, rows[_i].table[i]);
    OK(op_clip(dev, &out, &table, rows[_i].limit));
    norm = ref_case_get(&out, 0, 0);
    ck_assert(isnan(rows[_i].norm) ? isnan(norm) : norm == rows[_i].norm);
    ck_assert_double_eq(ref_case_get(&out, 1, 0), rows[_i].scale);
    ref_case_end(&c);
}
END_TEST

/* A parameter with its states, and the same in double by the formulas of op.h. */
struct parameter {
    struct adamw_item item;
    struct tensor w, m, v;
};

enum { ROWS = 3, COLS = 4099 };

static const struct adamw_step step = {.lr = 0.01,
                                       .beta1 = 0.9,
                                       .beta2 = 0.95,
                                       .eps = 1e-8,
                                       .weight_decay = 0.1,
                                       .bias1 = 1 - 0.9,
                                       .bias2 = 1 - 0.95};

static struct tensor positive(struct ref_case *c, enum dtype dt, uint64_t seed)
{
    struct tensor t = ref_case_tensor(c, dt, ROWS, COLS, 3);

    ref_case_fill(&t, seed, 1);
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t j = 0; j < COLS; j++)
            ref_case_put(&t, i, j, fabs(ref_case_get(&t, i, j)));
    return t;
}

static void make(struct ref_case *c, struct parameter *p, const struct device *dev, enum dtype w,
                 enum dtype state)
{
    p->item.w = ref_case_tensor(c, w, ROWS, COLS, 1);
    ref_case_fill(&p->item.w, 1, 1);
    p->item.m = ref_case_tensor(c, state, ROWS, COLS, 2);
    ref_case_fill(&p->item.m, 2, 1);
    p->item.v = positive(c, state, 3);
    p->item.g = ref_case_tensor(c, dev->wide, ROWS, COLS, 4);
    ref_case_fill(&p->item.g, 4, 1);
    p->item.master = (struct tensor){0};
    if (w == DT_BF16 && state != DT_BF16) {
        p->item.master = ref_case_tensor(c, dev->wide, ROWS, COLS, 5);
        ref_case_fill(&p->item.master, 6, 1);
    }
    p->item.decay = 1;
    p->w = ref_case_copy(c, p->item.master.data ? &p->item.master : &p->item.w, DT_F64);
    p->m = ref_case_copy(c, &p->item.m, DT_F64);
    p->v = ref_case_copy(c, &p->item.v, DT_F64);
}

static void by_definition(struct parameter *p, double scale)
{
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t j = 0; j < COLS; j++) {
            double g = ref_case_get(&p->item.g, i, j) * scale, w = ref_case_get(&p->w, i, j);
            double m = step.beta1 * ref_case_get(&p->m, i, j) + (1 - step.beta1) * g;
            double v = step.beta2 * ref_case_get(&p->v, i, j) + (1 - step.beta2) * g * g;

            ref_case_put(&p->m, i, j, m);
            ref_case_put(&p->v, i, j, v);
            if (p->item.decay)
                w *= 1 - step.lr * step.weight_decay;
            ref_case_put(&p->w, i, j,
                         w - step.lr * (m / step.bias1) / (sqrt(v / step.bias2) + step.eps));
        }
}

/* float64; float; bf16 with master; all bf16. */
START_TEST(adamw_is_its_definition)
{
    static const struct {
        enum dtype w, state;
        double bound;
    } row[] = {{DT_F64, DT_F64, 1e-15},
               {DT_F32, DT_F32, 3e-7},
               {DT_BF16, DT_F32, 3e-7},
               {DT_BF16, DT_BF16, 3e-3}};
    struct ref_case c;
    struct device *dev;
    struct parameter p[2];
    struct adamw_item items[2];
    struct tensor scale, rounded;

    ref_case_begin(&c);
    dev = ref_case_device(&c, _i == 0 ? &ref64_backend : &ref_backend, 2);
    scale = f64_column(&c, 2);
    ref_case_set(&scale, 0.25);
    for (int i = 0; i < 2; i++) {
        make(&c, &p[i], dev, row[_i].w, row[_i].state);
        p[i].item.decay = i;
        items[i] = p[i].item;
    }
    OK(op_adamw(dev, items, 2, &step, &scale));
    for (int i = 0; i < 2; i++) {
        const struct tensor *w = items[i].master.data ? &items[i].master : &items[i].w;

        by_definition(&p[i], 0.25);
        ck_assert_double_le(ref_case_error(w, &p[i].w), row[_i].bound);
        ck_assert_double_le(ref_case_error(&items[i].m, &p[i].m), row[_i].bound);
        ck_assert_double_le(ref_case_error(&items[i].v, &p[i].v), row[_i].bound);
        ck_assert_int_eq(ref_case_spilt(&items[i].w) + ref_case_spilt(&items[i].m), 0);
        rounded = ref_case_copy(&c, w, items[i].w.dtype);
        ck_assert(ref_case_same(&items[i].w, &rounded));
    }
    ref_case_end(&c);
}
END_TEST

START_TEST(scale_zero_changes_nothing)
{
    struct ref_case c;
    struct device *dev;
    struct parameter p;
    struct tensor scale, w, m, v;

    ref_case_begin(&c);
    dev = ref_case_device(&c, &ref_backend, 1);
    make(&c, &p, dev, DT_F32, DT_F32);
    w = ref_case_copy(&c, &p.item.w, DT_F32);
    m = ref_case_copy(&c, &p.item.m, DT_F32);
    v = ref_case_copy(&c, &p.item.v, DT_F32);
    scale = f64_column(&c, 2);
    ref_case_set(&scale, 0);
    ref_case_set(&p.item.g, NAN);
    OK(op_adamw(dev, &p.item, 1, &step, &scale));
    ck_assert(ref_case_same(&w, &p.item.w));
    ck_assert(ref_case_same(&m, &p.item.m));
    ck_assert(ref_case_same(&v, &p.item.v));
    ref_case_end(&c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ref optimiser");
    TCase *tc = tcase_create("all");

    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, sumsq_is_a_table_by_grain);
    tcase_add_loop_test(tc, sumsq_of_shares_keeps_bits, 0, 2);
    tcase_add_loop_test(tc, clip_limits_the_norm, 0, 6);
    tcase_add_loop_test(tc, adamw_is_its_definition, 0, 4);
    tcase_add_test(tc, scale_zero_changes_nothing);
    suite_add_tcase(suite, tc);
    return check_unit(suite);
}
