#include "common/train/run_dir.h"

#include "common/base/log.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/folder.h"
#include "common/checkpoint/weights.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void run_dir_path(char out[CONFIG_TEXT + 16], const struct config *cfg)
{
    if (cfg->run.dir[0])
        snprintf(out, CONFIG_TEXT + 16, "%s", cfg->run.dir);
    else
        snprintf(out, CONFIG_TEXT + 16, "runs/%s", cfg->name[0] ? cfg->name : "run");
}

/* Makes path and the folders above it. */
static enum status make_folders(const char *path)
{
    char part[CONFIG_TEXT + 16];

    snprintf(part, sizeof part, "%s", path);
    for (char *slash = part + 1;; slash++) {
        char was = *slash;

        if (was != '/' && was != '\0')
            continue;
        *slash = '\0';
        if (mkdir(part, 0777) && errno != EEXIST)
            return fail(ST_EIO, "cannot make the run folder %s: %s; choose another run.dir", part,
                        strerror(errno));
        *slash = was;
        if (was == '\0')
            return ST_OK;
    }
}

static void in_folder(char *out, size_t n, const struct run_dir *r, const char *name)
{
    snprintf(out, n, "%s/%s", r->path, name);
}

static enum status write_config(const struct run_dir *r, const struct config *cfg)
{
    char path[CONFIG_TEXT + 64];
    FILE *out;
    enum status st;

    in_folder(path, sizeof path, r, "config.yaml");
    out = fopen(path, "w");
    if (!out)
        return fail(ST_EIO, "cannot write %s: %s", path, strerror(errno));
    st = config_print(out, cfg);
    if (st != ST_OK)
        status_prefix("%s: ", path);
    if (fclose(out) && st == ST_OK)
        st = fail(ST_EIO, "cannot write %s: %s", path, strerror(errno));
    return st;
}

static const char *const weights[] = {"best", "final"};

/* Weights and checkpoints make a run as much as metrics do: they took the longer time. */
static int holds_run(const struct run_dir *r)
{
    char path[CONFIG_TEXT + 64];
    int found;

    in_folder(path, sizeof path, r, "metrics.jsonl");
    found = !access(path, F_OK);
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        in_folder(path, sizeof path, r, weights[i]);
        found |= !access(path, F_OK);
    }
    in_folder(path, sizeof path, r, CHECKPOINT_FOLDER);
    return found || !access(path, F_OK);
}

/* Weights of the run before would pass for this one's, should it end before it writes its own. */
static enum status remove_weights(const struct run_dir *r)
{
    char path[CONFIG_TEXT + 64];

    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++) {
        in_folder(path, sizeof path, r, weights[i]);
        TRY(weights_remove(path));
    }
    return ST_OK;
}

/* Checkpoints of steps after `step`. */
static enum status remove_checkpoints(const struct run_dir *r, int64_t step)
{
    char root[CONFIG_TEXT + 64];
    int64_t *list;
    int n;
    enum status st;

    in_folder(root, sizeof root, r, CHECKPOINT_FOLDER);
    TRY(checkpoint_list(&list, &n, root));
    st = ST_OK;
    for (int i = 0; st == ST_OK && i < n && list[i] > step; i++)
        st = checkpoint_remove(root, list[i]);
    free(list);
    return st;
}

/* metrics.jsonl and train.log; mode: of fopen. */
static enum status open_files(struct run_dir *r, const char *mode)
{
    char path[CONFIG_TEXT + 64];

    in_folder(path, sizeof path, r, "metrics.jsonl");
    r->metrics = fopen(path, mode);
    if (!r->metrics)
        return fail(ST_EIO, "cannot write %s: %s", path, strerror(errno));
    in_folder(path, sizeof path, r, "train.log");
    if (*mode == 'w' && unlink(path) && errno != ENOENT)
        return fail(ST_EIO, "cannot replace %s: %s", path, strerror(errno));
    return log_tee(path);
}

enum status run_dir_open(struct run_dir *r, const struct config *cfg)
{
    r->metrics = NULL;
    run_dir_path(r->path, cfg);
    if (holds_run(r) && !cfg->run.overwrite)
        return fail(ST_ECONFIG,
                    "%s already holds a run; go on with it by --resume, choose another run.dir, or "
                    "set run.overwrite=on to replace it",
                    r->path);
    TRY(make_folders(r->path));
    TRY(write_config(r, cfg));
    TRY(remove_weights(r));
    TRY(remove_checkpoints(r, -1));
    return open_files(r, "w");
}

/* ---- going on ---- */

int run_dir_holds(const struct config *cfg, const char *path)
{
    char dir[CONFIG_TEXT + 16], root[FOLDER_PATH], mine[PATH_MAX], theirs[PATH_MAX];
    char above[FOLDER_PATH];

    run_dir_path(dir, cfg);
    return folder_join(root, dir, CHECKPOINT_FOLDER) == ST_OK &&
           folder_join(above, path, "..") == ST_OK && realpath(root, mine) &&
           realpath(above, theirs) && !strcmp(mine, theirs);
}

/* Nonzero for a whole line of metrics.jsonl that the run will not write again. */
static int stays(const char *line, int64_t step)
{
    json_t *o = json_loads(line, 0, NULL), *at = json_object_get(o, "step");
    int keep = json_is_integer(at) && json_integer_value(at) <= step;

    json_decref(o);
    return keep;
}

static void copy_records(FILE *out, FILE *in, int64_t step)
{
    char *line = NULL;
    size_t room = 0;

    while (getline(&line, &room, in) > 0)
        if (stays(line, step))
            fputs(line, out);
    free(line);
}

/* A run that was killed has written steps that it will make again, and perhaps half a line. */
static enum status cut_records(const struct run_dir *r, int64_t step)
{
    char path[CONFIG_TEXT + 64], partial[CONFIG_TEXT + 80];
    FILE *in, *out;

    in_folder(path, sizeof path, r, "metrics.jsonl");
    snprintf(partial, sizeof partial, "%s.partial", path);
    in = fopen(path, "r");
    if (!in)
        return errno == ENOENT ? ST_OK : fail(ST_EIO, "cannot read %s: %s", path, strerror(errno));
    out = fopen(partial, "w");
    if (!out) {
        fclose(in);
        return fail(ST_EIO, "cannot write %s: %s", partial, strerror(errno));
    }
    copy_records(out, in, step);
    fclose(in);
    TRY(folder_close(out, partial));
    if (rename(partial, path))
        return fail(ST_EIO, "cannot rename %s to %s: %s", partial, path, strerror(errno));
    return ST_OK;
}

/* Later checkpoints would be taken for this run's when it is resumed the next time. */
static enum status settle_later(const struct run_dir *r, const struct config *cfg, int64_t step)
{
    char root[CONFIG_TEXT + 64];
    int64_t *list, newest;
    int n;

    in_folder(root, sizeof root, r, CHECKPOINT_FOLDER);
    TRY(checkpoint_list(&list, &n, root));
    newest = n ? list[0] : -1;
    free(list);
    if (newest > step && !cfg->run.overwrite)
        return fail(
            ST_ECONFIG,
            "%s holds a checkpoint of step %lld, later than step %lld to go on from; choose "
            "another run.dir, or set run.overwrite=on to remove the later ones",
            root, (long long)newest, (long long)step);
    return remove_checkpoints(r, step);
}

enum status run_dir_continue(struct run_dir *r, const struct config *cfg, int64_t step, int skipped)
{
    r->metrics = NULL;
    run_dir_path(r->path, cfg);
    if (!skipped)
        TRY(settle_later(r, cfg, step));
    TRY(make_folders(r->path));
    TRY(write_config(r, cfg));
    TRY(cut_records(r, step));
    return open_files(r, "a");
}

enum status run_dir_close(struct run_dir *r)
{
    FILE *f = r->metrics;
    int bad;

    log_close();
    if (!f)
        return ST_OK;
    r->metrics = NULL;
    bad = fflush(f) || ferror(f);
    if (fclose(f) || bad)
        return fail(ST_EIO, "%s/metrics.jsonl is not complete: %s", r->path, strerror(errno));
    return ST_OK;
}
