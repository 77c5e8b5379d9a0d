/* Finding and loading. */
#include "common/checkpoint/weights.h"

#include "common/checkpoint/folder.h"
#include "common/checkpoint/hf_config.h"
#include "common/checkpoint/safetensors.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert((int)WEIGHTS_PATH == (int)FOLDER_PATH, "paths of both headers are the same");

enum { FILES_MOST = 4096 };

/* The files that hold a model. */
struct source {
    const char *where; /* for messages */
    struct safetensors *file;
    int n, room;
};

/* ---- finding ---- */

/* Nonzero when folder/name can be read. */
static int holds(const char *folder, const char *name)
{
    char path[FOLDER_PATH];
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);

    return n > 0 && (size_t)n < sizeof path && !access(path, R_OK);
}

static int holds_weights(const char *folder)
{
    return holds(folder, WEIGHTS_TENSORS) || holds(folder, WEIGHTS_INDEX);
}

enum status weights_find(char *out, const char *where)
{
    static const char *const parts[] = {"final", "best"};

    if (holds_weights(where)) {
        if (strlen(where) >= FOLDER_PATH)
            return fail(ST_EIO, "the path %.64s... is too long", where);
        memcpy(out, where, strlen(where) + 1);
        return ST_OK;
    }
    for (int i = 0; i < 2; i++) {
        TRY(folder_join(out, where, parts[i]));
        if (holds_weights(out))
            return ST_OK;
    }
    if (access(where, F_OK))
        return fail(ST_EIO, "%s cannot be read: %s", where, strerror(errno));
    return fail(ST_EIO,
                "no weights in %s: neither " WEIGHTS_TENSORS " nor final/ or best/ with "
                "that file; give the folder of a run or of a saved model",
                where);
}

enum status weights_config(struct config *cfg, const char *dir)
{
    char path[FOLDER_PATH];

    TRY(folder_join(path, dir, WEIGHTS_CONFIG));
    return hf_config_read(cfg, path);
}

/* ---- the files of a folder ---- */

static enum status add_file(struct source *s, const char *path)
{
    struct safetensors *grown;

    if (s->n == s->room) {
        s->room = s->room ? 2 * s->room : 4;
        grown = realloc(s->file, (size_t)s->room * sizeof *grown);
        if (!grown)
            return fail(ST_ENOMEM, "no memory for the files of %s", s->where);
        s->file = grown;
    }
    TRY(safetensors_open(&s->file[s->n], path));
    s->n++;
    return ST_OK;
}

/* Opens the file of a weight_map's entry unless it is open. */
static enum status add_listed(struct source *s, const char *dir, const json_t *name)
{
    char path[FOLDER_PATH];

    if (!json_is_string(name) || strchr(json_string_value(name), '/'))
        return fail(ST_EFORMAT, "%s/" WEIGHTS_INDEX ": weight_map holds what is no file name", dir);
    TRY(folder_join(path, dir, json_string_value(name)));
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->file[i].path, path))
            return ST_OK;
    if (s->n == FILES_MOST)
        return fail(ST_EFORMAT, "%s/" WEIGHTS_INDEX ": more than %d files", dir, FILES_MOST);
    return add_file(s, path);
}

static enum status add_indexed(struct source *s, const char *dir)
{
    char path[FOLDER_PATH];
    json_error_t error;
    json_t *root, *map;
    enum status st = ST_OK;

    TRY(folder_join(path, dir, WEIGHTS_INDEX));
    root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        return fail(ST_EFORMAT, "%s:%d: %s", path, error.line, error.text);
    map = json_object_get(root, "weight_map");
    if (!json_is_object(map))
        st = fail(ST_EFORMAT, "%s: weight_map is missing or no object", path);
    for (void *at = json_object_iter(map); at && st == ST_OK; at = json_object_iter_next(map, at))
        st = add_listed(s, dir, json_object_iter_value(at));
    json_decref(root);
    return st;
}

static enum status open_folder(struct source *s, const char *dir)
{
    char path[FOLDER_PATH];

    TRY(folder_join(path, dir, WEIGHTS_TENSORS));
    return !holds(dir, WEIGHTS_TENSORS) && holds(dir, WEIGHTS_INDEX) ? add_indexed(s, dir)
                                                                     : add_file(s, path);
}

static void close_source(struct source *s)
{
    for (int i = 0; i < s->n; i++)
        safetensors_close(&s->file[i]);
    free(s->file);
}

/* ---- one parameter ---- */

/* *t = the one tensor of that name; NULL when there is none. */
static enum status find(const struct safetensors_tensor **t, const struct source *s,
                        const char *name)
{
    *t = NULL;
    for (int i = 0; i < s->n; i++) {
        const struct safetensors_tensor *found = safetensors_find(&s->file[i], name);

        if (found && *t)
            return fail(ST_EFORMAT, "%s: tensor %s is in two files", s->where, name);
        if (found)
            *t = found;
    }
    return ST_OK;
}

static enum status check_shape(const struct source *s, const struct param *row,
                               const struct safetensors_tensor *t)
{
    int vector = param_is_vector(row);
    int64_t want[2] = {vector ? row->cols : row->real_rows, row->cols};

    if (!t)
        return fail(ST_EFORMAT, "%s: tensor %s is missing", s->where, row->name);
    if (t->rank == (vector ? 1 : 2) && t->shape[0] == want[0] && t->shape[t->rank - 1] == row->cols)
        return ST_OK;
    if (vector)
        return fail(ST_EFORMAT,
                    "%s: tensor %s has %d dimension(s), the first of %lld; the model "
                    "has [%lld]",
                    s->where, row->name, t->rank, t->rank ? (long long)t->shape[0] : 0LL,
                    (long long)want[0]);
    return fail(ST_EFORMAT,
                "%s: tensor %s has shape [%lld, %lld] (%d dimensions); the model has "
                "[%lld, %lld]",
                s->where, row->name, t->rank ? (long long)t->shape[0] : 0LL,
                t->rank > 1 ? (long long)t->shape[1] : 0LL, t->rank, (long long)want[0],
                (long long)want[1]);
}

/* This rank's shard of a parameter into values (wide); rows of padding are zero. */
static enum status read_shard(void *values, const struct params *p, const struct param *row,
                              const struct safetensors_tensor *t)
{
    size_t es = dtype_size(p->wide);
    int64_t rows, cols, row0, col0, real;

    param_shard(p, row, &rows, &cols, &row0, &col0);
    real = row->real_rows - row0;
    real = real < 0 ? 0 : real > rows ? rows : real;
    for (int64_t i = 0; i < real; i++)
        TRY(safetensors_read((char *)values + (size_t)(i * cols) * es, p->wide, t,
                             (row0 + i) * row->cols + col0, cols));
    memset((char *)values + (size_t)(real * cols) * es, 0, (size_t)((rows - real) * cols) * es);
    for (int64_t i = 0; i < real * cols; i++)
        if (!isfinite(dtype_load(values, p->wide, i)))
            return fail(ST_EFORMAT, "tensor %s: row %lld, column %lld is not finite", row->name,
                        (long long)(row0 + i / cols), (long long)(col0 + i % cols));
    return ST_OK;
}

static enum status load_param(struct params *p, struct param *row, struct device *dev,
                              const struct source *s)
{
    const struct safetensors_tensor *t;
    void *values;
    enum status st;

    TRY(find(&t, s, row->name));
    TRY(check_shape(s, row, t));
    values = malloc((size_t)tensor_count(&row->w) * dtype_size(p->wide));
    if (!values)
        return fail(ST_ENOMEM, "no memory for %lld values of %s", (long long)tensor_count(&row->w),
                    row->name);
    st = read_shard(values, p, row, t);
    if (st != ST_OK)
        status_prefix("%s: ", s->where);
    else
        st = param_set(p, row, dev, values);
    free(values);
    return st;
}

/* ---- all of them ---- */

/* Nonzero for a tensor that says nothing new: the frequencies of rotary positions, which old files
 * carry, and the head of a tied model where it is the embedding again. */
static int redundant(const struct model *m, const struct source *s,
                     const struct safetensors_tensor *t)
{
    static const char end[] = ".self_attn.rotary_emb.inv_freq";
    const struct safetensors_tensor *embed;
    size_t n = strlen(t->name);

    if (n >= sizeof end && !strcmp(t->name + n - (sizeof end - 1), end))
        return 1;
    if (strcmp(t->name, "lm_head.weight") != 0 || !m->ends.tied ||
        find(&embed, s, "model.embed_tokens.weight") != ST_OK || !embed)
        return 0;
    return embed->type == t->type && embed->end - embed->begin == t->end - t->begin &&
           !memcmp(embed->data, t->data, t->end - t->begin);
}

static enum status check_left_over(struct model *m, const struct source *s)
{
    for (int i = 0; i < s->n; i++)
        for (int j = 0; j < s->file[i].n; j++) {
            const struct safetensors_tensor *t = &s->file[i].tensor[j];

            if (!params_find(&m->params, t->name) && !redundant(m, s, t))
                return fail(ST_EFORMAT, "%s: the model has no place for tensor %.96s%s", s->where,
                            t->name,
                            strcmp(t->name, "lm_head.weight") != 0
                                ? ""
                                : ", which differs from the embedding that it is tied to");
        }
    return ST_OK;
}

static enum status load(struct model *m, struct device *dev, const struct source *s)
{
    TRY(check_left_over(m, s));
    for (int i = 0; i < m->params.n; i++)
        TRY(load_param(&m->params, &m->params.item[i], dev, s));
    return ST_OK;
}

static enum status same_model(const struct model *m, const char *dir)
{
    struct config *found = malloc(sizeof *found);
    enum status st;

    if (!found)
        return fail(ST_ENOMEM, "no memory for the configuration of %s", dir);
    config_default(found);
    st = weights_config(found, dir);
    if (st == ST_OK) {
        st = hf_config_same(found, m->cfg);
        if (st != ST_OK)
            status_prefix("%s/" WEIGHTS_CONFIG ": ", dir);
    }
    free(found);
    return st;
}

enum status weights_load(struct model *m, struct device *dev, const char *dir)
{
    struct source s = {.where = dir};
    enum status st;

    TRY(same_model(m, dir));
    st = open_folder(&s, dir);
    if (st == ST_OK)
        st = load(m, dev, &s);
    close_source(&s);
    return st;
}

enum status weights_load_file(struct model *m, struct device *dev, const char *path)
{
    struct source s = {.where = path};
    enum status st = add_file(&s, path);

    if (st == ST_OK)
        st = load(m, dev, &s);
    close_source(&s);
    return st;
}
