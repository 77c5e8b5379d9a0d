/* Reported faults, rows N14, N19, N21, N29, N36, N37: what every rank must hold alike, and what the
 * gradient norm is.
 * ranks: 4
 *
 * See tests/CASES.md. */
#include "tests/mpi/check_job.h"
#include "tests/unit/tiny_run.h"

#include "common/base/hash.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#undef fail /* an old name of check.h; here common/base/status.h's is meant */
#define OK(expr)         TINY_OK(job, expr)
#define CHECK(cond, ...) TINY_CHECK(job, cond, __VA_ARGS__)
#define CHECK_TRUE(cond) TINY_CHECK(job, cond, "%s", #cond)

static struct host *job;

static void set_up(void)
{
    tiny_run_begin(job);
}

/* Checks that all ranks of a group have the same hash. */
static void check_alike(struct host *group, uint64_t hash, const char *form, const char *what)
{
    uint64_t all[8] = {0};

    OK(host_gather(group, all, &hash, sizeof hash));
    for (int i = 1; i < host_size(group); i++)
        CHECK(all[i] == all[0], "%s: %s differs on rank %d", form, what, i);
}

/* A parameter, its moments and its gradient as one hash. */
static uint64_t everything(struct tiny_run *r, const struct param *row)
{
    const struct tensor *t[] = {&row->w, param_value(row), &row->m, &row->v, &row->g};
    uint64_t all[5];

    for (int i = 0; i < 5; i++)
        all[i] = tiny_run_bytes(r, t[i]);
    return hash_bytes(all, sizeof all);
}

/* N14, N21: the gradient of a parameter that TP ranks hold whole (the norms, above all) is that of
 * each rank's own part; the copies go apart. After each step, all of them are alike. */
START_TEST(n14_whole_parameters_are_alike)
{
    const struct tiny_form *form = &tiny_forms[_i];
    struct tiny_run r;
    int whole = 0;

    if (tiny_run_open(&r, job, tiny_t4, form->changes, (struct tiny_layout){4, 1, 0})) {
        struct params *p = &r.step.model.params;

        for (int t = 1; t <= 3; t++) {
            tiny_run_train(&r, t, TINY_SHORT);
            for (int i = 0; i < p->n; i++)
                if (p->item[i].cut == CUT_NONE) {
                    check_alike(r.at.tp_host, everything(&r, &p->item[i]), form->name,
                                p->item[i].name);
                    whole++;
                }
        }
        /* BTP may cut everything; the others hold at least the norms whole. */
        CHECK(whole > 0 || r.cfg.parallel.strategy == STRATEGY_BTP, "%s: nothing is whole",
              form->name);
    }
    tiny_run_close(&r);
}
END_TEST

/* N21: on 2 x 2 ranks every shard, its moments and its gradient are alike on both replicas, and the
 * samples of a global batch are 8 different ones, each on one replica and on both of its ranks. */
START_TEST(n21_replicas_are_alike)
{
    const struct tiny_form *form = &tiny_forms[_i];
    struct tiny_run r;

    if (tiny_run_open(&r, job, tiny_t, form->changes, (struct tiny_layout){2, 2, 2})) {
        struct params *p = &r.step.model.params;
        int64_t mine[2] = {r.step.begin, r.step.end}, all[8];

        OK(host_gather(r.at.dp_host, all, mine, sizeof mine));
        CHECK(all[0] == 0 && all[1] == 4 && all[2] == 4 && all[3] == 8, "shares of the batch");
        check_alike(r.at.tp_host, (uint64_t)mine[0], form->name, "share of the batch");
        for (int t = 1; t <= 3; t++) {
            tiny_run_train(&r, t, TINY_SHORT);
            for (int i = 0; i < p->n; i++)
                check_alike(r.at.dp_host, everything(&r, &p->item[i]), form->name, p->item[i].name);
        }
    }
    tiny_run_close(&r);
}
END_TEST

/* The root of the sum of squares of all gradients, each element of the model once, slowly: cut ones
 * from all TP ranks, whole ones from the first. */
static double slow_norm(struct tiny_run *r)
{
    const struct params *p = &r->step.model.params;
    double mine = 0, whole = 0, all[8];

    for (int i = 0; i < p->n; i++) {
        double *g = tiny_run_values(r, &p->item[i].g), sum = 0;

        for (int64_t j = 0; j < tensor_count(&p->item[i].g); j++)
            sum += g[j] * g[j];
        free(g);
        *(p->item[i].cut == CUT_NONE ? &whole : &mine) += sum;
    }
    OK(host_gather(r->at.tp_host, all, &mine, sizeof mine));
    for (int i = 0; i < host_size(r->at.tp_host); i++)
        whole += all[i];
    return sqrt(whole);
}

/* N19: parameters that several ranks hold are counted once a rank, or the sum runs over the wrong
 * ranks. The norm is also the one before clipping, and clipping scales by it. */
START_TEST(n19_norm_against_a_slow_one)
{
    static const struct tiny_layout layouts[] = {{2, 2, 0}, {1, 4, 0}, {4, 1, 0}, {1, 1, 0}};
    const struct tiny_form *form = &tiny_forms[_i];

    for (int k = 0; k < 4; k++) {
        struct tiny_run r;

        if (tiny_run_open(&r, job, tiny_t4, form->changes, layouts[k])) {
            struct step_result result;
            double norm;

            r.cfg.train.clip = 0.01;
            result = tiny_run_train(&r, 1, TINY_SHORT);
            norm = slow_norm(&r);
            CHECK(norm > 0.1 && fabs(norm - result.grad_norm) <= 1e-11 * norm,
                  "%s: tp %d dp %d: norm %.17g, not %.17g", form->name, layouts[k].tp,
                  layouts[k].dp, result.grad_norm, norm);
            CHECK(fabs(result.scale * norm - 0.01) <= 1e-5 * 0.01, "%s: scaled to %g, not 0.01",
                  form->name, result.scale * norm);
        }
        tiny_run_close(&r);
        OK(host_barrier(job));
    }
}
END_TEST

static void set_gradient(struct tiny_run *r, const struct param *row, float value)
{
    OK(device_upload(r->at.dev, row->g.data, &value, sizeof value));
}

static void norm_of(double out[2], struct tiny_run *r, double limit)
{
    OK(optimizer_norm(&r->step.optimizer, r->at.dev, limit));
    OK(device_download(r->at.dev, out, r->step.optimizer.norm_scale.data, 2 * sizeof *out));
}

/* N29: the norm is a sum of norms, or that after clipping. Gradients 3 and 4 in two tensors, one of
 * them on the last rank alone where it is cut, make 5, and 5 with a limit of 1. */
START_TEST(n29_three_and_four_make_five)
{
    static const int tps[] = {1, 2, 4};
    const struct tiny_form *form = &tiny_forms[_i];

    for (int k = 0; k < 3; k++) {
        struct tiny_run r;
        double ns[2];

        if (tiny_run_open(&r, job, tiny_t4, form->changes, (struct tiny_layout){tps[k], 1, 0})) {
            struct params *p = &r.step.model.params;
            struct param *a = params_find(p, "model.layers.1.mlp.down_proj.weight"), *b;
            int last = host_rank(r.group) == tps[k] - 1;

            a = a ? a : params_find(p, "model.layers.1.mlp.down_proj.up.weight");
            b = params_find(p, "model.norm.weight");
            CHECK_TRUE(a && b);
            OK(device_zero(r.at.dev, r.step.grads.base, r.step.grads.size));
            if (a->cut == CUT_NONE || last)
                set_gradient(&r, a, 3);
            if (b->cut == CUT_NONE || last)
                set_gradient(&r, b, 4);
            norm_of(ns, &r, 0);
            CHECK(ns[0] == 5 && ns[1] == 1, "%s: norm %g, scale %g", form->name, ns[0], ns[1]);
            norm_of(ns, &r, 1);
            CHECK(ns[0] == 5 && fabs(ns[1] - 0.2) < 1e-6, "%s: norm %g, scale %g with a limit of 1",
                  form->name, ns[0], ns[1]);
            norm_of(ns, &r, 6);
            CHECK(ns[0] == 5 && ns[1] == 1, "%s: norm %g, scale %g below the limit", form->name,
                  ns[0], ns[1]);
        }
        tiny_run_close(&r);
        OK(host_barrier(job));
    }
}
END_TEST

/* N36: one seed for every tensor, or for every rank's shard: no two matrices of a model are equal,
 * no two shards of one, no two rows of one. */
START_TEST(n36_start_values_are_all_different)
{
    const struct tiny_form *form = &tiny_forms[_i];
    struct tiny_run r;

    if (tiny_run_open(&r, job, tiny_t4, form->changes, (struct tiny_layout){4, 1, 0})) {
        struct params *p = &r.step.model.params;
        uint64_t *hash = calloc((size_t)p->n * 4, sizeof *hash), *all = hash;

        CHECK_TRUE(hash != NULL);
        for (int i = 0; i < p->n; i++) {
            const struct param *row = &p->item[i];
            double *w = tiny_run_values(&r, param_value(row));
            /* The beginning: shapes differ. Whole ones are drawn alike on each rank. */
            uint64_t h = row->sigma > 0 ? hash_bytes(w, 8 * sizeof *w) : 0;

            OK(host_gather(r.at.tp_host, all + 4 * i, &h, sizeof h));
            for (int k = 1; k < 4 && row->cut == CUT_NONE; k++) {
                CHECK(all[4 * i + k] == h, "%s: %s differs between ranks", form->name, row->name);
                all[4 * i + k] = 0;
            }
            free(w);
        }
        for (int i = 0; i < 4 * p->n; i++)
            for (int j = 0; j < i; j++)
                CHECK(!all[i] || all[i] != all[j], "%s: %s of rank %d begins as %s of rank %d",
                      form->name, p->item[i / 4].name, i % 4, p->item[j / 4].name, j % 4);
        free(hash);
    }
    tiny_run_close(&r);
}
END_TEST

/* N37: replicas that start with different weights. (Environments: tests/cli/case_run.sh) */
START_TEST(n37_replicas_start_alike)
{
    const struct tiny_form *form = &tiny_forms[_i];
    struct tiny_run r;

    if (tiny_run_open(&r, job, tiny_t, form->changes, (struct tiny_layout){1, 4, 0})) {
        struct params *p = &r.step.model.params;

        check_alike(r.at.dp_host, tiny_run_hash(&r), form->name, "the model");
        for (int i = 0; i < p->n; i++)
            check_alike(r.at.dp_host, tiny_run_bytes(&r, &p->item[i].w), form->name,
                        p->item[i].name);
    }
    tiny_run_close(&r);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("replica");
    TCase *tc = tcase_create("replica");
    int forms = 0;

    while (tiny_forms[forms].name)
        forms++;
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_set_timeout(tc, 0);
    tcase_add_loop_test(tc, n14_whole_parameters_are_alike, 0, forms);
    tcase_add_loop_test(tc, n19_norm_against_a_slow_one, 0, forms);
    tcase_add_loop_test(tc, n21_replicas_are_alike, 0, forms);
    tcase_add_loop_test(tc, n29_three_and_four_make_five, 0, forms);
    tcase_add_loop_test(tc, n36_start_values_are_all_different, 0, forms);
    tcase_add_loop_test(tc, n37_replicas_start_alike, 0, forms);
    suite_add_tcase(s, tc);
    return s;
}

int main(int argc, char **argv)
{
    if (host_start(&job, &argc, &argv) != ST_OK)
        return 1;
    return check_job(job, suite());
}
