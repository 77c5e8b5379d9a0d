/* Layouts in numbers that are no power of two (parallel.layout_exact off): tensor parallelism that
 * does not divide the grains of the exact layouts, three replicas, and both within a pipeline.
 * ranks: 3 6
 *
 * They train the model that one exact rank trains, within rounding; and among themselves they have
 * equal bits wherever grains and shares of samples are equal. See tests/CASES.md, L14. */
#include "tests/mpi/check_job.h"
#include "tests/unit/tiny_run.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef fail
#define OK(expr)         TINY_OK(job, expr)
#define CHECK(cond, ...) TINY_CHECK(job, cond, __VA_ARGS__)

enum { STEPS = 2, WORDS = 20 };

static struct host *job;
static int rank, size;

/* T that 6 ranks may cut: exact layouts have 2 grains of it. */
static const char *const t6[] = {"model.layers=3",
                                 "model.width=48",
                                 "model.heads=6",
                                 "model.kv_heads=6",
                                 "model.ffn=96",
                                 "model.rank=12",
                                 "train.seq=16",
                                 "train.batch=9",
                                 "train.seed=1",
                                 "train.steps=20",
                                 NULL};

struct trace {
    uint64_t hash[STEPS];
    double loss[STEPS], norm[STEPS], evaluation;
};

struct layout {
    struct tiny_layout at;
    int pp;
    const char *words;
};

static void set_up(void)
{
    tiny_run_begin(job);
}

/* A form and the words of a layout; its recomputation, which not every order allows, left out. */
static struct trace trace_of(const char *const *form, const char *more, struct layout l)
{
    const char *word[WORDS];
    char text[256];
    struct tiny_run r;
    struct trace t = {0};
    int n = 0;

    for (int i = 0; form[i]; i++)
        if (strncmp(form[i], "parallel.recompute", 18) != 0)
            word[n++] = form[i];
    snprintf(text, sizeof text, "parallel.pp=%d %s %s", l.pp, l.words, more);
    for (char *at = strtok(text, " "); at; at = strtok(NULL, " "))
        word[n++] = at;
    word[n] = NULL;
    if (tiny_run_open(&r, job, t6, word, l.at)) {
        for (int i = 0; i < STEPS; i++) {
            struct step_result result = tiny_run_train(&r, i + 1, TINY_SHORT);

            t.loss[i] = result.loss;
            t.norm[i] = result.grad_norm;
            t.hash[i] = tiny_run_hash(&r);
        }
        OK(step_evaluate(&r.step, r.tokens, r.targets, &t.evaluation));
    }
    tiny_run_close(&r);
    OK(host_barrier(job));
    return t;
}

/* Layout k is tried with every second form, on the job of its size. */
static int tried(const struct layout *l, size_t k, int form)
{
    int ranks = l->at.tp * l->at.dp * l->pp;

    return ranks == size && k % 2 == (size_t)form % 2;
}

static const struct layout one = {{1, 1, 0}, 1, ""};
static const char *const off = "parallel.layout_exact=off";

static int near(double a, double b, double bound)
{
    return isfinite(a) && a > 0 && fabs(a - b) < bound * a;
}

/* The exact rank's losses and norms, and its weights as an evaluation sees them. */
START_TEST(uneven_layouts_train_the_same_model)
{
    static const struct layout uneven[] = {
        {{3, 1, 0}, 1, ""},
        {{3, 1, 3}, 1, "parallel.grains=8"},
        {{1, 3, 1}, 1, "parallel.zero=1"},
        {{1, 1, 3}, 3, ""},
        {{6, 1, 3}, 1, ""},
        {{2, 3, 0}, 1, "parallel.zero=1 parallel.bucket=0"},
        {{3, 1, 1}, 2, "parallel.schedule=zb-h1"},
        {{1, 3, 1}, 2, "parallel.zero=1"},
        {{2, 1, 3}, 3, "parallel.schedule=gpipe parallel.stage_layers=1,1,1"},
    };
    const struct tiny_form *f = &tiny_forms[_i];
    struct trace exact = trace_of(f->changes, "", one);

    for (size_t k = 0; k < sizeof uneven / sizeof *uneven; k++) {
        struct trace t;

        if (!tried(&uneven[k], k, _i))
            continue;
        t = trace_of(f->changes, off, uneven[k]);
        for (int i = 0; rank == 0 && i < STEPS; i++)
            CHECK(near(exact.loss[i], t.loss[i], 1e-5) && near(exact.norm[i], t.norm[i], 1e-4),
                  "%s, tp %d dp %d pp %d %s, step %d: loss %g norm %g, not %g %g", f->name,
                  uneven[k].at.tp, uneven[k].at.dp, uneven[k].pp, uneven[k].words, i + 1, t.loss[i],
                  t.norm[i], exact.loss[i], exact.norm[i]);
        CHECK(rank > 0 || near(exact.evaluation, t.evaluation, 1e-5), "%s: evaluation %g, not %g",
              f->name, t.evaluation, exact.evaluation);
    }
}
END_TEST

/* Three pieces on one rank or three, six on one or six: the pieces decide about bits, not who holds
 * them; and no stage, order or shard changes any. */
START_TEST(equal_grains_have_equal_bits)
{
    static const struct {
        struct layout a, b;
    } pairs[] = {
        {{{3, 1, 3}, 1, ""}, {{1, 1, 3}, 1, "parallel.grains=3"}},
        {{{1, 3, 1}, 1, "parallel.zero=1 parallel.bucket=0"}, {{1, 3, 1}, 1, ""}},
        {{{6, 1, 0}, 1, ""}, {{1, 1, 0}, 1, "parallel.grains=6"}},
        {{{3, 1, 3}, 2, ""}, {{3, 1, 3}, 1, ""}},
        {{{1, 3, 1}, 2, "parallel.schedule=zb-h1"}, {{1, 3, 1}, 1, "parallel.zero=1"}},
        {{{2, 3, 1}, 1, "parallel.zero=1"}, {{2, 3, 1}, 1, "parallel.bucket=0"}},
    };

    for (size_t k = 0; k < sizeof pairs / sizeof *pairs; k++) {
        struct trace a, b;

        if (!tried(&pairs[k].a, k, _i))
            continue;
        a = trace_of(tiny_forms[_i].changes, off, pairs[k].a);
        b = trace_of(tiny_forms[_i].changes, off, pairs[k].b);
        for (int i = 0; rank == 0 && i < STEPS; i++)
            CHECK(a.hash[i] == b.hash[i] && a.loss[i] == b.loss[i] && a.norm[i] == b.norm[i],
                  "%s, pair %d, step %d: loss %a norm %a, not %a %a", tiny_forms[_i].name, (int)k,
                  i + 1, a.loss[i], a.norm[i], b.loss[i], b.norm[i]);
        CHECK(rank > 0 || (a.hash[0] && a.hash[0] != a.hash[1]), "nothing was learnt");
    }
}
END_TEST

static Suite *make_suite(void)
{
    Suite *s = suite_create("uneven layouts");
    TCase *tc = tcase_create("all");
    int forms = 0;

    while (tiny_forms[forms].name)
        forms++;
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_add_loop_test(tc, uneven_layouts_train_the_same_model, 0, forms);
    tcase_add_loop_test(tc, equal_grains_have_equal_bits, 0, forms);
    suite_add_tcase(s, tc);
    return s;
}

int main(int argc, char **argv)
{
    if (host_start(&job, &argc, &argv) != ST_OK)
        return EXIT_FAILURE;
    rank = host_rank(job);
    size = host_size(job);
    return check_job(job, make_suite());
}
