#include "validation/chain.h"

#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/folder.h"
#include "common/cli/commands.h"
#include "validation/cases.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { ARGUMENTS = 96, DOCUMENTS = 61, HELD_OUT = 9 };

/* ---- the folder ---- */

static enum status write_config(const struct chain *c)
{
    char path[TEMPDIR_PATH + 32];
    FILE *f;
    int bad;

    snprintf(path, sizeof path, "%s/train.txt", c->folder);
    TRY(case_text(path, DOCUMENTS));
    snprintf(path, sizeof path, "%s/validation.txt", c->folder);
    TRY(case_text(path, HELD_OUT));
    snprintf(path, sizeof path, "%s/tiny.yaml", c->folder);
    f = fopen(path, "w");
    if (!f)
        return fail(ST_EIO, "cannot write %s: %s", path, strerror(errno));
    fprintf(f,
            "data:\n  train: %s/train.txt\n  validation: %s/validation.txt\n  packing: off\n"
            "  document_separator: \"--\"\n",
            c->folder, c->folder);
    bad = ferror(f);
    return fclose(f) || bad ? fail(ST_EIO, "cannot write %s: %s", path, strerror(errno)) : ST_OK;
}

enum status chain_open(struct chain *c, const struct check_options *o, const char *words, int steps)
{
    enum status st;

    *c = (struct chain){.o = o, .words = words, .steps = steps};
    TRY(tempdir_make(c->folder));
    chain_run_folder(c, "run");
    st = write_config(c);
    if (st != ST_OK)
        chain_close(c);
    return st;
}

void chain_close(struct chain *c)
{
    tempdir_remove(c->folder);
}

void chain_run_folder(struct chain *c, const char *name)
{
    snprintf(c->dir, sizeof c->dir, "%s/%.30s", c->folder, name);
}

/* ---- a run ---- */

/* The last of the lines "hash after step N  HASH  loss L  norm N". */
static void read_last(struct link *l)
{
    static const char begin[] = "hash after step ";
    char *end;

    snprintf(l->hash, sizeof l->hash, "-");
    for (const char *at = l->output; at && (at = strstr(at, begin));) {
        at += sizeof begin - 1;
        l->step = strtoll(at, &end, 10);
        snprintf(l->hash, sizeof l->hash, "%.16s", end + strspn(end, " "));
    }
}

static int ranks_of(const char *const *word, int n)
{
    int ranks = 1;

    for (int i = 0; i < n; i++)
        if (!strncmp(word[i], "parallel.tp=", 12) || !strncmp(word[i], "parallel.dp=", 12) ||
            !strncmp(word[i], "parallel.pp=", 12))
            ranks *= (int)strtol(word[i] + 12, NULL, 10);
    return ranks;
}

enum status chain_go(struct link *l, struct chain *c, const struct fault *fault, const char *fmt,
                     ...)
{
    char more[CASE_WORDS], text[2 * CASE_WORDS + TEMPDIR_PATH], words[CASE_WORDS];
    char config[TEMPDIR_PATH + 32], kind[64] = "";
    const char *argv[ARGUMENTS] = {"train", config};
    int n = 2;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(more, sizeof more, fmt, ap);
    va_end(ap);
    snprintf(config, sizeof config, "%s/tiny.yaml", c->folder);
    snprintf(text, sizeof text,
             CASE_TINY "train.lr=3e-3 train.clip=0.5 train.eval_every=0 train.log_every=1000 %s "
                       "train.steps=%d run.dir=%s run.hash=on run.threads=1 parallel.timeout=60 "
                       "checkpoint.resume=auto %s",
             c->words, c->steps, c->dir, more);
    TRY(case_words(words, text));
    if (fault) {
        snprintf(kind, sizeof kind, "%d,%d,%d", fault->signal, fault->rank, fault->permille);
        argv[0] = "validate-job";
        argv[1] = "fault";
        argv[2] = kind;
        argv[3] = config;
        n = 4;
    }
    n += case_split(argv + n, ARGUMENTS - n - 1, words);
    argv[n] = NULL;
    memset(l, 0, sizeof *l);
    TRY(c->o->launch.run(&l->output, &l->failed, ranks_of(argv, n), argv));
    read_last(l);
    return ST_OK;
}

void link_close(struct link *l)
{
    free(l->output);
    l->output = NULL;
}

/* ---- what is left ---- */

static int count_unfinished(const char *root)
{
    DIR *dir = opendir(root);
    int n = 0;

    for (struct dirent *e; dir && (e = readdir(dir)) != NULL;)
        n += strstr(e->d_name, ".tmp.") || strstr(e->d_name, ".old.");
    if (dir)
        closedir(dir);
    return n;
}

static int is_whole(const char *root, int64_t step)
{
    struct checkpoint_read count;
    char path[FOLDER_PATH];
    struct manifest m;
    enum status st;

    if (checkpoint_path(path, root, step) != ST_OK || manifest_read(&m, path) != ST_OK)
        return 0;
    st = checkpoint_verify(path, &m, &count);
    manifest_free(&m);
    return st == ST_OK;
}

enum status chain_look(const struct chain *c, int64_t *newest, int *bad, int *unfinished)
{
    char root[FOLDER_PATH];
    int64_t *step;
    int n;

    TRY(folder_join(root, c->dir, CHECKPOINT_FOLDER));
    TRY(checkpoint_list(&step, &n, root));
    *newest = n ? step[0] : -1;
    *bad = 0;
    for (int i = 0; i < n; i++)
        *bad += !is_whole(root, step[i]);
    status_clear();
    *unfinished = count_unfinished(root);
    free(step);
    return ST_OK;
}

/* ---- the other side ---- */

struct bomb {
    struct fault fault;
    char hint[FOLDER_PATH];
};

/* When the hint was last written; 0 when it is not there. */
static double changed(const char *path)
{
    struct stat info;

    return stat(path, &info) ? 0.0
                             : (double)info.st_mtim.tv_sec + 1e-9 * (double)info.st_mtim.tv_nsec;
}

/* Waits until the hint changes; the new time. */
static double next_change(const char *path)
{
    const struct timespec turn = {.tv_nsec = 200000};
    double before = changed(path), now;

    while ((now = changed(path)) <= before)
        nanosleep(&turn, NULL);
    return now;
}

static void *wait_and_send(void *context)
{
    const struct bomb *b = context;
    double first = next_change(b->hint), second = next_change(b->hint);
    double seconds = (second - first) * b->fault.permille / 1000.0;
    struct timespec delay = {.tv_sec = (time_t)seconds};

    delay.tv_nsec = (long)(1e9 * (seconds - (double)delay.tv_sec));
    nanosleep(&delay, NULL);
    kill(getpid(), b->fault.signal);
    return NULL;
}

/* The run's folder among the words. */
static enum status set_hint(struct bomb *b, int argc, char **argv)
{
    char root[FOLDER_PATH] = "";

    for (int i = 0; i < argc; i++)
        if (!strncmp(argv[i], "run.dir=", 8))
            TRY(folder_join(root, argv[i] + 8, CHECKPOINT_FOLDER));
    return folder_join(b->hint, root, CHECKPOINT_LATEST);
}

enum status chain_fault_main(struct host *job, const char *fault, int argc, char **argv)
{
    struct bomb b;
    pthread_t thread;

    if (sscanf(fault, "%d,%d,%d", &b.fault.signal, &b.fault.rank, &b.fault.permille) != 3)
        return fail(ST_EUSAGE, "a fault is SIGNAL,RANK,PERMILLE, not '%s'", fault);
    TRY(set_hint(&b, argc, argv));
    if (host_rank(job) == b.fault.rank && !pthread_create(&thread, NULL, wait_and_send, &b))
        pthread_detach(thread);
    return command_train(job, argc, argv);
}
