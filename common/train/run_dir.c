#include "common/train/run_dir.h"

#include "common/base/log.h"
#include "common/checkpoint/weights.h"

#include <errno.h>
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

/* Weights make a run as much as metrics do: they took the longer time. */
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
    return found;
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

enum status run_dir_open(struct run_dir *r, const struct config *cfg)
{
    char path[CONFIG_TEXT + 64];

    r->metrics = NULL;
    run_dir_path(r->path, cfg);
    if (holds_run(r) && !cfg->run.overwrite)
        return fail(ST_ECONFIG,
                    "%s already holds a run; choose another run.dir, or set run.overwrite=on to "
                    "replace it",
                    r->path);
    TRY(make_folders(r->path));
    TRY(write_config(r, cfg));
    TRY(remove_weights(r));
    in_folder(path, sizeof path, r, "metrics.jsonl");
    r->metrics = fopen(path, "w");
    if (!r->metrics)
        return fail(ST_EIO, "cannot write %s: %s", path, strerror(errno));
    in_folder(path, sizeof path, r, "train.log");
    if (unlink(path) && errno != ENOENT)
        return fail(ST_EIO, "cannot replace %s: %s", path, strerror(errno));
    return log_tee(path);
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
