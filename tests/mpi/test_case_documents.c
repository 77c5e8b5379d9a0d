/* data.reset_documents: rows of two documents against each document as a sequence of its own.
 * ranks: 1 4
 *
 * The loss of every token has the same bits. Gradients are summed over other samples, so that they
 * agree within rounding, and agree bit by bit between layouts. */
#include "tests/mpi/check_job.h"
#include "tests/unit/tiny_run.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#undef fail /* an old name of check.h; here common/base/status.h's is meant */
#define OK(expr)         TINY_OK(job, expr)
#define CHECK(cond, ...) TINY_CHECK(job, cond, __VA_ARGS__)

enum { SEQ = 32, HALF = 16, TOKENS = 8 * SEQ };

static struct host *job;

static void set_up(void)
{
    tiny_run_begin(job);
}

/* What a step makes of the batch: the loss of each token (of this rank's), norm and hash. */
struct seen {
    float loss[TOKENS];
    double norm;
    uint64_t hash;
};

/* Appends to the changes of a form. */
static void join(const char *out[10], const struct tiny_form *form, const char *const *more)
{
    int n = 0;

    for (int i = 0; form->changes[i]; i++)
        out[n++] = form->changes[i];
    for (int i = 0; more[i]; i++)
        out[n++] = more[i];
    out[n] = NULL;
}

/* One step on the same 256 tokens and targets, however they fall into sequences. Documents have 16
 * tokens; uneven: a border at another place in each row of 32. Every rank of the layout ends with
 * the tokens' losses of its own samples. */
static int take_step(struct seen *seen, const struct tiny_form *form, const char *const *more,
                     struct tiny_layout layout, int uneven)
{
    const char *changes[10];
    struct tiny_run r;
    struct step_result result;
    int32_t starts[TOKENS];
    int64_t border;
    int takes_part;

    join(changes, form, more);
    takes_part = tiny_run_open(&r, job, tiny_t4, changes, layout);
    if (takes_part) {
        int64_t first = r.step.begin * r.cfg.train.seq, n = r.step.tokens.rows;

        for (int64_t i = 0; i < n; i++) {
            r.tokens[i] = tiny_run_token(3, 0, first + i);
            r.targets[i] = tiny_run_token(3, 0, first + i + 1);
            border = uneven ? 3 + 4 * ((first + i) / SEQ % 8) : HALF;
            starts[i] = i % SEQ < border ? 0 : (int32_t)border;
        }
        if (r.cfg.data.reset_documents)
            OK(step_documents(&r.step, starts));
        OK(step_train(&r.step, r.tokens, r.targets, TOKENS, 1, 1e-3, &result));
        memcpy(seen->loss, r.step.host_loss, (size_t)n * sizeof(float));
        seen->norm = result.grad_norm;
        seen->hash = tiny_run_hash(&r);
    }
    tiny_run_close(&r);
    OK(host_barrier(job));
    return takes_part;
}

static const char *const packed[] = {"data.reset_documents=on", NULL};
static const char *const mixed[] = {NULL};
static const char *const apart[] = {"train.seq=16", "train.batch=16", NULL};

static const char *const recomputed[] = {"data.reset_documents=on", "parallel.recompute=block",
                                         NULL};

static int recomputes(const struct tiny_form *form)
{
    int found = 0;

    for (int i = 0; form->changes[i]; i++)
        found |= !strncmp(form->changes[i], "parallel.recompute", 18);
    return found;
}

START_TEST(documents_are_sequences)
{
    const struct tiny_form *form = &tiny_forms[_i];
    struct seen a, b, c;

    if (!take_step(&a, form, packed, (struct tiny_layout){1, 1, 0}, 0))
        return;
    (void)take_step(&b, form, apart, (struct tiny_layout){1, 1, 0}, 0);
    (void)take_step(&c, form, mixed, (struct tiny_layout){1, 1, 0}, 0);
    CHECK(!memcmp(a.loss, b.loss, sizeof a.loss), "%s: the loss of a token differs", form->name);
    CHECK(fabs(a.norm - b.norm) < 1e-5 * b.norm, "%s: norms %a and %a", form->name, a.norm, b.norm);
    CHECK(memcmp(a.loss, c.loss, sizeof a.loss) != 0 && a.norm != c.norm,
          "%s: documents that see each other have the same loss", form->name);
    (void)take_step(&b, form, recomputes(form) ? packed : recomputed, (struct tiny_layout){1, 1, 2},
                    1);
    (void)take_step(&a, form, packed, (struct tiny_layout){1, 1, 0}, 1);
    CHECK(!memcmp(a.loss, b.loss, sizeof a.loss) && a.norm == b.norm && a.hash == b.hash,
          "%s: recomputed, in micro-batches", form->name);
}
END_TEST

START_TEST(every_layout)
{
    static const struct tiny_layout layouts[] = {{2, 1, 0}, {1, 4, 1}, {2, 2, 2}, {4, 1, 4}};
    const struct tiny_form *form = &tiny_forms[_i];
    struct seen a, b;

    (void)take_step(&a, form, packed, (struct tiny_layout){1, 1, 0}, 1);
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        if (!take_step(&b, form, packed, layouts[i], 1) || host_rank(job) != 0)
            continue;
        CHECK(a.norm == b.norm && a.hash == b.hash, "%s: tp %d dp %d differs", form->name,
              layouts[i].tp, layouts[i].dp);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("case_documents");
    TCase *tc = tcase_create("documents");
    int forms = 0;

    while (tiny_forms[forms].name)
        forms++;
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_set_timeout(tc, 0);
    suite_add_tcase(s, tc);
    if (host_size(job) == 1)
        tcase_add_loop_test(tc, documents_are_sequences, 0, forms);
    else
        tcase_add_loop_test(tc, every_layout, 0, forms);
    return s;
}

int main(int argc, char **argv)
{
    if (host_start(&job, &argc, &argv) != ST_OK)
        return 1;
    return check_job(job, suite());
}
