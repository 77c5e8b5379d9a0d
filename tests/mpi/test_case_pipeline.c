/* Reported faults, rows N04, N06, N07, N09, N11, N16: what stages, orders and shards must not
 * change; and the file of weights that they write.
 * ranks: 4 8
 *
 * "Equal" is bit by bit: loss, gradient norm, hash of the weights. See tests/CASES.md. */
#include "common/checkpoint/weights.h"
#include "tests/mpi/check_job.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/tiny_run.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef fail
#define OK(expr)         TINY_OK(job, expr)
#define CHECK(cond, ...) TINY_CHECK(job, cond, __VA_ARGS__)

enum { STEPS = 2, WORDS = 16 };

static struct host *job;
static int rank, size;
static int warmed; /* runs begin as on a device that wants a pass before the first step */

struct trace {
    uint64_t hash[STEPS];
    double loss[STEPS], norm[STEPS], evaluation;
};

static void set_up(void)
{
    tiny_run_begin(job);
}

/* A form's words and those of a layout: "parallel.pp=2 parallel.zero=1". */
struct words {
    const char *word[WORDS];
    char text[256];
};

static void join(struct words *w, const char *const *form, const char *more)
{
    int n = 0;

    for (; form && form[n]; n++)
        w->word[n] = form[n];
    snprintf(w->text, sizeof w->text, "%s", more);
    for (char *at = strtok(w->text, " "); at; at = strtok(NULL, " "))
        w->word[n++] = at;
    w->word[n] = NULL;
}

static struct trace trace_of(const char *const *form, const char *more, struct tiny_layout layout)
{
    struct tiny_run r;
    struct trace t = {0};
    struct words w;

    join(&w, form, more);
    if (tiny_run_open(&r, job, tiny_t8, w.word, layout)) {
        r.at.dev->warms = warmed;
        OK(step_warm(&r.step));
        CHECK(r.ledger.row[LEDGER_TP_FORWARD].calls == 0, "the pass before a run is counted");
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

struct layout {
    struct tiny_layout at;
    int pp;
    const char *words;
};

/* odd: the layouts with an odd number, else those with an even one: between them, the forms try
 * them all. */
static void same_in(const char *const *form, const char *name, const char *fixed,
                    const struct layout *l, int odd)
{
    struct trace one = trace_of(form, fixed, (struct tiny_layout){1, 1, 0});

    CHECK(rank > 0 || (isfinite(one.loss[0]) && one.hash[0] != one.hash[1]), "%s learns nothing",
          name);
    for (int k = 0; l->at.tp; l++, k++) {
        char words[256];
        struct trace t;

        if (k % 2 != odd || l->at.tp * l->at.dp * l->pp > size ||
            (size > 4 && l->at.tp * l->at.dp * l->pp < 8))
            continue;
        snprintf(words, sizeof words, "%s parallel.pp=%d %s", fixed, l->pp, l->words);
        t = trace_of(form, words, l->at);
        for (int i = 0; rank == 0 && i < STEPS; i++)
            CHECK(t.hash[i] == one.hash[i] && t.loss[i] == one.loss[i] && t.norm[i] == one.norm[i],
                  "%s, tp %d dp %d %s, step %d: loss %a norm %a, not %a %a", name, l->at.tp,
                  l->at.dp, words, i + 1, t.loss[i], t.norm[i], one.loss[i], one.norm[i]);
        CHECK(rank > 0 || t.evaluation == one.evaluation, "%s, %s: evaluation %a, not %a", name,
              words, t.evaluation, one.evaluation);
    }
}

/* N07, N04: stages, their orders, accumulation. */
static const struct layout pipelines[] = {
    {{1, 1, 1}, 4, ""},
    {{1, 1, 2}, 2, "parallel.schedule=gpipe parallel.stage_layers=1,3"},
    {{2, 1, 2}, 2, "parallel.schedule=zb-h1"},
    {{1, 2, 1}, 2, "parallel.schedule=interleaved parallel.virtual_stages=2"},
    {{2, 1, 1}, 2, "parallel.recompute=block parallel.layout_exact=on"},
    {{2, 2, 1}, 2, "parallel.zero=1"},
    {{1, 2, 1}, 4, "parallel.schedule=zb-h1 parallel.zero=1 parallel.bucket=0"},
    {{2, 1, 1}, 4, "parallel.schedule=gpipe"},
    {{0, 0, 0}, 0, NULL}};

START_TEST(n07_pipelines_change_nothing)
{
    warmed = 1;
    same_in(tiny_forms[_i].changes, tiny_forms[_i].name, "", pipelines, _i % 2);
    warmed = 0;
}
END_TEST

/* Communicators of a ring of stages are gone through in one order: each call here waits for the
 * other ranks of its communicator, as making an NCCL connection does. */
START_TEST(ring_is_met_in_one_order)
{
    static const char *const words[] = {"parallel.pp=4",
                                        "parallel.schedule=interleaved",
                                        "parallel.virtual_stages=2",
                                        "model.layers=8",
                                        "model.tied=on",
                                        NULL};
    double before = host_timeout(job);
    struct tiny_run r;

    host_set_timeout(job, 10.0);
    if (tiny_run_open(&r, job, tiny_t8, words, (struct tiny_layout){1, 1, 1})) {
        struct comm *c[STEP_PIPELINE_COMMS];
        int n = step_pipeline_comms(c, &r.at), end = r.at.ends != NULL;

        CHECK(n == 1 + end + 2 * PIPE_DIRECTIONS, "%d communicators", n);
        for (int i = 0; i < n; i++) {
            struct tensor t = tensor_view(r.step.scratch.base, r.at.dev->wide, 1, 1);

            OK(device_zero(r.at.dev, t.data, sizeof(double)));
            OK(comm_all_reduce(c[i], &t, 1));
        }
    }
    tiny_run_close(&r);
    OK(host_barrier(job));
    host_set_timeout(job, before);
}
END_TEST

/* N09, N11: shards of the optimiser; small buckets too. */
static const struct layout shards[] = {{{1, 4, 0}, 1, "parallel.zero=1"},
                                       {{1, 2, 1}, 1, "parallel.zero=1 parallel.bucket=0"},
                                       {{2, 2, 2}, 1, "parallel.zero=1 parallel.bucket=0"},
                                       {{1, 4, 0}, 1, "parallel.zero=0 parallel.bucket=0"},
                                       {{1, 8, 0}, 1, "parallel.zero=1 parallel.bucket=0"},
                                       {{0, 0, 0}, 0, NULL}};

START_TEST(n09_shards_change_nothing)
{
    same_in(tiny_forms[_i].changes, tiny_forms[_i].name, "train.clip=0.1", shards, _i % 2);
}
END_TEST

START_TEST(n09_shards_of_masters)
{
    static const char *const precision[] = {"", "train.pure_bf16=on", "model.tied=on"};
    char words[96];

    snprintf(words, sizeof words, "train.precision=bf16 %s", precision[_i]);
    same_in(tiny_forms[2].changes, "bf16", words, shards, _i % 2);
    same_in(tiny_forms[2].changes, "bf16", words, pipelines, _i % 2);
}
END_TEST

/* N06: a first layer with large gradients and a low limit: the factor is that of the whole. */
START_TEST(n06_clipping_sees_every_stage)
{
    static const char *const words[] = {"train.clip=0.01", NULL};

    same_in(words, "clipped", "", pipelines, 0);
}
END_TEST

/* N16: both copies of a tied matrix, with decay, after many steps. params_hash compares them. */
START_TEST(n16_tied_copies_stay_alike)
{
    static const char *const words[] = {"model.tied=on", "train.weight_decay=0.1", "parallel.pp=2",
                                        NULL};
    struct tiny_run r;

    if (tiny_run_open(&r, job, tiny_t8, words, (struct tiny_layout){1, 2, 2})) {
        uint64_t last = 0;

        for (int i = 0; i < 50; i++)
            tiny_run_train(&r, i + 1, TINY_ALL);
        last = tiny_run_hash(&r);
        CHECK(last != 0, "no hash");
        if (step_stage(&r.step) == 1) { /* and it would see a difference */
            struct param *row = params_find(&r.step.model.params, "model.embed_tokens.weight");

            CHECK(row && row->copy && row->w.data == r.step.model.ends.head.data, "no copy");
            OK(device_zero(r.at.dev, row->w.data, sizeof(float)));
        }
        CHECK((params_hash(&last, &r.step.model.params, r.at.dev, r.at.tp_host) == ST_EINTERNAL) ==
                  (step_stage(&r.step) == 1),
              "a copy that differs is not seen");
        status_clear();
    }
    tiny_run_close(&r);
    OK(host_barrier(job));
}
END_TEST

/* ---- weights ---- */

static char *file_of(const char *dir, size_t *n)
{
    char path[TEMP_PATH + 64];
    char *bytes = NULL;
    FILE *f;

    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    f = fopen(path, "rb");
    CHECK(f != NULL, "%s is missing", path);
    CHECK(fseek(f, 0, SEEK_END) == 0, "cannot seek");
    *n = (size_t)ftell(f);
    rewind(f);
    bytes = malloc(*n);
    CHECK(bytes && fread(bytes, 1, *n, f) == *n, "cannot read");
    fclose(f);
    return bytes;
}

static void write_weights(const char *folder, const char *name, const char *more,
                          struct tiny_layout layout)
{
    char dir[TEMP_PATH + 32];
    struct tiny_run r;
    struct words w;

    join(&w, NULL, more);
    snprintf(dir, sizeof dir, "%s/%s", folder, name);
    if (tiny_run_open(&r, job, tiny_t8, w.word, layout)) {
        tiny_run_train(&r, 1, TINY_ALL);
        if (r.at.dp->rank == 0 || weights_shared_save(&r.step.model))
            OK(weights_save(dir, &r.step.model, r.at.dev, r.at.tp_host));
    }
    tiny_run_close(&r);
    OK(host_barrier(job));
}

/* The file does not say who wrote it. */
START_TEST(weights_of_any_layout_are_one_file)
{
    static const char *const kinds[] = {"", "model.tied=on train.precision=bf16",
                                        "train.precision=bf16 parallel.strategy=vanilla"};
    char folder[TEMP_PATH] = "", words[256], dir[TEMP_PATH + 32];
    size_t n[2];

    if (rank == 0)
        temp_folder_make(folder);
    OK(host_broadcast(job, folder, sizeof folder, 0));
    write_weights(folder, "one", kinds[_i], (struct tiny_layout){1, 1, 0});
    snprintf(words, sizeof words, "%s parallel.pp=2 parallel.zero=1", kinds[_i]);
    write_weights(folder, "other", words, (struct tiny_layout){size / 4, 2, 1});
    if (rank == 0) {
        char *bytes[2];

        for (int i = 0; i < 2; i++) {
            snprintf(dir, sizeof dir, "%s/%s", folder, i ? "other" : "one");
            bytes[i] = file_of(dir, &n[i]);
        }
        CHECK(n[0] == n[1] && !memcmp(bytes[0], bytes[1], n[0]), "other weights");
        free(bytes[0]);
        free(bytes[1]);
    }
    OK(host_barrier(job));
    if (rank == 0)
        temp_folder_remove(folder);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *s = suite_create("pipelines and shards");
    TCase *tc = tcase_create("all");
    int forms = 0;

    while (tiny_forms[forms].name)
        forms++;
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_add_loop_test(tc, n07_pipelines_change_nothing, 0, forms);
    tcase_add_test(tc, ring_is_met_in_one_order);
    tcase_add_loop_test(tc, n09_shards_change_nothing, 1, 5);
    tcase_add_loop_test(tc, n09_shards_of_masters, 0, 3);
    tcase_add_test(tc, n06_clipping_sees_every_stage);
    tcase_add_test(tc, n16_tied_copies_stay_alike);
    tcase_add_loop_test(tc, weights_of_any_layout_are_one_file, 0, 3);
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
