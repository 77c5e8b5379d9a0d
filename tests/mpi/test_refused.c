/* Reported faults, rows C06, C16, C23, K10: a checkpoint that is not as it was written ends a run
 * that goes on from it on all ranks, with one status and one message that names file and tensor,
 * also where one rank alone can see what is wrong. No rank waits for its time limit.
 * ranks: 4 */
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/train/trainer.h"
#include "tests/mpi/check_job.h"
#include "tests/unit/checkpoint_case.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/tiny_run.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef fail
#define OK(expr)         TINY_OK(job, expr)
#define CHECK(cond, ...) TINY_CHECK(job, cond, __VA_ARGS__)

enum { TP = 2, DP = 2, LAST = 1 }; /* LAST: a rank whose file holds the second half of a tensor */

static const char *const victim = "model.layers.1.mlp.up_proj.up.weight";

static struct host *job;
static int rank;
static char folder[TEMP_PATH], made[TEMP_PATH]; /* of the run; the checkpoint in it */

/* Of rank 0: the checkpoint as it was. */
static struct manifest table;
static char *text, *file; /* the manifest; the file of LAST */
static size_t text_bytes, file_bytes;

static void configure(struct config *cfg)
{
    static const char *const changes[] = {"train.precision=bf16", NULL};
    char words[2][TEMP_PATH + 64];

    tiny_run_config(cfg, tiny_t4, changes, (struct tiny_layout){TP, DP, 0});
    snprintf(words[0], sizeof words[0], "data.train=%s/text", folder);
    snprintf(words[1], sizeof words[1], "run.dir=%s/run", folder);
    for (int i = 0; i < 2; i++)
        OK(config_override(cfg, words[i]));
    cfg->train.steps = 2;
    cfg->train.warmup = 1;
    cfg->train.eval_every = 0;
    cfg->checkpoint.stop_at = 1;
}

/* A run that stopped after its first step. */
static void make(void)
{
    struct trainer *t = malloc(sizeof *t);
    char path[TEMP_PATH + 64];
    struct config cfg;
    size_t n;

    CHECK(t != NULL, "no memory");
    if (rank == 0) {
        char *words;

        temp_folder_make(folder);
        words =
            temp_folder_read(temp_folder_source(path, "examples/data/tinyshakespeare/val.txt"), &n);
        temp_folder_write(temp_folder_path(path, folder, "text"), words, 4096);
        free(words);
    }
    OK(host_broadcast(job, folder, sizeof folder, 0));
    snprintf(made, sizeof made, "%.400s/run/checkpoints/step-000000001", folder);
    configure(&cfg);
    OK(trainer_open(t, &cfg, job, NULL));
    CHECK(trainer_run(t) == ST_ESTOP, "it did not stop");
    status_clear();
    OK(trainer_close(t));
    free(t);
    if (rank == 0) {
        OK(manifest_read(&table, made));
        text = temp_folder_read(temp_folder_path(path, made, MANIFEST_NAME), &text_bytes);
        file = temp_folder_read(temp_folder_path(path, made, table.file[LAST].name), &file_bytes);
    }
    OK(host_barrier(job));
}

static void restore(void)
{
    char path[TEMP_PATH];

    temp_folder_write(temp_folder_path(path, made, MANIFEST_NAME), text, text_bytes);
    temp_folder_write(temp_folder_path(path, made, table.file[LAST].name), file, file_bytes);
}

/* What a run that goes on from it ends with; the message stays in the record. */
static enum status go_on(void)
{
    struct trainer *t = malloc(sizeof *t);
    struct config cfg;
    enum status st;

    CHECK(t != NULL, "no memory");
    configure(&cfg);
    cfg.checkpoint.stop_at = 0;
    snprintf(cfg.checkpoint.resume, sizeof cfg.checkpoint.resume, "%s", made);
    st = trainer_open(t, &cfg, job, NULL);
    if (st == ST_OK)
        OK(trainer_close(t));
    free(t);
    return st;
}

/* ---- what is done to it, by rank 0 ---- */

/* A moment of the victim in the file of LAST: the ranks of the other half do not read it. */
static struct manifest_piece *piece_of_last(void)
{
    for (int i = 0; i < table.pieces; i++)
        if (!strcmp(table.piece[i].tensor, victim) && table.piece[i].kind == PART_V &&
            table.piece[i].file == LAST)
            return &table.piece[i];
    CHECK(0, "%s has no piece in the file of rank %d", victim, LAST);
    return NULL;
}

static void flip_bit(void)
{
    const struct manifest_piece *p = piece_of_last();

    checkpoint_case_flip(made, table.file[LAST].name, (size_t)(p->offset + p->bytes / 2), 3);
}

static void cut_off(void)
{
    char path[TEMP_PATH];

    temp_folder_write(temp_folder_path(path, made, table.file[LAST].name), file, file_bytes - 1);
}

static void take_away(void)
{
    char path[TEMP_PATH];

    CHECK(!unlink(temp_folder_path(path, made, table.file[LAST].name)), "it stays");
}

static void of_the_future(void)
{
    char path[TEMP_PATH], *copy = malloc(text_bytes + 1), *at;

    CHECK(copy != NULL, "no memory");
    memcpy(copy, text, text_bytes + 1);
    at = strstr(copy, "\"version\":1,");
    CHECK(at != NULL, "no version");
    at[10] = '2';
    temp_folder_write(temp_folder_path(path, made, MANIFEST_NAME), copy, text_bytes);
    free(copy);
}

/* Writes a table of n pieces whose hash is right. */
static void write_table(struct manifest_piece *piece, int n)
{
    struct manifest changed = table;

    changed.piece = piece;
    changed.pieces = n;
    manifest_sort(&changed);
    checkpoint_case_manifest(made, &changed);
    free(piece);
}

static struct manifest_piece *copy_table(int more)
{
    struct manifest_piece *piece = calloc((size_t)(table.pieces + more), sizeof *piece);

    CHECK(piece != NULL, "no memory");
    memcpy(piece, table.piece, (size_t)table.pieces * sizeof *piece);
    return piece;
}

static void without_moments(void)
{
    struct manifest_piece *piece = copy_table(0);
    int n = 0;

    for (int i = 0; i < table.pieces; i++)
        if (strcmp(table.piece[i].tensor, victim) != 0 || table.piece[i].kind != PART_V)
            piece[n++] = table.piece[i];
    write_table(piece, n);
}

static void renamed(void)
{
    struct manifest_piece *piece = copy_table(0);

    for (int i = 0; i < table.pieces; i++)
        if (!strcmp(piece[i].tensor, victim))
            snprintf(piece[i].tensor, sizeof piece[i].tensor, "model.other");
    write_table(piece, table.pieces);
}

/* One tensor more: a vector again under another name. */
static void unused(void)
{
    struct manifest_piece *piece = copy_table(table.pieces);
    int n = table.pieces;

    for (int i = 0; i < table.pieces; i++)
        if (!strcmp(piece[i].tensor, "model.norm.weight")) {
            piece[n] = piece[i];
            snprintf(piece[n++].tensor, sizeof piece[n].tensor, "model.spare.weight");
        }
    write_table(piece, n);
}

/* A vector that stands. */
static void reshaped(void)
{
    struct manifest_piece *piece = copy_table(0);

    for (int i = 0; i < table.pieces; i++) {
        struct manifest_piece *p = &piece[i];
        struct part_area a = p->area;

        if (strcmp(p->tensor, "model.norm.weight") != 0)
            continue;
        p->area = (struct part_area){.row = a.col, .col = a.row, .rows = a.cols, .cols = a.rows};
        p->rows = p->cols;
        p->cols = 1;
    }
    write_table(piece, table.pieces);
}

/* A NaN with which all hashes are right. */
static void not_finite(void)
{
    struct manifest_piece *piece = copy_table(0);
    const struct manifest_piece *p = piece_of_last();
    char path[TEMP_PATH], *bytes = malloc(file_bytes);
    const float bad = NAN;

    CHECK(bytes != NULL && p->dtype == DT_F32, "no place for it");
    memcpy(bytes, file, file_bytes);
    memcpy(bytes + p->offset + 8, &bad, sizeof bad);
    piece[p - table.piece].hash = hash_bytes(bytes + p->offset, (size_t)p->bytes);
    temp_folder_write(temp_folder_path(path, made, table.file[LAST].name), bytes, file_bytes);
    free(bytes);
    write_table(piece, table.pieces);
}

static const struct damage {
    void (*does)(void);
    enum status st;
    const char *where, *what; /* in the message */
} damages[] = {
    {flip_bit, ST_EFORMAT, "rank-00001.safetensors is damaged", "up_proj.up.weight"},
    {cut_off, ST_EFORMAT, "rank-00001.safetensors", "cut off"},
    {take_away, ST_EIO, "rank-00001.safetensors", "No such file"},
    {of_the_future, ST_EFORMAT, "manifest.json", "format version 2"},
    {without_moments, ST_EFORMAT, "manifest.json", "up_proj.up.weight (v) is missing"},
    {renamed, ST_EFORMAT, "safetensors: ", "model.other"},
    {unused, ST_EFORMAT, "safetensors: ", "model.spare.weight"},
    {reshaped, ST_EFORMAT, "safetensors: ", "model.norm.weight has shape [64, 1]"},
    {not_finite, ST_EFORMAT, "rank-00001.safetensors", "up_proj.up.weight (v)"},
};

START_TEST(damage_is_refused_by_all)
{
    tiny_run_begin(job);
    make();
    OK(go_on());
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const struct damage *d = &damages[i];
        enum status st;

        if (rank == 0) {
            restore();
            d->does();
        }
        OK(host_barrier(job));
        st = go_on();
        CHECK(st == d->st, "damage %zu: status %d: %s", i, (int)st, status_message());
        CHECK(rank == 0 ? strstr(status_message(), d->where) && strstr(status_message(), d->what)
                        : !status_message()[0],
              "damage %zu: '%s'", i, status_message());
        status_clear();
        OK(host_barrier(job));
    }
    if (rank == 0)
        restore();
    OK(host_barrier(job));
    OK(go_on());
    if (rank == 0) {
        free(text);
        free(file);
        manifest_free(&table);
        temp_folder_remove(folder);
    }
    OK(host_barrier(job));
}
END_TEST

static Suite *make_suite(void)
{
    Suite *s = suite_create("refused");
    TCase *tc = tcase_create("all");

    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, damage_is_refused_by_all);
    suite_add_tcase(s, tc);
    return s;
}

int main(int argc, char **argv)
{
    if (host_start(&job, &argc, &argv) != ST_OK)
        return EXIT_FAILURE;
    rank = host_rank(job);
    log_open(rank, rank == 0, LOG_WARN);
    return check_job(job, make_suite());
}
