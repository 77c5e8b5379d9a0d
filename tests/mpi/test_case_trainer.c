/* Reported faults, rows N12, N13, N14 and N27, which show in a whole run: see tests/CASES.md.
 * ranks: 4 */
#include "common/base/log.h"
#include "common/train/trainer_data.h"
#include "tests/mpi/check_job.h"
#include "tests/unit/tiny_run.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef fail /* an old name of check.h; here common/base/status.h's is meant */
#define OK(expr)         TINY_OK(job, expr)
#define CHECK(cond, ...) TINY_CHECK(job, cond, __VA_ARGS__)

enum { SEQUENCES = 64, SEQ = 32, BATCH = 8 };

static struct host *job;
static int rank;
static char folder[64]; /* of this test, the same on all ranks */

static void set_up(void)
{
    tiny_run_begin(job);
}

static void in_folder(char out[128], const char *name)
{
    snprintf(out, 128, "%s/%s", folder, name);
}

/* 64 sequences that begin with their numbers. */
static void write_text(const char *path)
{
    FILE *out = fopen(path, "w");

    CHECK(out != NULL, "%s cannot be written", path);
    for (int i = 0; i < SEQUENCES; i++)
        fprintf(out, "%02d%*s", i, SEQ - 2, "numbered sequence");
    fputc('.', out);
    CHECK(!fclose(out), "%s cannot be written", path);
}

/* The configuration of a run on that text. */
static void run_config(struct config *cfg, const char *const *changes, struct tiny_layout layout)
{
    char path[128], argument[160];

    tiny_run_config(cfg, tiny_t4, changes, layout);
    in_folder(path, "text");
    snprintf(argument, sizeof argument, "data.train=%s", path);
    OK(config_override(cfg, argument));
    snprintf(argument, sizeof argument, "data.validation=%s", path);
    OK(config_override(cfg, argument));
    in_folder(cfg->run.dir, "run");
    cfg->run.overwrite = true;
    cfg->run.save = false;
    cfg->train.steps = 40;
}

/* The number that a row begins with; the text is of digits and the tokenizer of bytes. */
static int number_of(const struct trainer *t, const int32_t *row)
{
    int32_t zero = tokenizer_find(&t->tokenizer, "0", 1);

    return (int)(10 * (row[0] - zero) + row[1] - zero);
}

/* Steps of one epoch: how often each sequence was read, on this rank. */
static void read_epoch(int64_t seen[SEQUENCES], struct trainer *t)
{
    int64_t rows = t->step.end - t->step.begin;

    memset(seen, 0, SEQUENCES * sizeof *seen);
    for (int step = 0; step < SEQUENCES / BATCH; step++, t->done++) {
        OK(trainer_training_batch(t));
        CHECK(t->batch.valid == BATCH * SEQ, "%d valid targets", (int)t->batch.valid);
        for (int64_t i = 0; i < rows; i++) {
            int n = number_of(t, t->batch.tokens + i * SEQ);

            CHECK(n >= 0 && n < SEQUENCES, "sequence %d", n);
            seen[n]++;
        }
    }
}

/* N27: ranks that shuffle by seeds of their own read some sequences twice and others never. In
 * each epoch every sequence is read once, over all replicas; both ranks of a replica read the
 * same. */
START_TEST(n27_every_sequence_once)
{
    static const struct tiny_layout layouts[] = {{1, 4, 0}, {1, 4, 1}, {2, 2, 0}, {4, 1, 0}};
    int64_t seen[2][SEQUENCES];
    struct trainer *t = malloc(sizeof *t);
    struct config cfg;

    CHECK(t != NULL, "no memory");
    run_config(&cfg, tiny_forms[_i % 2 ? 0 : 2].changes, layouts[_i / 2]);
    OK(trainer_open(t, &cfg, job, NULL));
    for (int epoch = 0; epoch < 2; epoch++) {
        read_epoch(seen[epoch], t);
        OK(host_sum_i64(job, seen[epoch], SEQUENCES));
        for (int i = 0; i < SEQUENCES; i++)
            CHECK(seen[epoch][i] == cfg.parallel.tp, "epoch %d: sequence %d was read %d times",
                  epoch, i, (int)seen[epoch][i]);
    }
    OK(trainer_close(t));
    free(t);
}
END_TEST

/* N12: an update that is left out without a word: the records of a run that rank 0 wrote say so of
 * `skips` steps. */
static void skips_are_recorded(int skips)
{
    char path[128], line[1024];
    FILE *in;
    int n = 0;

    in_folder(path, "run/metrics.jsonl");
    in = fopen(path, "r");
    CHECK(in != NULL, "%s is missing", path);
    while (fgets(line, sizeof line, in))
        n += strstr(line, "\"skipped\":true") != NULL;
    fclose(in);
    CHECK(n == skips, "%d records of skipped steps", n);
}

/* N13: updates are skipped for ever. With a NaN among the weights every one must be; after a stated
 * number of them the run ends with an error that says so, on all ranks. */
START_TEST(n13_skips_are_bounded)
{
    static const char *const bf16[] = {"model.layer=cola", "train.precision=bf16", NULL};
    static const struct tiny_layout layouts[] = {{2, 2, 0}, {1, 4, 1}, {4, 1, 0}};
    const char *const *changes = _i % 3 == 2 ? bf16 : tiny_forms[_i % 3 * 2].changes;
    struct trainer *t = malloc(sizeof *t);
    struct config cfg;
    struct param *row;
    double *w;
    enum status st;
    int skips, late = _i >= 9;

    CHECK(t != NULL, "no memory");
    run_config(&cfg, changes, layouts[_i / 3 % 3]);
    cfg.train.read_every = late ? 4 : 1;
    OK(trainer_open(t, &cfg, job, NULL));
    row = &t->step.model.params.item[1];
    w = calloc((size_t)tensor_count(&row->w), sizeof *w);
    CHECK(w != NULL, "no memory");
    ((float *)(void *)w)[0] = NAN; /* the wide type; the rest are zeros */
    if (t->place.at.tp->rank == 0 || row->cut == CUT_NONE)
        OK(param_set(&t->step.model.params, row, t->place.at.dev, w));
    free(w);
    st = trainer_run(t);
    CHECK(st == ST_ENUMERIC, "status %d", (int)st);
    CHECK(rank != 0 || strstr(status_message(), "10 updates in a row"), "%s", status_message());
    /* the first rank that counts ten takes the others out of that step; the host reads late after
     * steps 1, 4, 8 and 12 */
    CHECK(late ? t->done == 11 : t->done < 10, "%d steps", (int)t->done);
    CHECK(t->skips >= TRAINER_MAX_SKIPS - 1 - 3 * late, "%d skips", t->skips);
    status_clear();
    skips = late ? TRAINER_MAX_SKIPS - 1 : (int)t->done;
    OK(trainer_close(t));
    if (rank == 0)
        skips_are_recorded(skips);
    free(t);
}
END_TEST

/* N14, N37: a copy that differs from the others on one rank is found before the first step: between
 * replicas, and between TP ranks that hold the parameter whole. */
START_TEST(n14_a_copy_that_differs_is_found)
{
    static const struct tiny_layout layouts[] = {{1, 4, 0}, {4, 1, 0}, {2, 2, 0}};
    struct trainer *t = malloc(sizeof *t);
    struct config cfg;
    struct param *row;
    double *w;
    enum status st;

    CHECK(t != NULL, "no memory");
    run_config(&cfg, tiny_forms[0].changes, layouts[_i]);
    OK(trainer_open(t, &cfg, job, NULL));
    row = params_find(&t->step.model.params, "model.norm.weight");
    CHECK(row && row->cut == CUT_NONE, "the last norm is not whole");
    w = calloc((size_t)tensor_count(&row->w), sizeof *w);
    CHECK(w != NULL, "no memory");
    if (rank == 3)
        OK(param_set(&t->step.model.params, row, t->place.at.dev, w));
    free(w);
    st = trainer_run(t);
    CHECK(st == ST_EINTERNAL, "status %d", (int)st);
    CHECK(t->done == 0, "%d steps", (int)t->done);
    status_clear();
    OK(trainer_close(t));
    free(t);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("trainer");
    TCase *tc = tcase_create("trainer");

    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_set_timeout(tc, 0);
    tcase_add_loop_test(tc, n27_every_sequence_once, 0, 8);
    tcase_add_loop_test(tc, n14_a_copy_that_differs_is_found, 0, 3);
    tcase_add_loop_test(tc, n13_skips_are_bounded, 0, 12);
    suite_add_tcase(s, tc);
    return s;
}

static void make_folder(void)
{
    char path[128];

    snprintf(folder, sizeof folder, "/tmp/narrows-case.XXXXXX");
    if (rank == 0 && !mkdtemp(folder))
        folder[0] = '\0';
    (void)host_broadcast(job, folder, sizeof folder, 0);
    in_folder(path, "text");
    if (rank == 0)
        write_text(path);
}

static void remove_folder(void)
{
    static const char *const names[] = {"run/config.yaml", "run/metrics.jsonl", "run/train.log",
                                        "text"};
    char path[128];

    for (size_t i = 0; rank == 0 && i < sizeof names / sizeof *names; i++) {
        in_folder(path, names[i]);
        unlink(path);
    }
    in_folder(path, "run");
    rmdir(path);
    rmdir(folder);
}

int main(int argc, char **argv)
{
    int failed;

    if (host_start(&job, &argc, &argv) != ST_OK)
        return 1;
    rank = host_rank(job);
    log_open(rank, 0, LOG_ERROR);
    make_folder();
    failed = check_job_run(suite());
    host_set_timeout(job, 60);
    (void)host_barrier(job);
    remove_folder();
    return check_job_end(job, failed);
}
