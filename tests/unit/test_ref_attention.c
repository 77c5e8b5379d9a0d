/* Attention of the reference backend. */
#include "tests/unit/check_unit.h"
#include "tests/unit/ref_case.h"

#include <math.h>
#include <stdlib.h>

/* Sizes of one case; 1, odd ones, and sequences longer than a block of queries. */
struct sizes {
    int64_t batch, seq, heads, kv_heads, head_dim;
};

static const struct sizes sizes[] = {
    {1, 1, 1, 1, 2}, {2, 7, 4, 4, 6}, {2, 65, 4, 2, 8}, {1, 130, 6, 1, 4}, {3, 64, 2, 2, 16},
};

enum { CASES = sizeof sizes / sizeof *sizes };

/* Forward tensors, gradients, and the loss <o, dat.o>. */
struct scene {
    struct device *dev;
    struct attention at, dat;
};

static struct tensor strided(struct ref_case *c, enum dtype dt, int64_t rows, int64_t cols,
                             uint64_t seed)
{
    struct tensor t = ref_case_tensor(c, dt, rows, cols, 5);

    if (seed)
        ref_case_fill(&t, seed, 1);
    return t;
}

static void make(struct ref_case *c, struct scene *s, struct device *dev, const struct sizes *z,
                 enum dtype dt)
{
    int64_t rows = z->batch * z->seq, q = z->heads * z->head_dim, kv = z->kv_heads * z->head_dim;

    s->dev = dev;
    s->at = (struct attention){.batch = z->batch,
                               .seq = z->seq,
                               .kv_rows = z->seq,
                               .heads = z->heads,
                               .kv_heads = z->kv_heads,
                               .head_dim = z->head_dim};
    s->at.q = strided(c, dt, rows, q, 1);
    s->at.k = strided(c, dt, rows, kv, 2);
    s->at.v = strided(c, dt, rows, kv, 3);
    s->at.o = strided(c, dt, rows, q, 0);
    s->at.lse = strided(c, dev->wide, rows, z->heads, 0);
    s->dat = s->at;
    s->dat.o = strided(c, dt, rows, q, 4);
    s->dat.q = strided(c, dt, rows, q, 0);
    s->dat.k = strided(c, dt, rows, kv, 0);
    s->dat.v = strided(c, dt, rows, kv, 0);
}

/* Scaled score of query row i with key u of its sequence, head h. */
static double score(const struct attention *at, int64_t i, int64_t u, int64_t h)
{
    int64_t kv = h * at->kv_heads / at->heads;
    double sum = 0;

    for (int64_t j = 0; j < at->head_dim; j++)
        sum += ref_case_get(&at->q, i, h * at->head_dim + j) *
               ref_case_get(&at->k, i / at->seq * at->kv_rows + u, kv * at->head_dim + j);
    return sum / sqrt((double)at->head_dim);
}

/* The definition, in double: o [M, heads*dim] and lse [M, heads]. */
static void by_definition(const struct attention *at, struct tensor *o, struct tensor *lse)
{
    int64_t dim = at->head_dim;

    for (int64_t e = 0; e < at->q.rows * at->heads; e++) {
        int64_t i = e / at->heads, h = e % at->heads, kv = h * at->kv_heads / at->heads;
        int64_t seen = at->pos0 + i % at->seq + 1;
        double sum = 0;

        for (int64_t u = 0; u < seen; u++)
            sum += exp(score(at, i, u, h));
        ref_case_put(lse, i, h, log(sum));
        for (int64_t j = 0; j < dim; j++) {
            double out = 0;

            for (int64_t u = 0; u < seen; u++)
                out += exp(score(at, i, u, h)) / sum *
                       ref_case_get(&at->v, i / at->seq * at->kv_rows + u, kv * dim + j);
            ref_case_put(o, i, h * dim + j, out);
        }
    }
}

static void check_forward(struct ref_case *c, struct scene *s, double bound, double lse_bound)
{
    struct tensor o = ref_case_tensor(c, DT_F64, s->at.o.rows, s->at.o.cols, 0);
    struct tensor lse = ref_case_tensor(c, DT_F64, s->at.lse.rows, s->at.lse.cols, 0);

    OK(op_attention_forward(s->dev, &s->at));
    by_definition(&s->at, &o, &lse);
    ck_assert_double_le(ref_case_error(&s->at.o, &o), bound);
    ck_assert_double_le(ref_case_error(&s->at.lse, &lse), lse_bound);
    ck_assert_int_eq(ref_case_spilt(&s->at.o) + ref_case_spilt(&s->at.lse), 0);
}

START_TEST(attention_is_its_definition)
{
    struct ref_case c;
    struct scene s;

    ref_case_begin(&c);
    make(&c, &s, ref_case_device(&c, &ref_backend, 2), &sizes[_i], DT_F32);
    check_forward(&c, &s, 2e-6, 2e-6);
    make(&c, &s, ref_case_device(&c, &ref_backend, 1), &sizes[_i], DT_BF16);
    check_forward(&c, &s, 4e-3, 2e-6);
    make(&c, &s, ref_case_device(&c, &ref64_backend, 1), &sizes[_i], DT_F64);
    check_forward(&c, &s, 1e-14, 1e-14);
    ref_case_end(&c);
}
END_TEST

static double loss_of(void *context)
{
    struct scene *s = context;

    OK(op_attention_forward(s->dev, &s->at));
    return ref_case_dot(&s->at.o, &s->dat.o);
}

START_TEST(backward_agrees_with_differences)
{
    struct ref_case c;
    struct scene s;
    struct ref_case_loss loss = {loss_of, &s};

    ref_case_begin(&c);
    make(&c, &s, ref_case_device(&c, &ref64_backend, 2), &sizes[_i], DT_F64);
    (void)loss_of(&s);
    OK(op_attention_backward(s.dev, &s.at, &s.dat));
    ck_assert_double_le(ref_case_differences(&s.at.q, &s.dat.q, loss), 1e-6);
    ck_assert_double_le(ref_case_differences(&s.at.k, &s.dat.k, loss), 1e-6);
    ck_assert_double_le(ref_case_differences(&s.at.v, &s.dat.v, loss), 1e-6);
    ck_assert_int_eq(ref_case_spilt(&s.dat.q) + ref_case_spilt(&s.dat.k) + ref_case_spilt(&s.dat.v),
                     0);
    ref_case_end(&c);
}
END_TEST

/* Inputs that bf16 holds: float and bf16 against float64. */
START_TEST(backward_agrees_with_float64)
{
    for (int half = 0; half < 2; half++) {
        enum dtype dt = half ? DT_BF16 : DT_F32;
        double bound = half ? 1.5e-2 : 1e-5;
        struct ref_case c;
        struct scene s, exact;

        ref_case_begin(&c);
        make(&c, &s, ref_case_device(&c, &ref_backend, 2), &sizes[_i], dt);
        make(&c, &exact, ref_case_device(&c, &ref64_backend, 1), &sizes[_i], DT_F64);
        exact.at.q = ref_case_copy(&c, &s.at.q, DT_F64);
        exact.at.k = ref_case_copy(&c, &s.at.k, DT_F64);
        exact.at.v = ref_case_copy(&c, &s.at.v, DT_F64);
        exact.dat.o = ref_case_copy(&c, &s.dat.o, DT_F64);
        OK(op_attention_forward(s.dev, &s.at));
        OK(op_attention_forward(exact.dev, &exact.at));
        OK(op_attention_backward(s.dev, &s.at, &s.dat));
        OK(op_attention_backward(exact.dev, &exact.at, &exact.dat));
        if (sizes[_i].seq > 1) {
            ck_assert_double_le(ref_case_error(&s.dat.q, &exact.dat.q), bound);
            ck_assert_double_le(ref_case_error(&s.dat.k, &exact.dat.k), bound);
        }
        ck_assert_double_le(ref_case_error(&s.dat.v, &exact.dat.v), bound);
        ref_case_end(&c);
    }
}
END_TEST

/* Heads [h0, ...) of a rank: columns of every tensor. */
static struct attention share(const struct attention *at, int64_t r, int64_t ranks)
{
    struct attention a = *at;
    int64_t q = at->q.cols / ranks, kv = at->k.cols / ranks, h = at->heads / ranks;

    a.heads = h;
    a.kv_heads = at->kv_heads / ranks;
    a.q = tensor_cols(&at->q, r * q, q, 1);
    a.o = tensor_cols(&at->o, r * q, q, 1);
    a.k = tensor_cols(&at->k, r * kv, kv, 1);
    a.v = tensor_cols(&at->v, r * kv, kv, 1);
    a.lse = tensor_cols(&at->lse, r * h, h, 1);
    return a;
}

START_TEST(heads_and_threads_keep_bits)
{
    static const struct sizes z = {2, 70, 8, 4, 6};
    struct ref_case c;
    struct scene s, cut;

    ref_case_begin(&c);
    make(&c, &s, ref_case_device(&c, &ref_backend, 1), &z, DT_F32);
    OK(op_attention_forward(s.dev, &s.at));
    OK(op_attention_backward(s.dev, &s.at, &s.dat));
    for (int64_t ranks = 1; ranks <= 4; ranks *= 2) {
        make(&c, &cut, ref_case_device(&c, &ref_backend, 2), &z, DT_F32);
        for (int64_t r = 0; r < ranks; r++) {
            struct attention at = share(&cut.at, r, ranks), dat = share(&cut.dat, r, ranks);

            OK(op_attention_forward(cut.dev, &at));
            OK(op_attention_backward(cut.dev, &at, &dat));
        }
        ck_assert(ref_case_same(&cut.at.o, &s.at.o));
        ck_assert(ref_case_same(&cut.at.lse, &s.at.lse));
        ck_assert(ref_case_same(&cut.dat.q, &s.dat.q));
        ck_assert(ref_case_same(&cut.dat.k, &s.dat.k));
        ck_assert(ref_case_same(&cut.dat.v, &s.dat.v));
    }
    ref_case_end(&c);
}
END_TEST

START_TEST(sequences_by_themselves_keep_bits)
{
    static const struct sizes z = {3, 21, 2, 1, 4};
    struct ref_case c;
    struct scene s;
    struct attention one;
    struct tensor o;

    ref_case_begin(&c);
    make(&c, &s, ref_case_device(&c, &ref_backend, 2), &z, DT_F32);
    OK(op_attention_forward(s.dev, &s.at));
    o = ref_case_tensor(&c, DT_F32, 3 * 21, 8, 0);
    for (int64_t b = 0; b < 3; b++) {
        one = s.at;
        one.batch = 1;
        one.q = tensor_rows(&s.at.q, b * 21, 21, 1);
        one.k = tensor_rows(&s.at.k, b * 21, 21, 1);
        one.v = tensor_rows(&s.at.v, b * 21, 21, 1);
        one.lse = tensor_rows(&s.at.lse, b * 21, 21, 1);
        one.o = tensor_rows(&o, b * 21, 21, 1);
        OK(op_attention_forward(s.dev, &one));
    }
    ck_assert(ref_case_same(&o, &s.at.o));
    ref_case_end(&c);
}
END_TEST

/* Positions fed in pieces of 1 and of several, against a cache with room to spare. */
START_TEST(cache_gives_the_same_outputs)
{
    static const struct sizes z = {2, 12, 4, 2, 6};
    struct ref_case c;
    struct scene s;
    struct attention step;
    int64_t room = 17, width = _i ? 5 : 1;
    struct tensor k, v, o;

    ref_case_begin(&c);
    make(&c, &s, ref_case_device(&c, &ref64_backend, 1), &z, DT_F64);
    OK(op_attention_forward(s.dev, &s.at));
    k = ref_case_tensor(&c, DT_F64, 2 * room, 12, 0);
    v = ref_case_tensor(&c, DT_F64, 2 * room, 12, 0);
    for (int64_t b = 0; b < 2; b++)
        for (int64_t i = 0; i < 12 * 12; i++) {
            int64_t row = i / 12, col = i % 12;

            ref_case_put(&k, b * room + row, col, ref_case_get(&s.at.k, b * 12 + row, col));
            ref_case_put(&v, b * room + row, col, ref_case_get(&s.at.v, b * 12 + row, col));
        }
    for (int64_t b = 0; b < 2; b++)
        for (int64_t p = 0; p < 12; p += width) {
            step = s.at;
            step.batch = 1;
            step.seq = 12 - p < width ? 12 - p : width;
            step.pos0 = p;
            step.kv_rows = room;
            step.q = tensor_rows(&s.at.q, b * 12 + p, step.seq, 1);
            step.k = tensor_rows(&k, b * room, room, 1);
            step.v = tensor_rows(&v, b * room, room, 1);
            step.lse = ref_case_tensor(&c, DT_F64, step.seq, 4, 0);
            step.o = ref_case_tensor(&c, DT_F64, step.seq, 24, 0);
            OK(op_attention_forward(s.dev, &step));
            o = tensor_rows(&s.at.o, b * 12 + p, step.seq, 1);
            ck_assert_double_le(ref_case_error(&step.o, &o), 1e-14);
        }
    ref_case_end(&c);
}
END_TEST

START_TEST(nan_is_not_hidden)
{
    static const struct sizes z = {1, 6, 1, 1, 4};
    struct ref_case c;
    struct scene s;

    ref_case_begin(&c);
    make(&c, &s, ref_case_device(&c, &ref_backend, 1), &z, DT_F32);
    ref_case_put(&s.at.k, 3, 1, NAN);
    OK(op_attention_forward(s.dev, &s.at));
    ck_assert(!isnan(ref_case_get(&s.at.o, 2, 0)));
    for (int64_t i = 3; i < 6; i++) {
        ck_assert(isnan(ref_case_get(&s.at.o, i, 0)));
        ck_assert(isnan(ref_case_get(&s.at.lse, i, 0)));
    }
    ref_case_end(&c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ref attention");
    TCase *tc = tcase_create("all");

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(tc, attention_is_its_definition, 0, CASES);
    tcase_add_loop_test(tc, backward_agrees_with_differences, 0, CASES);
    tcase_add_loop_test(tc, backward_agrees_with_float64, 0, CASES);
    tcase_add_test(tc, heads_and_threads_keep_bits);
    tcase_add_test(tc, sequences_by_themselves_keep_bits);
    tcase_add_loop_test(tc, cache_gives_the_same_outputs, 0, 2);
    tcase_add_test(tc, nan_is_not_hidden);
    suite_add_tcase(suite, tc);
    return check_unit(suite);
}
