/* What runs beside the messages of tensor parallelism changes no bit, and what is not to run beside
 * them does not.
 * ranks: 2 4 */
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

enum { STEPS = 3 };

static struct host *job;
static int size;

static void set_up(void)
{
    tiny_run_begin(job);
}

/* What a run left: bits, and what the forward of a step sent. */
struct outcome {
    uint64_t hash;
    double loss, norm;
    struct ledger_row forward;
};

static struct outcome run(const struct tiny_form *form, const char *more, const char *overlap,
                          struct tiny_layout layout)
{
    const char *words[10] = {"train.batch=6", overlap, more};
    struct outcome out = {0};
    struct tiny_run r;
    int n = 3;

    for (int i = 0; form->changes[i]; i++) /* a key may be given once: `more` has the mode */
        if (strncmp(form->changes[i], "parallel.recompute", 18))
            words[n++] = form->changes[i];
    if (tiny_run_open(&r, job, tiny_t4, words, layout)) {
        for (int t = 1; t <= STEPS; t++) {
            struct step_result result;

            ledger_clear(&r.ledger);
            result = tiny_run_train(&r, t, TINY_ALL);
            out.loss = result.loss;
            out.norm = result.grad_norm;
        }
        out.hash = tiny_run_hash(&r);
        out.forward = ledger_sum(&r.ledger, LEDGER_TP_FORWARD, LEDGER_TP_FORWARD);
    }
    tiny_run_close(&r);
    return out;
}

static const char *const modes[] = {"parallel.recompute=none", "parallel.recompute=elementwise",
                                    "parallel.recompute=block"};

/* Micro-batches of 3 sequences go as 2 and 1; with all ranks in one group, and with two replicas.
 * The forward's messages are twice as many then, and as large in all. */
START_TEST(same_bits)
{
    const struct tiny_form *form = &tiny_forms[_i];
    struct tiny_layout layout = {size == 4 && _i % 2 ? 2 : size, size == 4 && _i % 2 ? 2 : 1, 3};
    const char *mode = modes[_i % 3];
    struct outcome one = run(form, mode, "parallel.overlap=backward", layout);
    struct outcome off = run(form, mode, "parallel.overlap=off", layout);
    struct outcome all = run(form, mode, "parallel.overlap=all", layout);

    CHECK(off.hash == one.hash && off.loss == one.loss && off.norm == one.norm, "%s, %s: off",
          form->name, mode);
    CHECK(all.hash == one.hash && all.loss == one.loss && all.norm == one.norm, "%s, %s: all",
          form->name, mode);
    CHECK(one.forward.calls > 0 && all.forward.calls == 2 * one.forward.calls,
          "%s: %lld messages, %lld in halves", form->name, (long long)one.forward.calls,
          (long long)all.forward.calls);
    CHECK(all.forward.elements == one.forward.elements, "%s: elements", form->name);
}
END_TEST

/* A stage of a pipeline forwards its micro-batches so, too. */
START_TEST(same_bits_in_a_pipeline)
{
    static const char *const orders[] = {"parallel.schedule=1f1b", "parallel.schedule=zb-h1",
                                         "parallel.schedule=gpipe"};
    const char *words[] = {"train.batch=6", "parallel.pp=2", orders[_i], NULL, NULL};
    double loss[2] = {0};
    uint64_t hash[2] = {0};

    if (size < 4)
        return;
    for (int k = 0; k < 2; k++) {
        struct tiny_run r;

        words[3] = k ? "parallel.overlap=all" : NULL;
        if (tiny_run_open(&r, job, tiny_t4, words, (struct tiny_layout){2, 1, 2})) {
            for (int t = 1; t <= STEPS; t++)
                loss[k] = tiny_run_train(&r, t, TINY_SHORT).loss;
            hash[k] = tiny_run_hash(&r);
        }
        tiny_run_close(&r);
    }
    CHECK(hash[0] == hash[1] && loss[0] == loss[1], "%s", orders[_i]);
}
END_TEST

/* overlap: off waits where a message begins; else its tensors are NaN until the wait. */
START_TEST(exposed_is_waited_for)
{
    struct ledger ledger = {0};
    struct device_options opt = {.threads = 1};
    struct tp_env env = {.ledger = &ledger};
    float value = 1.0F, parts[4] = {1, 1, 1, 1}, mine = 0.0F;
    struct tensor t = tensor_view(&value, DT_F32, 1, 1);
    struct tensor in = tensor_view(parts, DT_F32, size, 1), out = tensor_view(&mine, DT_F32, 1, 1);

    OK(device_open(&env.dev, &ref_backend, &opt));
    OK(comm_create(&env.tp, env.dev, job, &ledger));
    OK(reduce_begin(&env, &t, 1, LEDGER_TP_FORWARD));
    CHECK(isnan(value), "a message that flies");
    OK(comm_wait(env.tp));
    CHECK(value == (float)size, "%g", (double)value);
    env.exposed = 1;
    OK(reduce_begin(&env, &t, 1, LEDGER_TP_FORWARD));
    CHECK(value == (float)(size * size), "%g", (double)value);
    OK(scatter_begin(&env, &out, &in, LEDGER_TP_FORWARD));
    CHECK(mine == (float)size, "%g", (double)mine);
    OK(comm_wait(env.tp)); /* nothing is left */
    comm_destroy(env.tp);
    device_close(env.dev);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *s = suite_create("overlap");
    TCase *tc = tcase_create("overlap");
    int forms = 0;

    if (host_start(&job, &argc, &argv) != ST_OK)
        return EXIT_FAILURE;
    size = host_size(job);
    while (tiny_forms[forms].name)
        forms++;
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_add_loop_test(tc, same_bits, 0, forms);
    tcase_add_loop_test(tc, same_bits_in_a_pipeline, 0, 3);
    tcase_add_test(tc, exposed_is_waited_for);
    suite_add_tcase(s, tc);
    return check_job(job, s);
}
