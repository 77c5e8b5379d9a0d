/* Checkpoints beside plain writes and reads of the same bytes, and what a save costs training. */
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/cli/bench.h"
#include "common/train/saver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EVERY = 20 }; /* steps between the saves of a run, for the share of the stall */

/* Seconds, of all rounds; the slowest rank's. */
struct timings {
    double write[BENCH_ROUNDS], save[BENCH_ROUNDS], check[BENCH_ROUNDS], read[BENCH_ROUNDS],
        load[BENCH_ROUNDS], stall[BENCH_ROUNDS], step[BENCH_ROUNDS];
};

struct measure {
    struct bench *b;
    struct bench_case *c;
    struct saver saver;
    char folder[FOLDER_PATH];
    struct timings t;
    int64_t saved; /* steps that were saved: each checkpoint has another */
};

static enum status slowest(struct measure *m, double *out, double seconds)
{
    TRY(host_max_f64(m->b->job, &seconds, 1));
    *out = seconds;
    return ST_OK;
}

enum { KEPT = 2 }; /* plain files, as many as checkpoints are kept */

/* The plain file of a round; unlinked when it is older than those that are kept. */
static void plain_path(char path[FOLDER_PATH + 32], const struct measure *m, int round)
{
    snprintf(path, FOLDER_PATH + 32, "%s/plain-%d-%d", m->folder, host_rank(m->b->job), round);
}

static void plain_remove(const struct measure *m, int round)
{
    char path[FOLDER_PATH + 32];

    plain_path(path, m, round);
    (void)unlink(path);
}

/* This rank's image by one write to a new file, put on disk. */
static enum status plain_write(struct measure *m, int round, double *out)
{
    const struct snapshot *s = &m->saver.snap;
    char path[FOLDER_PATH + 32];
    double start;
    enum status st;
    int fd;

    plain_path(path, m, round);
    TRY(host_barrier(m->b->job));
    start = bench_now();
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail(ST_EIO, "cannot write %s: %s", path, strerror(errno));
    st = folder_pwrite(fd, s->image, (size_t)s->file.bytes, 0, path);
    if (st == ST_OK && fdatasync(fd))
        st = fail(ST_EIO, "cannot put %s on disk: %s", path, strerror(errno));
    close(fd);
    TRY(st);
    TRY(slowest(m, out, bench_now() - start));
    plain_remove(m, round - KEPT);
    return ST_OK;
}

static enum status plain_read(struct measure *m, int round, double *out)
{
    size_t n = (size_t)m->saver.snap.file.bytes, done = 0;
    char path[FOLDER_PATH + 32], *buffer = malloc(n);
    double start = bench_now();
    int fd;

    plain_path(path, m, round);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    while (buffer && fd >= 0 && done < n) {
        ssize_t got = read(fd, buffer + done, n - done);

        if (got <= 0)
            break;
        done += (size_t)got;
    }
    if (fd >= 0)
        close(fd);
    free(buffer);
    if (done < n)
        return fail(ST_EIO, "cannot read %s", path);
    return slowest(m, out, bench_now() - start);
}

/* One checkpoint; wait: to its end. */
static enum status save(struct measure *m, int wait)
{
    struct manifest_state state = {.step = ++m->saved};

    TRY(saver_save(&m->saver, &m->c->cfg, &state, wait));
    return m->saver.failure[0] ? fail(ST_EIO, "%s", m->saver.failure) : ST_OK;
}

static enum status load(struct measure *m, double *out)
{
    struct checkpoint_read count;
    char path[FOLDER_PATH];
    struct manifest man;
    double start = bench_now();
    enum status st;

    TRY(checkpoint_path(path, m->saver.root, m->saved));
    TRY(manifest_read(&man, path));
    st = checkpoint_load(&m->c->step.model.params, m->c->place.at.dev, path, &man, &count);
    manifest_free(&man);
    TRY(st);
    return slowest(m, out, bench_now() - start);
}

static enum status one_step(struct measure *m, int i, double *out)
{
    struct bench_case *c = m->c;
    int64_t valid = c->cfg.train.batch * c->cfg.train.seq;
    struct step_result r;
    double start = bench_now();

    TRY(step_train(&c->step, c->tokens, c->targets, valid, i + 1, 0.0, &r));
    return slowest(m, out, bench_now() - start);
}

static enum status timed_save(struct measure *m, int i)
{
    double start = bench_now();

    TRY(save(m, 1));
    TRY(slowest(m, &m->t.check[i], bench_now() - start));
    return slowest(m, &m->t.save[i], m->saver.written);
}

/* Plain files and checkpoints take turns in coming first: a disk slows down as it is written to. */
static enum status round_of(struct measure *m, int i)
{
    TRY(one_step(m, i, &m->t.step[i]));
    if (i % 2)
        TRY(timed_save(m, i));
    TRY(plain_write(m, i, &m->t.write[i]));
    if (i % 2 == 0)
        TRY(timed_save(m, i));
    TRY(plain_read(m, i, &m->t.read[i]));
    TRY(load(m, &m->t.load[i]));
    TRY(save(m, 0));
    TRY(slowest(m, &m->t.stall[i], m->saver.stall));
    return saver_wait(&m->saver);
}

/* Percent of the plain rate, median of the rounds: a disk that has its moods has one in a round. */
static double share(const double *plain, const double *ours, int n)
{
    double percent[BENCH_ROUNDS];

    for (int i = 0; i < n; i++)
        percent[i] = 100.0 * plain[i] / ours[i];
    return bench_median(percent, n);
}

static void print(struct measure *m, double bytes)
{
    int n = m->b->rounds;
    double saved = share(m->t.write, m->t.save, n), loaded = share(m->t.read, m->t.load, n);
    double write = bench_median(m->t.write, n), save = bench_median(m->t.save, n);
    double read = bench_median(m->t.read, n), got = bench_median(m->t.load, n);
    double stall = bench_median(m->t.stall, n), step = bench_median(m->t.step, n);
    char size[TEXT_NUMBER];

    log_info("checkpoint of %s, median of %d", text_bytes(size, bytes), n);
    log_info("  plain write and sync   %8.1f MiB/s", bytes / write / 1048576.0);
    log_info("  save: write and sync   %8.1f MiB/s  %.0f %% of it, round by round",
             bytes / save / 1048576.0, saved);
    log_info("  save, read back, commit  %.3f s in all", bench_median(m->t.check, n));
    log_info("  plain read             %8.1f MiB/s", bytes / read / 1048576.0);
    log_info("  load and verify        %8.1f MiB/s  %.0f %% of it, round by round",
             bytes / got / 1048576.0, loaded);
    log_info("  stall of a save        %8.1f ms, %.1f %% of a step of %.0f ms; %.2f %% of training "
             "with one save in %d steps",
             1e3 * stall, 100.0 * stall / step, 1e3 * step, 100.0 * stall / step / EVERY, EVERY);
}

static void clean(struct measure *m)
{
    char path[FOLDER_PATH + 32];

    for (int i = 0; i < m->b->rounds; i++)
        plain_remove(m, i);
    if (host_barrier(m->b->job) != ST_OK || host_rank(m->b->job) != 0)
        return;
    for (int64_t step = 1; step <= m->saved; step++)
        if (checkpoint_remove(m->saver.root, step) != ST_OK)
            status_clear();
    snprintf(path, sizeof path, "%s/" CHECKPOINT_LATEST, m->saver.root);
    (void)unlink(path);
    (void)rmdir(m->saver.root);
    (void)rmdir(m->folder);
}

static enum status rounds(struct measure *m)
{
    double bytes = (double)m->saver.snap.file.bytes, sum = 0.0, *all;
    int n = host_size(m->b->job);
    enum status st;

    for (int i = 0; i < m->b->rounds; i++)
        TRY(round_of(m, i));
    all = calloc((size_t)n, sizeof *all);
    st = all ? host_gather(m->b->job, all, &bytes, sizeof bytes)
             : fail(ST_ENOMEM, "no memory for sizes");
    for (int i = 0; st == ST_OK && i < n; i++)
        sum += all[i];
    free(all);
    TRY(st);
    print(m, sum);
    return ST_OK;
}

enum status bench_checkpoint(struct bench *b)
{
    struct measure *m = calloc(1, sizeof *m);
    char root[FOLDER_PATH];
    enum status st = ST_OK;

    if (!m)
        return fail(ST_ENOMEM, "no memory for a bench");
    m->b = b;
    m->c = &b->item[0];
    snprintf(m->folder, sizeof m->folder, "%s.bench", m->c->cfg.run.dir);
    if (host_rank(b->job) == 0 && mkdir(m->folder, 0777))
        st = fail(ST_EIO, "cannot make the folder %s: %s; set run.dir", m->folder, strerror(errno));
    st = host_agree(b->job, st);
    if (st == ST_OK)
        st = folder_join(root, m->folder, CHECKPOINT_FOLDER);
    if (st == ST_OK)
        st = saver_open(&m->saver, &m->c->place, &m->c->step.model.params, &m->c->cfg, root, -1);
    if (st == ST_OK) {
        st = host_agree(b->job, rounds(m));
        clean(m);
        saver_close(&m->saver);
    }
    free(m);
    return st;
}
