#include "common/train/saver.h"

#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/text.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int leads(const struct saver *s)
{
    return host_rank(s->job) == 0;
}

/* ---- the threads ---- */

enum { NICE = 10 };

/* What every thread does first and last. Training has the processor first; signals are the main
 * thread's. */
static void begin_thread(void)
{
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, NULL);
    (void)setpriority(PRIO_PROCESS, 0, NICE); /* on Linux: of this thread */
}

static void end_work(struct saver *s, enum status st)
{
    s->st = st;
    snprintf(s->message, sizeof s->message, "%s", st == ST_OK ? "" : status_message());
    status_clear();
    atomic_store(&s->done, 1);
}

static enum status write_file(struct saver *s)
{
    double start = now();

    TRY(checkpoint_write(s->folder, &s->snap));
    s->written = now() - start;
    return checkpoint_read_back(s->folder, &s->snap);
}

/* Nothing is removed before the new one is there. A pruning that fails is no failed save. */
static enum status commit(struct saver *s)
{
    enum status st;

    TRY(checkpoint_commit(s->folder, s->root, &s->manifest));
    st = checkpoint_hint(s->root, s->step);
    if (st == ST_OK)
        st = checkpoint_prune(&s->removed, s->root, s->keep);
    snprintf(s->trouble, sizeof s->trouble, "%s", st == ST_OK ? "" : status_message());
    status_clear();
    return ST_OK;
}

static void *writer_thread(void *context)
{
    begin_thread();
    end_work(context, write_file(context));
    return NULL;
}

static void *commit_thread(void *context)
{
    begin_thread();
    end_work(context, commit(context));
    return NULL;
}

/* A thread even where it is waited for: ranks that are done meanwhile poll, and no wait is longer
 * than its time limit. */
static void work(struct saver *s, void *(*thread)(void *))
{
    atomic_store(&s->done, 0);
    s->joinable = !pthread_create(&s->thread, NULL, thread, s);
    if (!s->joinable)
        end_work(s, fail(ST_EINTERNAL, "no thread to write a checkpoint with"));
}

static void join(struct saver *s)
{
    if (s->joinable)
        pthread_join(s->thread, NULL);
    s->joinable = 0;
}

/* ---- opening ---- */

static enum status sweep(void *context)
{
    const struct saver *s = context;

    return checkpoint_sweep(s->root);
}

enum status saver_open(struct saver *s, const struct place *place, const struct params *p,
                       const struct config *cfg, const char *root, int64_t saved)
{
    struct part_owner at = {.replica = place->at.dp->rank, .replicas = place->at.dp->size};
    enum status st;

    memset(s, 0, sizeof *s);
    s->job = place->job;
    s->dev = place->at.dev;
    s->async = cfg->checkpoint.async;
    s->keep = (struct checkpoint_keep){.last = cfg->checkpoint.keep_last,
                                       .every = cfg->checkpoint.keep_every};
    s->saved = saved;
    snprintf(s->root, sizeof s->root, "%s", root);
    st = snapshot_open(&s->snap, p, at, host_rank(s->job));
    if (st == ST_OK && leads(s))
        st = host_work(s->job, sweep, s);
    st = host_agree(s->job, st);
    if (st != ST_OK)
        saver_close(s);
    return st;
}

void saver_close(struct saver *s)
{
    join(s);
    if (s->phase != SAVER_IDLE && s->job && leads(s) && s->folder[0])
        checkpoint_drop(s->folder);
    manifest_free(&s->manifest);
    snapshot_close(&s->snap);
    memset(s, 0, sizeof *s);
}

/* ---- the manifest ---- */

/* Every rank's table to rank 0: all of one length, the longest. */
static enum status gather_pieces(struct saver *s, struct manifest *m)
{
    int n = host_size(s->job);
    double most = s->snap.parts.n;
    size_t room, bytes;
    struct manifest_piece *mine, *all;
    enum status st;

    TRY(host_max_f64(s->job, &most, 1));
    room = (size_t)most + 1;
    bytes = room * sizeof *mine;
    mine = calloc(room, sizeof *mine);
    all = calloc(room * (size_t)n, sizeof *all);
    st = mine && all ? ST_OK : fail(ST_ENOMEM, "no memory for a manifest of %d ranks", n);
    if (st == ST_OK) {
        memcpy(mine, s->snap.entry, (size_t)s->snap.parts.n * sizeof *mine);
        st = host_gather(s->job, all, mine, bytes);
    }
    free(mine);
    for (size_t i = 0; st == ST_OK && i < room * (size_t)n; i++)
        if (all[i].tensor[0])
            all[m->pieces++] = all[i];
    m->piece = all;
    return st;
}

static enum status gather_files(struct saver *s, struct manifest *m)
{
    m->files = m->ranks = host_size(s->job);
    m->file = calloc((size_t)m->files, sizeof *m->file);
    if (!m->file)
        return fail(ST_ENOMEM, "no memory for a manifest of %d files", m->files);
    return host_gather(s->job, m->file, &s->snap.file, sizeof *m->file);
}

static enum status make_manifest(struct saver *s, const struct config *cfg,
                                 const struct manifest_state *state)
{
    struct manifest *m = &s->manifest;

    manifest_free(m);
    memset(m, 0, sizeof *m);
    m->cfg = *cfg;
    m->state = *state;
    TRY(gather_files(s, m));
    TRY(gather_pieces(s, m));
    manifest_sort(m);
    return ST_OK;
}

/* ---- the steps of a save ---- */

/* Gives up the save under way. st, on any rank: why. Collective. */
static enum status give_up(struct saver *s, enum status st)
{
    /* host_agree would end the groups that training needs */
    (void)host_settle(s->job, st);
    if (leads(s) && s->folder[0])
        checkpoint_drop(s->folder);
    s->phase = SAVER_IDLE;
    snprintf(s->failure, sizeof s->failure, "%s", leads(s) ? status_message() : "a save failed");
    status_clear();
    if (s->saved >= 0)
        log_warn("the checkpoint of step %lld was not saved: %s; training goes on, the newest "
                 "checkpoint is that of step %lld",
                 (long long)s->step, s->failure, (long long)s->saved);
    else
        log_warn("the checkpoint of step %lld was not saved: %s; training goes on, and there is "
                 "no checkpoint yet",
                 (long long)s->step, s->failure);
    return ST_OK;
}

/* The folder to write to, made by rank 0, known to all. */
static enum status begin_folder(struct saver *s)
{
    struct timespec t;
    enum status st = ST_OK;

    s->folder[0] = '\0';
    if (leads(s)) {
        clock_gettime(CLOCK_REALTIME, &t);
        st = checkpoint_begin(s->folder, s->root, s->step,
                              hash_more((uint64_t)getpid(), &t, sizeof t));
    }
    TRY(host_broadcast(s->job, s->folder, sizeof s->folder, 0));
    return st;
}

static enum status begin_writing(struct saver *s)
{
    double failed;
    enum status st = begin_folder(s);

    failed = st != ST_OK;
    TRY(host_max_f64(s->job, &failed, 1));
    if (failed > 0.0)
        return give_up(s, st);
    s->phase = SAVER_WRITING;
    work(s, writer_thread);
    return ST_OK;
}

enum status saver_save(struct saver *s, const struct config *cfg,
                       const struct manifest_state *state, int wait)
{
    double start = now();
    int busy = s->phase != SAVER_IDLE;
    int64_t before = s->step;

    TRY(saver_wait(s));
    if (busy)
        log_warn("the checkpoint of step %lld waited %.0f ms for the end of that of step %lld: "
                 "saves take longer than checkpoint.every %lld steps, set it higher",
                 (long long)state->step, 1e3 * (now() - start), (long long)before,
                 (long long)cfg->checkpoint.every);
    s->step = state->step;
    TRY(host_agree(s->job, snapshot_take(&s->snap, s->dev)));
    TRY(host_agree(s->job, make_manifest(s, cfg, state)));
    s->began = now();
    TRY(begin_writing(s));
    s->stall = now() - start;
    if (!wait && s->async)
        return ST_OK;
    TRY(saver_wait(s));
    s->stall = now() - start;
    return ST_OK;
}

void saver_flags(const struct saver *s, double flag[SAVER_FLAGS])
{
    int busy = s->phase != SAVER_IDLE && !atomic_load(&s->done);

    flag[0] = busy;
    flag[1] = s->phase != SAVER_IDLE && !busy && s->st != ST_OK;
}

static void tell(struct saver *s)
{
    char size[TEXT_NUMBER];

    log_info("checkpoint of step %lld  %s  stall %.0f ms  written and read back in %.2f s%s",
             (long long)s->step, text_bytes(size, (double)manifest_bytes(&s->manifest)),
             1e3 * s->stall, now() - s->began, s->removed ? "  an old one removed" : "");
    if (s->trouble[0])
        log_warn("old checkpoints were not removed: %s", s->trouble);
}

enum status saver_advance(struct saver *s, const double flag[SAVER_FLAGS])
{
    if (s->phase == SAVER_IDLE || flag[0] > 0.0)
        return ST_OK;
    join(s);
    if (flag[1] > 0.0)
        return give_up(s, s->st == ST_OK ? ST_OK : fail(s->st, "%s", s->message));
    if (s->phase == SAVER_WRITING) {
        s->phase = SAVER_COMMITTING;
        if (leads(s))
            work(s, commit_thread);
        return ST_OK;
    }
    s->phase = SAVER_IDLE;
    s->saved = s->step;
    s->failure[0] = '\0';
    tell(s);
    return ST_OK;
}

enum status saver_wait(struct saver *s)
{
    const struct timespec turn = {.tv_nsec = 1000000};
    double flag[SAVER_FLAGS];

    while (s->phase != SAVER_IDLE) {
        saver_flags(s, flag);
        TRY(host_max_f64(s->job, flag, SAVER_FLAGS));
        TRY(saver_advance(s, flag));
        if (flag[0] > 0.0)
            nanosleep(&turn, NULL);
    }
    return ST_OK;
}
