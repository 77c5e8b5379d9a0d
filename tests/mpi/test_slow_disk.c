/* Reported faults, rows C04, K3, K4: saves beside training on a disk that takes longer than the
 * steps between them. Never two at once, and it is said; what is saved is the snapshot: each
 * weight, master and moment holds the bits that the run had after that very step, and the
 * checkpoints are those of a run that waits for every save.
 * ranks: 1 2 */
#include "common/base/log.h"
#include "common/train/trainer.h"
#include "tests/mpi/check_job.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/tiny_run.h"

#include <check.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#undef fail
#define OK(expr)         TINY_OK(job, expr)
#define CHECK(cond, ...) TINY_CHECK(job, cond, __VA_ARGS__)

enum { STEPS = 6, SLOW_MS = 150 };

static struct host *job;
static int rank;
static atomic_int slow, writing, most, written;
static struct trainer *running;
static unsigned char *had[STEPS + 1]; /* what the run had after each step: state_of() */

/* The C library's, for this program: slow when asked to be, and counted. */
int fdatasync(int fd)
{
    const struct timespec t = {.tv_nsec = SLOW_MS * 1000000L};
    int now = atomic_fetch_add(&writing, 1) + 1, result;

    if (now > atomic_load(&most))
        atomic_store(&most, now);
    atomic_fetch_add(&written, 1);
    if (atomic_load(&slow))
        nanosleep(&t, NULL);
    result = (int)syscall(SYS_fdatasync, fd);
    atomic_fetch_sub(&writing, 1);
    return result;
}

static void set_up(void)
{
    tiny_run_begin(job);
}

/* ---- what a run has in memory, on ref ---- */

enum { KINDS = 4 };

static void tensors_of(struct tensor out[KINDS], const struct param *row)
{
    out[0] = row->w;
    out[1] = row->master;
    out[2] = row->m;
    out[3] = row->v;
}

/* Bytes of all weights, masters and moments, also copied to out unless that is NULL. */
static size_t state_of(unsigned char *out, const struct params *p)
{
    size_t bytes = 0;

    for (int i = 0; i < p->n; i++) {
        struct tensor t[KINDS];

        tensors_of(t, &p->item[i]);
        for (int k = 0; k < KINDS; k++) {
            size_t n = t[k].data ? (size_t)tensor_count(&t[k]) * dtype_size(t[k].dtype) : 0;

            if (out && n)
                memcpy(out + bytes, t[k].data, n);
            bytes += n;
        }
    }
    return bytes;
}

/* Asked after each step, when its save has begun: nothing has changed since the snapshot. */
static int remember(void)
{
    const struct params *p = &running->step.model.params;
    unsigned char **at = &had[running->done];

    *at = malloc(state_of(NULL, p));
    if (*at)
        (void)state_of(*at, p);
    return 0;
}

/* Zeroes it and loads each checkpoint: nothing but what the run had then comes back. */
static void comes_back(struct trainer *t, const char *folder)
{
    struct params *p = &t->step.model.params;
    size_t n = state_of(NULL, p);
    unsigned char *now = malloc(n);

    CHECK(now != NULL && n > 0, "no memory");
    for (int step = 1; step <= STEPS; step++) {
        char path[TEMP_PATH + 96];
        struct checkpoint_read count;
        struct manifest m;

        snprintf(path, sizeof path, "%s/beside/checkpoints/step-%09d", folder, step);
        OK(manifest_read(&m, path));
        for (int i = 0; i < p->n; i++) {
            struct tensor kept[KINDS];

            tensors_of(kept, &p->item[i]);
            for (int k = 0; k < KINDS; k++)
                if (kept[k].data)
                    memset(kept[k].data, 0,
                           (size_t)tensor_count(&kept[k]) * dtype_size(kept[k].dtype));
        }
        OK(checkpoint_load(p, t->place.at.dev, path, &m, &count));
        manifest_free(&m);
        (void)state_of(now, p);
        CHECK(had[step] && !memcmp(now, had[step], n), "step %d is not as the run had it", step);
        CHECK(step == 1 || memcmp(now, had[step - 1], n) != 0, "step %d changes nothing", step);
    }
    free(now);
}

/* A run of STEPS steps that saves after each of them, into folder/name. */
static void run(const char *folder, const char *name, int async)
{
    static const char *const masters[] = {"train.precision=bf16", NULL};
    struct trainer *t = malloc(sizeof *t);
    char words[2][TEMP_PATH + 64];
    struct config cfg;

    CHECK(t != NULL, "no memory");
    running = t;
    tiny_run_config(&cfg, tiny_t4, masters, (struct tiny_layout){1, host_size(job), 0});
    snprintf(words[0], sizeof words[0], "data.train=%s/text", folder);
    snprintf(words[1], sizeof words[1], "run.dir=%s/%s", folder, name);
    for (int i = 0; i < 2; i++)
        OK(config_override(&cfg, words[i]));
    cfg.train.steps = STEPS;
    cfg.train.eval_every = 0;
    cfg.train.warmup = 1;
    cfg.checkpoint.every = 1;
    cfg.checkpoint.keep_last = STEPS;
    cfg.checkpoint.async = async;
    OK(trainer_open(t, &cfg, job, async ? remember : NULL));
    OK(trainer_run(t));
    if (async)
        comes_back(t, folder);
    OK(trainer_close(t));
    for (int i = 0; i <= STEPS; i++) {
        free(had[i]);
        had[i] = NULL;
    }
    free(t);
}

/* The pieces of both checkpoints of a step have the same hashes. */
static void same_pieces(const char *folder, int step)
{
    struct manifest m[2];

    for (int i = 0; i < 2; i++) {
        char path[TEMP_PATH + 96];
        struct checkpoint_read count;

        snprintf(path, sizeof path, "%s/%s/checkpoints/step-%09d", folder, i ? "beside" : "waiting",
                 step);
        OK(manifest_read(&m[i], path));
        OK(checkpoint_verify(path, &m[i], &count));
    }
    CHECK(m[0].pieces == m[1].pieces && m[0].pieces > 0, "%d pieces", m[0].pieces);
    for (int i = 0; i < m[0].pieces; i++)
        CHECK(m[0].piece[i].hash == m[1].piece[i].hash, "step %d: %s (%s) is of another step", step,
              m[0].piece[i].tensor, part_kind_name((enum part_kind)m[0].piece[i].kind));
    manifest_free(&m[0]);
    manifest_free(&m[1]);
}

START_TEST(c04_saves_on_a_slow_disk)
{
    char folder[TEMP_PATH] = "", path[TEMP_PATH + 32];
    size_t n;

    if (rank == 0) {
        char *text;

        temp_folder_make(folder);
        text =
            temp_folder_read(temp_folder_source(path, "examples/data/tinyshakespeare/val.txt"), &n);
        temp_folder_write(temp_folder_path(path, folder, "text"), text, 4096);
        free(text);
    }
    OK(host_broadcast(job, folder, sizeof folder, 0));
    run(folder, "waiting", 0);
    atomic_store(&slow, 1);
    atomic_store(&written, 0);
    run(folder, "beside", 1);
    atomic_store(&slow, 0);
    CHECK(atomic_load(&written) == STEPS, "%d files were written", atomic_load(&written));
    CHECK(atomic_load(&most) == 1, "%d saves at once", atomic_load(&most));
    OK(host_barrier(job));
    if (rank == 0) {
        char *log = temp_folder_read(temp_folder_path(path, folder, "beside/train.log"), &n);

        CHECK(strstr(log, "waited") && strstr(log, "set it higher"), "it is not said");
        free(log);
        for (int step = 1; step <= STEPS; step++)
            same_pieces(folder, step);
        temp_folder_remove(folder);
    }
    OK(host_barrier(job));
}
END_TEST

static Suite *make_suite(void)
{
    Suite *s = suite_create("slow disk");
    TCase *tc = tcase_create("all");

    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_add_test(tc, c04_saves_on_a_slow_disk);
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
