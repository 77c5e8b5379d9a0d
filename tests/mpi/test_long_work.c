/* Reported faults, row L08: work of one rank that outlasts the time limit (a text that it reads
 * slowly, a checkpoint, weights that go to a slow disk, a sample of text) does not end the others,
 * while a rank that stands still does.
 * ranks: 2 */
#include "common/base/log.h"
#include "common/train/generate.h"
#include "common/train/trainer.h"
#include "tests/mpi/check_job.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/tiny_run.h"

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#undef fail
#define OK(expr)         TINY_OK(job, expr)
#define CHECK(cond, ...) TINY_CHECK(job, cond, __VA_ARGS__)

static const double limit = 1.0; /* seconds; and what takes longer */
static const double work_seconds = 2.2;
static const double run_limit = 2.5; /* of a whole run: real work comes beside */
static const double call_seconds = 3.5;

enum call { NONE, READ, PREAD, FSYNC };
enum { SMALL = 1 << 16 }; /* bytes: texts beside weights */

static struct host *job;
static int rank;
static enum call slow; /* the call that takes so long once, on the main thread */
static pthread_t main_thread;

static void pass(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds};

    t.tv_nsec = (long)(1e9 * (seconds - (double)t.tv_sec));
    nanosleep(&t, NULL);
}

static void delay(enum call call, int fd)
{
    struct stat info;

    if (slow != call || !pthread_equal(pthread_self(), main_thread) || fstat(fd, &info) ||
        !S_ISREG(info.st_mode) || (call == FSYNC && info.st_size < SMALL))
        return;
    slow = NONE;
    pass(call_seconds);
}

/* The C library's, for this program. */
ssize_t read(int fd, void *out, size_t n)
{
    delay(READ, fd);
    return syscall(SYS_read, fd, out, n);
}

ssize_t pread(int fd, void *out, size_t n, off_t at)
{
    delay(PREAD, fd);
    return syscall(SYS_pread64, fd, out, n, at);
}

int fsync(int fd)
{
    delay(FSYNC, fd);
    return (int)syscall(SYS_fsync, fd);
}

static void set_up(void)
{
    tiny_run_begin(job);
    slow = NONE;
}

/* ---- the control plane ---- */

static enum status long_work(void *context)
{
    pass(work_seconds);
    *(int *)context = 1;
    return ST_OK;
}

/* One rank works, in silence, or calling host_alive, or under host_work; the others wait. */
START_TEST(l08_signs_of_life)
{
    int worked = 0;

    host_set_timeout(job, limit);
    if (rank == 1)
        OK(host_work(job, long_work, &worked));
    OK(host_agree(job, ST_OK));
    CHECK(worked == rank, "the work of rank %d", rank);
    for (double t = 0.0; rank == 0 && t < work_seconds; t += limit / 16) {
        pass(limit / 16);
        host_alive(job);
    }
    OK(host_barrier(job));
}
END_TEST

static enum status fails(void *context)
{
    (void)context;
    return fail(ST_EIO, "the disk fell over");
}

/* What the work says comes out, and the next wait has its limit again. */
START_TEST(l08_after_it)
{
    enum status st = ST_OK;

    CHECK(host_work(NULL, fails, NULL) == ST_EIO, "without a group");
    status_clear();
    host_set_timeout(job, limit);
    if (rank == 1)
        st = host_work(job, fails, NULL);
    CHECK(host_agree(job, st) == ST_EIO, "status %d", (int)st);
    status_clear();
    st = ST_OK;
    if (rank == 1)
        st = host_barrier(job);
    while (rank == 0 && !host_raised(job))
        pass(0.001);
    if (rank == 1)
        CHECK(st == ST_ECOMM, "a silent rank was waited for");
    host_set_timeout(job, 60);
    CHECK(host_agree(job, st) == ST_ECOMM, "status %d", (int)st);
    status_clear();
}
END_TEST

/* ---- a run ---- */

static void configure(struct config *cfg, const char *folder, const char *run)
{
    char words[3][TEMP_PATH + 64];

    tiny_run_config(cfg, tiny_t4, NULL, (struct tiny_layout){1, host_size(job), 0});
    snprintf(words[0], sizeof words[0], "data.train=%s/text", folder);
    snprintf(words[1], sizeof words[1], "run.dir=%s/%s", folder, run);
    snprintf(words[2], sizeof words[2], "parallel.timeout=%g", run_limit);
    for (int i = 0; i < 3; i++)
        OK(config_override(cfg, words[i]));
    cfg->train.steps = 2;
    cfg->train.warmup = 1;
    cfg->train.eval_every = 0;
    cfg->checkpoint.every = 1;
}

static void write_text(char *folder)
{
    char path[TEMP_PATH + 32];
    size_t n;

    if (rank == 0) {
        char *text;

        temp_folder_make(folder);
        text =
            temp_folder_read(temp_folder_source(path, "examples/data/tinyshakespeare/val.txt"), &n);
        temp_folder_write(temp_folder_path(path, folder, "text"), text, 4096);
        free(text);
    }
    OK(host_broadcast(job, folder, TEMP_PATH, 0));
}

/* Rank 0's next call of that kind is slow; it must come to be made. */
static void open_slowly(struct trainer *t, const struct config *cfg, enum call call)
{
    if (rank == 0)
        slow = call;
    OK(trainer_open(t, cfg, job, NULL));
    CHECK(slow == NONE, "nothing was slow");
}

static enum status slow_text(void *context, const char *bytes, int64_t n)
{
    (void)bytes;
    (void)n;
    (*(int *)context)++;
    pass(run_limit / 2);
    return ST_OK;
}

/* The first replica writes text while the other waits. */
static void sample(struct trainer *t)
{
    struct generate_request q = generate_request(&t->cfg);
    struct generate_result r;
    enum status st = ST_OK;
    int pieces = 0;

    q.tokens = 4;
    q.past_end = 1;
    q.write = slow_text;
    q.context = &pieces;
    if (rank == 0)
        st = generate_text(&r, &t->step.model, &t->place.at, &t->tokenizer, &q);
    OK(host_agree(job, st));
    CHECK(rank > 0 || pieces > 2, "%d pieces", pieces);
}

START_TEST(l08_a_run_with_a_slow_rank)
{
    struct trainer *t = malloc(sizeof *t);
    char folder[TEMP_PATH] = "";
    struct config cfg;

    CHECK(t != NULL, "no memory");
    write_text(folder);
    configure(&cfg, folder, "run");
    open_slowly(t, &cfg, READ);
    if (rank == 0)
        slow = FSYNC;
    OK(trainer_run(t));
    CHECK(slow == NONE, "nothing was slow");
    sample(t);
    OK(trainer_close(t));

    snprintf(cfg.checkpoint.resume, sizeof cfg.checkpoint.resume, "auto");
    cfg.train.steps = 3;
    open_slowly(t, &cfg, PREAD);
    CHECK(t->done == 2, "it went on from step %d", (int)t->done);
    OK(trainer_close(t));

    OK(host_barrier(job));
    if (rank == 0)
        temp_folder_remove(folder);
    free(t);
}
END_TEST

static Suite *make_suite(void)
{
    Suite *s = suite_create("long work");
    TCase *tc = tcase_create("all");

    tcase_set_timeout(tc, 120);
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_add_test(tc, l08_signs_of_life);
    tcase_add_test(tc, l08_after_it);
    tcase_add_test(tc, l08_a_run_with_a_slow_rank);
    suite_add_tcase(s, tc);
    return s;
}

int main(int argc, char **argv)
{
    if (host_start(&job, &argc, &argv) != ST_OK)
        return EXIT_FAILURE;
    rank = host_rank(job);
    main_thread = pthread_self();
    log_open(rank, rank == 0, LOG_WARN);
    return check_job(job, make_suite());
}
