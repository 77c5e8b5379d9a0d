/* Weights and text over several ranks: the file that TP ranks write, and the tokens that they
 * generate, are those of one rank. ranks: 1 2 4 */
#include "common/checkpoint/weights.h"
#include "common/train/generate.h"
#include "tests/mpi/check_job.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/tiny_model.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

static struct host *job, *alone; /* all ranks; this one */
static char folder[TEMP_PATH];

static const char *const variants[][8] = {
    {"model.kv_heads=4", NULL},
    {"model.kv_heads=4", "model.layer=svd", "model.tied=on", NULL},
    {"model.kv_heads=4", "parallel.strategy=vanilla", NULL},
    {"model.kv_heads=4", "parallel.strategy=vanilla", "parallel.vanilla=released", NULL},
    {"model.kv_heads=4", "model.layer=full", "model.vocab=40000", NULL}, /* several messages */
    {"model.kv_heads=4", "train.precision=bf16", NULL},
    {"model.kv_heads=4", "train.precision=fp64", "parallel.norm=sync", NULL},
};

enum { VARIANTS = sizeof variants / sizeof *variants };

/* The folder that rank 0 makes. */
static void make_folder(void)
{
    if (host_rank(job) == 0)
        temp_folder_make(folder);
    OK(host_broadcast(job, folder, sizeof folder, 0));
}

static void remove_folder(void)
{
    OK(host_barrier(job));
    if (host_rank(job) == 0)
        temp_folder_remove(folder);
}

static void open_variant(struct tiny_model *t, int i, int rank, int size)
{
    const char *changes[10] = {"model.init_std=0.3", NULL};
    char tp[32];
    int n = 1;

    snprintf(tp, sizeof tp, "parallel.tp=%d", size);
    for (int j = 0; variants[i][j]; j++)
        changes[n++] = variants[i][j];
    changes[n++] = tp;
    changes[n] = NULL;
    tiny_model_config(&t->cfg, changes, size);
    tiny_model_open(t, rank, size, 1, 4);
}

START_TEST(test_save)
{
    struct tiny_model cut, whole, loaded;
    char dir[TEMP_PATH];

    make_folder();
    temp_folder_path(dir, folder, "final");
    open_variant(&cut, _i, host_rank(job), host_size(job));
    OK(host_agree(job, weights_save(dir, &cut.m, cut.dev, job)));
    open_variant(&whole, _i, 0, 1);
    open_variant(&loaded, _i, 0, 1);
    OK(params_init(&loaded.m.params, loaded.dev, 9));
    OK(weights_load(&loaded.m, loaded.dev, dir));
    ck_assert_mem_eq(loaded.m.params.item[0].w.data, whole.m.params.item[0].w.data, 64);
    for (int i = 0; i < whole.m.params.n; i++) {
        const struct tensor *x = param_value(&loaded.m.params.item[i]);
        const struct tensor *y = param_value(&whole.m.params.item[i]);

        ck_assert_msg(!memcmp(x->data, y->data, (size_t)tensor_count(y) * dtype_size(y->dtype)),
                      "variant %d, %s", _i, whole.m.params.item[i].name);
    }
    tiny_model_close(&cut);
    tiny_model_close(&whole);
    tiny_model_close(&loaded);
    remove_folder();
}
END_TEST

/* A rank that cannot write does not keep the others waiting. */
START_TEST(test_failure)
{
    struct tiny_model cut;

    open_variant(&cut, 0, host_rank(job), host_size(job));
    host_set_timeout(job, 60);
    ck_assert_int_eq(host_agree(job, weights_save("/proc/none/final", &cut.m, cut.dev, job)),
                     ST_EIO);
    if (host_rank(job) == 0)
        ck_assert_msg(strstr(status_message(), "/proc/none/final") != NULL, "%s", status_message());
    status_clear();
    tiny_model_close(&cut);
}
END_TEST

static void open_place(struct step_place *at, struct tiny_model *t, struct host *group)
{
    *at = (struct step_place){.dev = t->dev, .tp_host = group};
    OK(comm_create(&at->tp, t->dev, group, NULL));
}

/* Every logit of 24 tokens in a window of 16 has the same bits. */
START_TEST(test_tokens)
{
    struct tiny_model cut, whole;
    struct step_place places[2];
    struct generator many, one;
    const float *x, *y;

    open_variant(&cut, _i, host_rank(job), host_size(job));
    open_variant(&whole, _i, 0, 1);
    open_place(&places[0], &cut, job);
    open_place(&places[1], &whole, alone);
    OK(generator_open(&many, &cut.m, &places[0], 16, 0));
    OK(generator_open(&one, &whole.m, &places[1], 16, 0));
    for (int32_t i = 0; i < 24; i++) {
        OK(generator_push(&many, i * 5 % 70));
        OK(generator_push(&one, i * 5 % 70));
        if (i == 1)
            continue;
        OK(generator_logits(&many, &x));
        OK(generator_logits(&one, &y));
        ck_assert_msg(!memcmp(x, y, 70 * sizeof *x), "variant %d, token %d", _i, (int)i);
    }
    generator_close(&many);
    generator_close(&one);
    comm_destroy(places[0].tp);
    comm_destroy(places[1].tp);
    tiny_model_close(&cut);
    tiny_model_close(&whole);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("weights over ranks");
    TCase *c = tcase_create("weights");
    int failed;

    if (host_start(&job, &argc, &argv) != ST_OK ||
        host_split(&alone, job, host_rank(job), 0) != ST_OK)
        return EXIT_FAILURE;
    tcase_set_timeout(c, 120);
    suite_add_tcase(suite, c);
    tcase_add_loop_test(c, test_save, 0, VARIANTS);
    tcase_add_loop_test(c, test_tokens, 0, VARIANTS);
    tcase_add_test(c, test_failure); /* last: groups are of no use after it */
    failed = check_job_run(suite);
    host_free(alone);
    return check_job_end(job, failed);
}
