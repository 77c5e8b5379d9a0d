/* The folder of checkpoints: what is in it, what may go. */
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/folder.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- removing ---- */

/* A folder of files; what is no file stays, and the folder with it. */
static enum status remove_folder(const char *folder)
{
    char path[FOLDER_PATH];
    DIR *dir = opendir(folder);

    if (!dir)
        return errno == ENOENT
                   ? ST_OK
                   : fail(ST_EIO, "cannot list the folder %s: %s", folder, strerror(errno));
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 &&
            folder_join(path, folder, e->d_name) == ST_OK)
            (void)unlink(path);
    closedir(dir);
    if (rmdir(folder) && errno != ENOENT)
        return fail(ST_EIO, "cannot remove the folder %s: %s", folder, strerror(errno));
    return ST_OK;
}

void checkpoint_drop(const char *folder)
{
    (void)remove_folder(folder);
}

enum status checkpoint_remove(const char *root, int64_t step)
{
    char path[FOLDER_PATH], aside[FOLDER_PATH], name[64];

    TRY(checkpoint_path(path, root, step));
    snprintf(name, sizeof name, "step-%09" PRId64 ".old.%lx", step, (unsigned long)getpid());
    TRY(folder_join(aside, root, name));
    if (rename(path, aside))
        return fail(ST_EIO, "cannot rename %s to %s: %s", path, aside, strerror(errno));
    return remove_folder(aside);
}

/* ---- listing ---- */

/* The step of a name "step-000000020", and nothing else: a number alone makes no checkpoint. */
static int step_of(int64_t *step, const char *name)
{
    char *end;

    if (strncmp(name, "step-", 5) != 0 || strlen(name) < 14 || name[5] < '0' || name[5] > '9')
        return 0;
    errno = 0;
    *step = strtoll(name + 5, &end, 10);
    return !*end && !errno;
}

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x > y ? -1 : x < y;
}

static enum status add(int64_t **step, int *n, int64_t next)
{
    int64_t *grown = realloc(*step, ((size_t)*n + 1) * sizeof *grown);

    if (!grown)
        return fail(ST_ENOMEM, "no memory for the list of checkpoints");
    *step = grown;
    grown[(*n)++] = next;
    return ST_OK;
}

enum status checkpoint_list(int64_t **step, int *n, const char *root)
{
    DIR *dir = opendir(root);
    enum status st = ST_OK;
    int64_t next;

    *step = NULL;
    *n = 0;
    if (!dir && errno == ENOENT)
        return ST_OK;
    if (!dir)
        return fail(ST_EIO, "cannot list the folder %s: %s", root, strerror(errno));
    for (struct dirent *e; st == ST_OK && (e = readdir(dir)) != NULL;)
        if (step_of(&next, e->d_name))
            st = add(step, n, next);
    closedir(dir);
    if (*n)
        qsort(*step, (size_t)*n, sizeof **step, newest_first);
    if (st != ST_OK) {
        free(*step);
        *step = NULL;
    }
    return st;
}

enum status checkpoint_sweep(const char *root)
{
    char path[FOLDER_PATH];
    DIR *dir = opendir(root);
    enum status st = ST_OK;

    if (!dir)
        return errno == ENOENT
                   ? ST_OK
                   : fail(ST_EIO, "cannot list the folder %s: %s", root, strerror(errno));
    for (struct dirent *e; st == ST_OK && (e = readdir(dir)) != NULL;) {
        if (strncmp(e->d_name, "step-", 5) != 0 ||
            (!strstr(e->d_name, ".tmp.") && !strstr(e->d_name, ".old.")))
            continue;
        st = folder_join(path, root, e->d_name);
        if (st == ST_OK)
            st = remove_folder(path);
    }
    closedir(dir);
    return st;
}

/* ---- pruning ---- */

static int reads(const char *root, int64_t step)
{
    char path[FOLDER_PATH];
    struct manifest m;

    if (checkpoint_path(path, root, step) != ST_OK || manifest_read(&m, path) != ST_OK) {
        status_clear();
        return 0;
    }
    manifest_free(&m);
    return 1;
}

enum status checkpoint_prune(int *removed, const char *root, struct checkpoint_keep keep)
{
    int64_t *step, last = keep.last > 1 ? keep.last : 1, kept = 0;
    int n;
    enum status st;

    *removed = 0;
    TRY(checkpoint_list(&step, &n, root));
    st = ST_OK;
    for (int i = 0; i < n && st == ST_OK; i++) {
        if (!reads(root, step[i]))
            continue;
        if (kept++ < last || (keep.every && step[i] % keep.every == 0))
            continue;
        st = checkpoint_remove(root, step[i]);
        *removed += st == ST_OK;
    }
    free(step);
    return st;
}

/* ---- finding ---- */

static int is_checkpoint(const char *folder)
{
    char path[FOLDER_PATH];

    return folder_join(path, folder, MANIFEST_NAME) == ST_OK && !access(path, F_OK);
}

static enum status newest(char *out, const char *root)
{
    int64_t *step;
    int n, i = 0;
    enum status st;

    TRY(checkpoint_list(&step, &n, root));
    while (i < n && !reads(root, step[i]))
        i++;
    st = i < n ? checkpoint_path(out, root, step[i])
               : fail(ST_EIO,
                      "no checkpoint in %s: neither " MANIFEST_NAME " nor " CHECKPOINT_FOLDER
                      "/step-N with one that reads",
                      root);
    free(step);
    return st;
}

enum status checkpoint_find(char *out, const char *where)
{
    char inside[FOLDER_PATH];

    if (is_checkpoint(where)) {
        if (strlen(where) >= FOLDER_PATH)
            return fail(ST_EIO, "the path %.64s... is too long", where);
        memcpy(out, where, strlen(where) + 1);
        return ST_OK;
    }
    if (access(where, F_OK))
        return fail(ST_EIO, "%s cannot be read: %s", where, strerror(errno));
    TRY(folder_join(inside, where, CHECKPOINT_FOLDER));
    return newest(out, access(inside, F_OK) ? where : inside);
}
