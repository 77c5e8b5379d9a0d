/* A running step held against the reference: the reference beside itself agrees on every bit, in
 * every layout and precision, and the run does not notice; a backend with a mistake is found, and
 * the tensor named.
 * ranks: 1 4 */
#include "common/backend/op.h"
#include "common/train/shadow.h"
#include "tests/mpi/check_job.h"
#include "tests/unit/tiny_run.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#undef fail
#define OK(expr)         TINY_OK(job, expr)
#define CHECK(cond, ...) TINY_CHECK(job, cond, __VA_ARGS__)

static struct host *job;
static int size;

static const struct trial {
    int ranks;
    const char *word[8];
    struct tiny_layout layout;
} trials[] = {
    {1, {"model.layer=full"}, {1, 1, 0}},
    {1, {"model.tied=on", "model.qkv_bias=on"}, {1, 1, 2}},
    {1, {"parallel.strategy=vanilla", "train.precision=bf16"}, {1, 1, 2}},
    {1, {"parallel.layout_exact=off", "parallel.recompute=bottleneck"}, {1, 1, 4}},
    {1, {"train.precision=fp64", "data.reset_documents=on"}, {1, 1, 1}},
    {1, {"train.precision=bf16", "train.pure_bf16=on", "model.layer=svd"}, {1, 1, 3}},
    {4, {"parallel.recompute=block"}, {4, 1, 2}},
    {4, {"parallel.zero=1", "train.precision=bf16", "model.tied=on"}, {2, 2, 2}},
    {4, {"parallel.pp=2", "parallel.zero=1", "model.tied=on"}, {1, 2, 1}},
    {4, {"parallel.pp=4", "parallel.schedule=zb-h1", "model.layer=full"}, {1, 1, 1}},
    {4, {"parallel.pp=2", "parallel.schedule=gpipe"}, {2, 1, 2}},
};

static void set_up(void)
{
    tiny_run_begin(job);
}

/* A run whose global batch is 12, so that micro-batches of 3 are whole. */
static int open_run(struct tiny_run *r, const struct trial *t)
{
    const char *words[10] = {NULL};
    int n = 0;

    while (t->word[n]) {
        words[n] = t->word[n];
        n++;
    }
    if (t->layout.micro == 3)
        words[n] = "train.batch=12";
    return tiny_run_open(r, job, tiny_t8, words, t->layout);
}

static int32_t *starts_of(struct tiny_run *r)
{
    int64_t seq = r->cfg.train.seq, n = (r->step.end - r->step.begin) * seq;
    int32_t *starts = r->cfg.data.reset_documents ? malloc((size_t)n * sizeof *starts) : NULL;

    for (int64_t i = 0; starts && i < n; i++) /* a second document begins at position 11 */
        starts[i] = i % seq < 11 ? 0 : 11;
    if (starts)
        OK(step_documents(&r->step, starts));
    return starts;
}

START_TEST(the_reference_beside_itself)
{
    const struct trial *t = &trials[_i];
    uint64_t hash[2] = {0, 0};

    if (t->ranks != size)
        return;
    for (int watched = 0; watched < 2; watched++) {
        struct shadow_result found;
        struct tiny_run r;
        struct shadow s;
        int32_t *starts;

        CHECK(open_run(&r, t), "a rank takes no part");
        starts = starts_of(&r);
        if (watched)
            OK(shadow_open(&s, &r.cfg, job));
        for (int64_t k = 1; k <= 2; k++) {
            tiny_run_batch(&r, k, TINY_SHORT);
            if (watched) {
                OK(shadow_look(&s, &r.step, r.tokens, r.targets, starts, &found));
                CHECK(found.loss == 0.0 && found.gradient == 0.0 && !shadow_missed(&found),
                      "loss %g, %s %g apart", found.loss, found.tensor, found.gradient);
                CHECK(found.tensors > 10 && found.seconds > 0.0, "%lld tensors in %g s",
                      (long long)found.tensors, found.seconds);
            }
            tiny_run_train(&r, k, TINY_SHORT);
        }
        hash[watched] = tiny_run_hash(&r);
        if (watched)
            shadow_close(&s);
        free(starts);
        tiny_run_close(&r);
    }
    CHECK(hash[0] == hash[1], "the run noticed that it was watched");
}
END_TEST

/* ---- backends with a mistake ---- */

/* What a mistake falls on: the n-th call from now. */
static struct {
    int64_t call;
    double factor;
} mistake;

static void hit(const struct tensor *t)
{
    if (--mistake.call == 0)
        for (int64_t i = 0; i < t->rows; i++)
            for (int64_t j = 0; j < t->cols; j++)
                dtype_store(tensor_row(t, i), t->dtype, j,
                            mistake.factor * dtype_load(tensor_row(t, i), t->dtype, j));
}

static enum status wrong_weight_grad(struct device *dev, const struct weight_grad *w, int n,
                                     const struct sample_plan *plan)
{
    TRY(ref_backend.math->weight_grad(dev, w, n, plan));
    hit(&w[0].dw);
    return ST_OK;
}

static enum status wrong_ce_grad(struct device *dev, struct tensor *loss, struct tensor *logits,
                                 const struct tensor *st, const struct tensor *targets,
                                 struct vocab_cut cut, double scale)
{
    TRY(ref_backend.math->ce_grad(dev, loss, logits, st, targets, cut, scale));
    hit(loss);
    return ST_OK;
}

/* Runs a replay of a run whose backend makes the mistake; bounds of 1e-6, where the factor is. */
static struct shadow_result with(const struct math_ops *math, int64_t call, double factor,
                                 struct shadow *s)
{
    struct backend wrong = {.name = "wrong", .device = ref_backend.device, .math = math};
    const struct backend *right;
    struct shadow_result found;
    struct tiny_run r;

    CHECK(open_run(&r, &trials[0]), "a rank takes no part");
    r.cfg.shadow.gradient = r.cfg.shadow.loss = 1e-6;
    wrong.comm = ref_backend.comm;
    right = r.at.dev->be;
    OK(shadow_open(s, &r.cfg, job));
    tiny_run_batch(&r, 1, TINY_ALL);
    r.at.dev->be = &wrong;
    mistake.call = call;
    mistake.factor = factor;
    OK(shadow_look(s, &r.step, r.tokens, r.targets, NULL, &found));
    r.at.dev->be = right;
    tiny_run_close(&r);
    return found;
}

START_TEST(a_wrong_gradient_is_named)
{
    struct math_ops math = *ref_backend.math;
    struct shadow_result found;
    struct shadow s;

    if (size > 1)
        return;
    math.weight_grad = wrong_weight_grad;
    found = with(&math, 3, 1.001, &s); /* a tenth of a percent in one of them */
    CHECK(found.missed == 1 && fabs(found.gradient - 1e-3) < 1e-5, "%lld missed, %s %g apart",
          (long long)found.missed, found.tensor, found.gradient);
    CHECK(found.loss == 0.0 && strstr(found.tensor, "layers.3."), "it is %s", found.tensor);
    CHECK(s.looks == 1 && s.missed == 1, "%lld of %lld missed", (long long)s.missed,
          (long long)s.looks);
    shadow_close(&s);
    found = with(&math, 3, 1.0 + 1e-7, &s); /* within the bound */
    CHECK(found.missed == 0 && s.missed == 0, "%g missed", found.gradient);
    shadow_close(&s);
    found = with(&math, 3, NAN, &s);
    CHECK(found.missed == 1 && isnan(found.gradient), "NaN gave %g", found.gradient);
    shadow_close(&s);
}
END_TEST

START_TEST(a_wrong_loss_is_found)
{
    struct math_ops math = *ref_backend.math;
    struct shadow_result found;
    struct shadow s;

    if (size > 1)
        return;
    math.ce_grad = wrong_ce_grad;
    found = with(&math, 1, 1.0, &s);
    CHECK(found.missed == 0 && found.loss == 0.0, "no mistake: %g", found.loss);
    shadow_close(&s);
    found = with(&math, 1, 1.00001, &s);
    CHECK(found.missed == 1 && found.gradient == 0.0 && fabs(found.loss - 1e-5) < 1e-7,
          "%lld missed, the loss by %g", (long long)found.missed, found.loss);
    shadow_close(&s);
}
END_TEST

/* Two replicas and two shards: what one rank alone does wrong, all hear of. */
START_TEST(one_rank_is_enough)
{
    struct math_ops math = *ref_backend.math;
    struct backend wrong = {.name = "wrong", .device = ref_backend.device, .math = &math};
    struct shadow_result found;
    struct tiny_run r;
    struct shadow s;

    if (size != 4)
        return;
    wrong.comm = ref_backend.comm;
    math.weight_grad = wrong_weight_grad;
    CHECK(tiny_run_open(&r, job, tiny_t8, (const char *const[]){"model.layer=full", NULL},
                        (struct tiny_layout){2, 2, 0}),
          "a rank takes no part");
    OK(shadow_open(&s, &r.cfg, job));
    tiny_run_batch(&r, 1, TINY_ALL);
    if (host_rank(job) == 3)
        r.at.dev->be = &wrong;
    mistake.call = 3;
    mistake.factor = 1.01;
    OK(shadow_look(&s, &r.step, r.tokens, r.targets, NULL, &found));
    r.at.dev->be = &ref_backend;
    CHECK(found.missed == 1 && found.gradient > 1e-3 && strstr(found.tensor, "layers.3."),
          "%lld missed, %s %g apart", (long long)found.missed, found.tensor, found.gradient);
    shadow_close(&s);
    tiny_run_close(&r);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *s = suite_create("shadow");
    TCase *tc = tcase_create("shadow");

    if (host_start(&job, &argc, &argv) != ST_OK)
        return EXIT_FAILURE;
    size = host_size(job);
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_add_loop_test(tc, the_reference_beside_itself, 0, sizeof trials / sizeof *trials);
    tcase_add_test(tc, a_wrong_gradient_is_named);
    tcase_add_test(tc, a_wrong_loss_is_found);
    tcase_add_test(tc, one_rank_is_enough);
    suite_add_tcase(s, tc);
    return check_job(job, s);
}
