/* Reported faults, rows N01, N03, N08, N18, N24, N33, L02, L14: what a layout must not change.
 * ranks: 4 8
 *
 * "Equal" is bit by bit: loss, gradient norm, hash of the weights. See tests/CASES.md. */
#include "tests/mpi/check_job.h"
#include "tests/unit/tiny_run.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#undef fail /* an old name of check.h; here common/base/status.h's is meant */
#define OK(expr)         TINY_OK(job, expr)
#define CHECK(cond, ...) TINY_CHECK(job, cond, __VA_ARGS__)
#define CHECK_TRUE(cond) TINY_CHECK(job, cond, "%s", #cond)

enum { STEPS = 2 };

static struct host *job;
static int rank, size;

struct trace { /* of a run of STEPS steps */
    uint64_t start, hash[STEPS];
    double loss[STEPS], norm[STEPS];
};

static void set_up(void)
{
    tiny_run_begin(job);
}

/* Trains in a layout. Rank 0 of the job takes part in each of them. */
static struct trace trace_of(const char *const *shape, const char *const *changes,
                             struct tiny_layout layout, enum tiny_mask mask)
{
    struct tiny_run r;
    struct trace t = {0};

    if (tiny_run_open(&r, job, shape, changes, layout)) {
        t.start = tiny_run_hash(&r);
        for (int i = 0; i < STEPS; i++) {
            struct step_result result = tiny_run_train(&r, i + 1, mask);

            t.loss[i] = result.loss;
            t.norm[i] = result.grad_norm;
            t.hash[i] = tiny_run_hash(&r);
        }
    }
    tiny_run_close(&r);
    OK(host_barrier(job));
    return t;
}

static void check_equal(const struct trace *a, const struct trace *b, const char *name,
                        struct tiny_layout l)
{
    if (rank != 0)
        return;
    CHECK(a->start == b->start, "%s: tp %d dp %d: other start values", name, l.tp, l.dp);
    for (int i = 0; i < STEPS; i++) {
        CHECK(isfinite(a->loss[i]) && a->loss[i] > 0, "%s: loss %g", name, a->loss[i]);
        CHECK(a->loss[i] == b->loss[i] && a->norm[i] == b->norm[i],
              "%s: tp %d dp %d micro %d, step %d: loss %a norm %a, not %a %a", name, l.tp, l.dp,
              l.micro, i + 1, b->loss[i], b->norm[i], a->loss[i], a->norm[i]);
        CHECK(a->hash[i] == b->hash[i], "%s: tp %d dp %d micro %d, step %d: other weights", name,
              l.tp, l.dp, l.micro, i + 1);
    }
    CHECK(a->loss[0] != a->loss[1] && a->hash[0] != a->hash[1] && a->hash[0] != a->start,
          "%s: nothing was learnt", name);
}

static void same_in(const char *const *shape, const char *const *changes, const char *name,
                    const struct tiny_layout *layouts, enum tiny_mask mask)
{
    struct trace one = trace_of(shape, changes, (struct tiny_layout){1, 1, 0}, mask);

    for (; layouts->tp; layouts++)
        if (layouts->tp * layouts->dp <= size) {
            struct trace other = trace_of(shape, changes, *layouts, mask);

            check_equal(&one, &other, name, *layouts);
        }
}

/* N08: start values or sums that depend on the layout, with one seed and deterministic sums. */
START_TEST(n08_tensor_parallelism_changes_nothing)
{
    static const struct tiny_layout layouts[] = {{2, 1, 0}, {4, 1, 0}, {2, 2, 0}, {0, 0, 0}};

    same_in(tiny_t4, tiny_forms[_i].changes, tiny_forms[_i].name, layouts, TINY_ALL);
}
END_TEST

/* N08 on T itself: 2 heads of keys and values, which serve 2 heads each. */
START_TEST(n08_with_grouped_queries)
{
    static const struct tiny_layout layouts[] = {{2, 1, 0}, {2, 2, 2}, {0, 0, 0}};

    same_in(tiny_t, tiny_forms[_i].changes, tiny_forms[_i].name, layouts, TINY_ALL);
}
END_TEST

START_TEST(n08_on_eight_ranks)
{
    static const struct tiny_layout layouts[] = {{8, 1, 0}, {4, 2, 2}, {1, 8, 0}, {0, 0, 0}};

    same_in(tiny_t8, tiny_forms[_i].changes, tiny_forms[_i].name, layouts, TINY_ALL);
}
END_TEST

/* N33: the sum over ranks falls away or comes twice when a rank accumulates micro-batches. */
START_TEST(n33_accumulation_with_replicas)
{
    static const struct tiny_layout layouts[] = {{1, 1, 1}, {1, 2, 1}, {1, 2, 2}, {1, 4, 1},
                                                 {2, 2, 1}, {1, 4, 2}, {0, 0, 0}};

    same_in(tiny_t4, tiny_forms[_i].changes, tiny_forms[_i].name, layouts, TINY_ALL);
}
END_TEST

/* N01: each rank averages over its own valid targets, then ranks are averaged. */
START_TEST(n01_unequal_numbers_of_targets)
{
    static const struct tiny_layout layouts[] = {
        {1, 2, 0}, {1, 4, 1}, {2, 2, 2}, {1, 1, 1}, {0, 0, 0}};

    same_in(tiny_t4, tiny_forms[_i].changes, tiny_forms[_i].name, layouts, TINY_SHORT);
}
END_TEST

/* N01: and the mean is the one over all valid targets, from each sample's sum; the mean of means
 * is another number here. */
START_TEST(n01_mean_over_all_targets)
{
    struct tiny_run r;
    struct step_result result;
    double sum = 0, halves[2] = {0, 0}, of_means;

    if (tiny_run_open(&r, job, tiny_t, tiny_forms[_i].changes, (struct tiny_layout){1, 2, 0})) {
        result = tiny_run_train(&r, 1, TINY_SHORT);
        for (int64_t i = 0; i < 8; i++) {
            sum += r.step.sample_loss[i];
            halves[i / 4] += r.step.sample_loss[i];
        }
        of_means = (halves[0] / 128 + halves[1] / 12) / 2;
        CHECK_TRUE(result.valid == 140);
        CHECK(fabs(result.loss - sum / 140) <= 1e-12 * sum, "%a, not %a", result.loss, sum / 140);
        CHECK(fabs(result.loss - of_means) > 1e-4, "the test cannot tell the two apart");
    }
    tiny_run_close(&r);
    OK(host_barrier(job));
}
END_TEST

/* N03: a validation that is divided by the number of accumulation steps. */
START_TEST(n03_validation_knows_no_accumulation)
{
    double loss[4] = {0};
    static const struct tiny_layout layouts[] = {{1, 1, 0}, {1, 1, 2}, {1, 2, 1}, {2, 2, 2}};

    for (int i = 0; i < 4; i++) {
        struct tiny_run r;

        if (tiny_run_open(&r, job, tiny_t, tiny_forms[_i].changes, layouts[i])) {
            tiny_run_batch(&r, 1, TINY_ALL);
            OK(step_evaluate(&r.step, r.tokens, r.targets, &loss[i]));
        }
        tiny_run_close(&r);
        OK(host_barrier(job));
        CHECK_TRUE(rank != 0 || (isfinite(loss[i]) && loss[i] > 0 && loss[i] == loss[0]));
    }
}
END_TEST

/* Loss of each token of the global batch, from the rank that has tp_rank 0 of each replica. */
static void token_losses(double out[8 * 32], const struct tiny_layout layout, int form)
{
    struct tiny_run r;

    for (int i = 0; i < 8 * 32; i++)
        out[i] = NAN;
    if (tiny_run_open(&r, job, tiny_t4, tiny_forms[form].changes, layout)) {
        double sum, *values;

        tiny_run_batch(&r, 1, TINY_ALL);
        OK(step_evaluate(&r.step, r.tokens, r.targets, &sum));
        values = tiny_run_values(&r, &r.step.loss);
        for (int64_t i = 0; i < (r.step.end - r.step.begin) * 32; i++)
            out[r.step.begin * 32 + i] = values[i];
        free(values);
    }
    tiny_run_close(&r);
    OK(host_barrier(job));
}

/* N24: rotary angles from the wrong place of the table: the loss of every single position is that
 * of one rank, in each sequence. */
START_TEST(n24_every_position_as_on_one_rank)
{
    static const struct tiny_layout layouts[] = {{2, 1, 0}, {4, 1, 2}, {1, 2, 2}};
    double one[8 * 32], other[8 * 32];

    token_losses(one, (struct tiny_layout){1, 1, 0}, _i);
    for (int k = 0; k < 3; k++) {
        token_losses(other, layouts[k], _i);
        for (int i = 0; rank == 0 && i < (layouts[k].dp == 2 ? 4 * 32 : 8 * 32); i++)
            CHECK(one[i] == other[i], "%s: position %d of sample %d", tiny_forms[_i].name, i % 32,
                  i / 32);
    }
}
END_TEST

/* N24: positions begin anew with each sequence, wherever it stands in a micro-batch; and they
 * matter: a token after the same two tokens in the other order has another loss. */
START_TEST(n24_positions_of_a_sequence)
{
    struct tiny_run r;

    if (tiny_run_open(&r, job, tiny_t4, tiny_forms[_i].changes, (struct tiny_layout){1, 1, 0})) {
        double sum, *values;

        tiny_run_batch(&r, 1, TINY_ALL);
        for (int i = 1; i < 8; i++) {
            memcpy(r.tokens + i * 32, r.tokens, 32 * sizeof *r.tokens);
            memcpy(r.targets + i * 32, r.targets, 32 * sizeof *r.targets);
        }
        r.tokens[7 * 32] = r.tokens[1];
        r.tokens[7 * 32 + 1] = r.tokens[0];
        OK(step_evaluate(&r.step, r.tokens, r.targets, &sum));
        values = tiny_run_values(&r, &r.step.loss);
        for (int i = 32; i < 7 * 32; i++)
            CHECK(values[i] == values[i % 32], "position %d of sample %d", i % 32, i / 32);
        CHECK_TRUE(values[7 * 32 + 2] != values[2] && values[7 * 32 + 31] != values[31]);
        free(values);
    }
    tiny_run_close(&r);
    OK(host_barrier(job));
}
END_TEST

/* Checks that padded rows of the head's gradient are zero, and fills those of its weights; returns
 * their number on this rank. */
static int64_t fill_padding(struct tiny_run *r, struct param *head)
{
    struct params *p = &r->step.model.params;
    int64_t rows, cols, row0, col0, padded = 0;
    double *g = tiny_run_values(r, &head->g), *w = tiny_run_values(r, param_value(head));

    param_shard(p, head, &rows, &cols, &row0, &col0);
    for (int64_t i = 0; i < rows * cols; i++) {
        int64_t row = row0 + i / cols;

        CHECK(row < 259 || g[i] == 0, "gradient %g of padded row %lld", g[i], (long long)row);
        padded += row >= 259;
        ((float *)(void *)w)[i] = row < 259 ? (float)w[i] : 100; /* the wide type, in place */
    }
    OK(param_set(p, head, r->at.dev, w));
    free(g);
    free(w);
    return padded;
}

/* Loss sums of one batch, before and after the padding is filled. */
static void padded_losses(double sum[2], struct tiny_layout layout, int form)
{
    struct tiny_run r;

    sum[0] = sum[1] = 0;
    if (tiny_run_open(&r, job, tiny_t4, tiny_forms[form].changes, layout)) {
        const char *name = r.cfg.model.tied ? "model.embed_tokens.weight" : "lm_head.weight";
        struct param *head = params_find(&r.step.model.params, name);
        int64_t found = 0;

        CHECK_TRUE(head && head->rows > 259 && head->real_rows == 259);
        tiny_run_batch(&r, 1, TINY_ALL);
        for (int pass = 0; pass < 2; pass++) {
            OK(step_gradients(&r.step, r.tokens, r.targets, r.valid, &sum[pass]));
            found += fill_padding(&r, head);
        }
        OK(host_sum_i64(r.at.tp_host, &found, 1));
        CHECK(found > 0, "nothing is padded");
    }
    tiny_run_close(&r);
    OK(host_barrier(job));
}

/* N18: a vocabulary that no number of ranks divides: padded columns of the logits take part in the
 * softmax, or get gradients. Whatever stands in their weights changes no loss. */
START_TEST(n18_padding_of_the_vocabulary)
{
    static const struct tiny_layout layouts[] = {{1, 1, 0}, {2, 1, 0}, {4, 1, 2}};
    double sum[2], first = 0;

    for (int k = 0; k < 3; k++) {
        padded_losses(sum, layouts[k], _i);
        first = k ? first : sum[0];
        CHECK(sum[0] == sum[1], "%s: %a with other padding, not %a", tiny_forms[_i].name, sum[1],
              sum[0]);
        CHECK(rank != 0 || (sum[0] > 0 && sum[0] == first), "%s: %a on %d ranks, not %a",
              tiny_forms[_i].name, sum[0], layouts[k].tp, first);
    }
}
END_TEST

/* L02: a dimension of size 1 that disappears. */
START_TEST(l02_sizes_of_one)
{
    static const char *const sizes[][8] = {
        {"train.batch=1"},
        {"model.layers=1"},
        {"model.heads=1", "model.kv_heads=1"},
        {"model.kv_heads=1"},
        {"model.rank=1"},
        {"model.ffn=1"},
        {"train.seq=2"},
        {"model.width=2", "model.heads=1", "model.kv_heads=1", "model.ffn=1", "model.rank=1",
         "model.layers=1", "train.batch=1"},
    };

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *changes[16] = {NULL};
        struct trace t;
        int n = 0;

        for (int j = 0; tiny_forms[_i].changes[j]; j++)
            changes[n++] = tiny_forms[_i].changes[j];
        for (int j = 0; sizes[i][j]; j++)
            changes[n++] = sizes[i][j];
        t = trace_of(tiny_t, changes, (struct tiny_layout){1, 1, 0}, TINY_ALL);
        check_equal(&t, &t, sizes[i][0], (struct tiny_layout){1, 1, 0});
    }
}
END_TEST

/* L14: three replicas, of which none has a share like another's: works, as one rank within
 * rounding, where layout_exact is off (and is refused elsewhere: tests/cli/bad_layout.sh). */
START_TEST(l14_three_replicas)
{
    const char *changes[16] = {"parallel.layout_exact=off", "train.batch=9"};
    struct trace one, three;

    for (int j = 0; tiny_forms[_i].changes[j]; j++)
        changes[2 + j] = tiny_forms[_i].changes[j];
    one = trace_of(tiny_t, changes, (struct tiny_layout){1, 1, 0}, TINY_ALL);
    three = trace_of(tiny_t, changes, (struct tiny_layout){1, 3, 0}, TINY_ALL);
    CHECK_TRUE(rank != 0 || one.start == three.start);
    for (int i = 0; rank == 0 && i < STEPS; i++) {
        CHECK_TRUE(one.loss[i] > 0 && fabs(one.loss[i] - three.loss[i]) < 1e-5 * one.loss[i]);
        CHECK_TRUE(one.norm[i] > 0 && fabs(one.norm[i] - three.norm[i]) < 1e-4 * one.norm[i]);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("layout");
    TCase *tc = tcase_create("layout");
    int forms = 0;

    while (tiny_forms[forms].name)
        forms++;
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_set_timeout(tc, 0);
    suite_add_tcase(s, tc);
    if (size == 8) {
        tcase_add_loop_test(tc, n08_on_eight_ranks, 0, forms);
        return s;
    }
    tcase_add_loop_test(tc, n01_unequal_numbers_of_targets, 0, forms);
    tcase_add_loop_test(tc, n01_mean_over_all_targets, 0, forms);
    tcase_add_loop_test(tc, n03_validation_knows_no_accumulation, 0, forms);
    tcase_add_loop_test(tc, n08_tensor_parallelism_changes_nothing, 0, forms);
    tcase_add_loop_test(tc, n08_with_grouped_queries, 0, forms);
    tcase_add_loop_test(tc, n18_padding_of_the_vocabulary, 0, forms);
    tcase_add_loop_test(tc, n24_every_position_as_on_one_rank, 0, forms);
    tcase_add_loop_test(tc, n24_positions_of_a_sequence, 0, forms);
    tcase_add_loop_test(tc, n33_accumulation_with_replicas, 0, forms);
    tcase_add_loop_test(tc, l02_sizes_of_one, 0, forms);
    tcase_add_loop_test(tc, l14_three_replicas, 0, forms);
    return s;
}

int main(int argc, char **argv)
{
    if (host_start(&job, &argc, &argv) != ST_OK)
        return 1;
    rank = host_rank(job);
    size = host_size(job);
    return check_job(job, suite());
}
