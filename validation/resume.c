/* A run that was stopped or killed, wherever that was, and goes on in another layout ends with the
 * bits of one that was not; what was saved is not lost. */
#include "common/base/rng.h"
#include "validation/chain.h"

#include <errno.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct form {
    const char *name, *words;
    int quick;
};

static const struct form forms[] = {
    {"cola btp", "model.layer=cola", 1},
    {"full tied", "model.layer=full model.tied=on", 0},
    {"svd btp", "model.layer=svd", 0},
    {"cola vanilla", "model.layer=cola parallel.strategy=vanilla", 0},
    {"cola btp bf16", "model.layer=cola train.precision=bf16", 0},
    {"cola pure bf16", "model.layer=cola train.precision=bf16 train.pure_bf16=on", 0},
};

/* 7 steps in the first, 13 in the second. */
static const struct {
    const char *name, *first, *second;
} moves[] = {
    {"tp 1, tp 2 x dp 2 in micro-batches", "parallel.tp=1 parallel.dp=1",
     "parallel.tp=2 parallel.dp=2 train.micro_batch=2"},
    {"tp 2, pp 2 x dp 2 with zero", "parallel.tp=2 parallel.dp=1",
     "parallel.tp=1 parallel.pp=2 parallel.dp=2 parallel.zero=1 train.micro_batch=1"},
    {"dp 2 in micro-batches, tp 4 recomputed", "parallel.tp=1 parallel.dp=2 train.micro_batch=1",
     "parallel.tp=4 parallel.dp=1 parallel.recompute=block"},
};

struct table {
    const char *name; /* of the form */
    const struct check_options *o;
    struct report *r;
    struct chain chain;
    char whole[20]; /* the hash of 20 steps without a stop */
};

/* What a run left where it should not; the end of what it printed. */
static void show(struct table *t, const struct link *l)
{
    size_t n = l->output ? strlen(l->output) : 0;

    report_note(t->r, "%s", l->output ? l->output + (n > 600 ? n - 600 : 0) : "");
}

/* Runs to the end and compares with the run that was not stopped. */
static enum status finish(struct table *t, const char *words, const char *what)
{
    struct link l;
    int64_t newest;
    int bad, unfinished;

    TRY(chain_go(&l, &t->chain, NULL, "%s", words));
    TRY(chain_look(&t->chain, &newest, &bad, &unfinished));
    if (!report_equal(t->r, !l.failed && l.step == t->chain.steps && !strcmp(l.hash, t->whole),
                      l.hash, "%s", what))
        show(t, &l);
    if (bad || newest != t->chain.steps || unfinished)
        report_equal(t->r, 0, "-", "%s: newest checkpoint %lld, %d damaged, %d unfinished", what,
                     (long long)newest, bad, unfinished);
    link_close(&l);
    return ST_OK;
}

static enum status whole_run(struct table *t)
{
    struct link l;

    chain_run_folder(&t->chain, "whole");
    TRY(chain_go(&l, &t->chain, NULL, "parallel.tp=1 parallel.dp=1"));
    snprintf(t->whole, sizeof t->whole, "%s", l.hash);
    if (!report_equal(t->r, !l.failed && l.step == t->chain.steps, l.hash,
                      "%s: %d steps without a stop", t->name, t->chain.steps))
        show(t, &l);
    link_close(&l);
    return ST_OK;
}

/* ---- 7 and 13 ---- */

static enum status move(struct table *t, int i)
{
    struct link l;
    char name[32], what[256];

    snprintf(name, sizeof name, "move%d", i);
    chain_run_folder(&t->chain, name);
    TRY(chain_go(&l, &t->chain, NULL, "%s checkpoint.stop_at=7", moves[i].first));
    if (l.step != 7)
        show(t, &l);
    link_close(&l);
    snprintf(what, sizeof what, "%s: 7 and 13 steps in %s", t->name, moves[i].name);
    return finish(t, moves[i].second, what);
}

/* ---- signals ---- */

/* One segment that ends by a signal. *lost: the newest checkpoint is older than before. */
static enum status strike(struct table *t, const struct fault *fault, const char *words,
                          int64_t *newest, int *bad, int *during)
{
    int64_t before = *newest, now;
    int damaged, unfinished;
    struct link l;

    TRY(chain_go(&l, &t->chain, fault, "%s", words));
    TRY(chain_look(&t->chain, &now, &damaged, &unfinished));
    if (now < before || damaged || now < 0) {
        report_note(t->r, "checkpoint %lld before, %lld after the signal, %d damaged",
                    (long long)before, (long long)now, damaged);
        show(t, &l);
        *bad += 1;
    }
    *during += unfinished > 0;
    *newest = now;
    link_close(&l);
    return ST_OK;
}

/* Stopped in order by SIGTERM to one rank of two: its last step is the newest checkpoint's. */
static enum status terminated(struct table *t)
{
    const struct fault fault = {SIGTERM, 1, 300};
    int64_t newest;
    int bad, unfinished;
    struct link l;

    chain_run_folder(&t->chain, "term");
    TRY(chain_go(&l, &t->chain, &fault, "parallel.tp=2 parallel.dp=1 checkpoint.every=3"));
    TRY(chain_look(&t->chain, &newest, &bad, &unfinished));
    if (!report_equal(t->r,
                      l.failed && strstr(l.output, "stopped on request") && newest == l.step &&
                          newest < t->chain.steps && !bad && !unfinished,
                      l.hash, "SIGTERM to one rank: it saves and leaves"))
        show(t, &l);
    link_close(&l);
    return finish(t, "parallel.tp=1 parallel.dp=2", "SIGTERM, then on in dp 2");
}

/* Killed again and again at moments that are spread over steps and saves, until `wanted` of them
 * have cut a save short. */
static enum status killed(struct table *t, int wanted)
{
    static const char *const layouts[] = {"parallel.tp=1 parallel.dp=1",
                                          "parallel.tp=2 parallel.dp=1",
                                          "parallel.tp=1 parallel.dp=2"};
    struct rng_key key = rng_key(1, RNG_FAULT, 0);
    int64_t newest = -1;
    int bad = 0, during = 0, n = 0;
    char words[256], found[64];

    chain_run_folder(&t->chain, "killed");
    for (; during < wanted && n < 4 * wanted + 4 && newest < t->chain.steps; n++) {
        uint64_t ranks = n % 3 ? 2 : 1, i = (uint64_t)n;
        struct fault fault = {SIGKILL, (int)rng_below(&key, 2 * i, ranks),
                              (int)rng_below(&key, 2 * i + 1, 1000)};

        snprintf(words, sizeof words, "%s checkpoint.every=1 checkpoint.async=%s", layouts[n % 3],
                 n % 2 ? "on" : "off");
        TRY(strike(t, &fault, words, &newest, &bad, &during));
    }
    snprintf(found, sizeof found, "%d, %d in a save", n, during);
    report_equal(t->r, !bad && during == wanted, found,
                 "SIGKILL at random moments: no checkpoint lost");
    return finish(t, layouts[1], "SIGKILL, then on to the end");
}

/* ---- a full disk ---- */

enum { DISK = 12 << 20, ROOM = 1 << 20 }; /* room for weights, not for a checkpoint */

/* A file that leaves ROOM bytes of the disk at dir free. */
static enum status fill(const char *path)
{
    static const char zeros[4096] = {0};
    FILE *f = fopen(path, "w");
    struct statvfs disk;

    if (!f)
        return fail(ST_EIO, "cannot write %s: %s", path, strerror(errno));
    while (!fstatvfs(fileno(f), &disk) && disk.f_bavail * disk.f_frsize > ROOM &&
           fwrite(zeros, 1, sizeof zeros, f) == sizeof zeros)
        fflush(f);
    fclose(f);
    return ST_OK;
}

/* Saves fail, training goes on to its end, the run says so by its status; what was saved stays. */
static enum status goes_on(struct table *t)
{
    struct link l;
    int64_t newest;
    int bad, unfinished;

    TRY(chain_go(&l, &t->chain, NULL, "parallel.tp=2 parallel.dp=1 checkpoint.every=5"));
    TRY(chain_look(&t->chain, &newest, &bad, &unfinished));
    if (!report_equal(t->r,
                      l.failed && !strcmp(l.hash, t->whole) && newest == 10 && !bad &&
                          !unfinished && strstr(l.output, "was not saved") &&
                          strstr(l.output, "could not be saved"),
                      l.hash, "a full disk: training goes on, step 10 stays, the status says so"))
        show(t, &l);
    link_close(&l);
    return ST_OK;
}

static enum status full_disk_on(struct table *t, const char *disk)
{
    char path[TEMPDIR_PATH + 64];
    struct link l;

    snprintf(path, sizeof path, "%s/filler", disk);
    chain_run_folder(&t->chain, "disk/run");
    TRY(chain_go(&l, &t->chain, NULL,
                 "parallel.tp=1 parallel.dp=1 checkpoint.every=5 checkpoint.stop_at=10"));
    link_close(&l);
    TRY(fill(path));
    TRY(goes_on(t));
    unlink(path);
    return finish(t, "parallel.tp=1 parallel.dp=2", "a full disk, then on from step 10 with room");
}

static enum status full_disk(struct table *t)
{
    char disk[TEMPDIR_PATH + 32], size[32];
    enum status st;

    chain_run_folder(&t->chain, "disk");
    snprintf(disk, sizeof disk, "%s", t->chain.dir);
    snprintf(size, sizeof size, "size=%d", (int)DISK);
    if (mkdir(disk, 0777) || mount("narrows", disk, "tmpfs", 0, size)) {
        report_note(t->r, "left out: a full disk (no small disk can be mounted here: %s)",
                    strerror(errno));
        return ST_OK;
    }
    st = full_disk_on(t, disk);
    umount(disk);
    return st;
}

/* ---- all of it ---- */

static enum status moves_of(struct table *t)
{
    TRY(whole_run(t));
    for (int i = 0; i < (int)(sizeof moves / sizeof *moves); i++)
        TRY(move(t, i));
    return ST_OK;
}

static enum status with_chain(const struct check_options *o, struct report *r, const struct form *f,
                              int steps, enum status (*rows)(struct table *t))
{
    struct table t = {.name = f->name, .o = o, .r = r};
    enum status st;

    TRY(chain_open(&t.chain, o, f->words, steps));
    st = rows(&t);
    chain_close(&t.chain);
    return st;
}

/* The first form has its base already. */
static enum status moves_and_disk(struct table *t)
{
    TRY(moves_of(t));
    return full_disk(t);
}

static enum status signals(struct table *t)
{
    TRY(whole_run(t));
    TRY(terminated(t));
    return killed(t, t->o->quick ? 2 : 20);
}

enum { MOVED = 20, STRUCK = 400 }; /* steps: enough for all signals to come before the end */

enum status check_resume(const struct check_options *o, struct report *r)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (check_wanted(o, forms[i].name) && (!o->quick || forms[i].quick))
            TRY(with_chain(o, r, &forms[i], MOVED, i ? moves_of : moves_and_disk));
    return check_wanted(o, "signals") ? with_chain(o, r, &forms[0], STRUCK, signals) : ST_OK;
}
