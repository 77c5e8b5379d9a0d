/* Finding and loading. */
#include "common/checkpoint/weights.h"

#include "common/checkpoint/folder.h"
#include "common/checkpoint/hf_config.h"
#include "common/checkpoint/model_files.h"
#include "common/checkpoint/source.h"
#include "common/checkpoint/source_table.h"
#include "common/model/config_value.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert((int)WEIGHTS_PATH == (int)FOLDER_PATH, "paths of both headers are the same");

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

    if (holds_weights(where) || (source_is_bin(where) && !access(where, R_OK))) {
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
    return source_config(cfg, dir);
}

/* Copies the model keys that nobody has set. */
static enum status adopt(struct config *cfg, const struct config *found)
{
    char text[CONFIG_VALUE];

    for (int i = 0; i < CONFIG_KEYS; i++) {
        const struct config_key *k = &config_keys()[i];

        if (strcmp(k->section, "model") != 0 || k->type == CONFIG_IS_TEXT ||
            cfg->origin[i] != ORIGIN_DEFAULT)
            continue;
        config_value_write(text, sizeof text, k, found);
        TRY(config_value_set(cfg, k, text));
    }
    return ST_OK;
}

enum status weights_adopt(struct config *cfg)
{
    char path[WEIGHTS_PATH];
    struct config *found;
    enum status st;

    if (!cfg->train.init_from[0] || cfg->model.preset[0])
        return ST_OK;
    TRY(weights_find(path, cfg->train.init_from));
    found = malloc(sizeof *found);
    if (!found)
        return fail(ST_ENOMEM, "no memory for the configuration of %s", path);
    config_default(found);
    st = weights_config(found, path);
    if (st == ST_OK)
        st = adopt(cfg, found);
    free(found);
    return st;
}

/* ---- one parameter ---- */

/* This rank's shard of a parameter into values (wide); rows of padding are zero. */
static enum status read_shard(void *values, const struct params *p, const struct param *row,
                              const struct source_tensor *t)
{
    size_t es = dtype_size(p->wide);
    int64_t rows, cols, row0, col0, real, bad;

    param_shard(p, row, &rows, &cols, &row0, &col0);
    real = row->real_rows - row0;
    real = real < 0 ? 0 : real > rows ? rows : real;
    for (int64_t i = 0; i < real; i++)
        TRY(source_read((char *)values + (size_t)(i * cols) * es, p->wide, t, row0 + i, col0,
                        cols));
    memset((char *)values + (size_t)(real * cols) * es, 0, (size_t)((rows - real) * cols) * es);
    bad = dtype_not_finite(values, p->wide, real * cols);
    if (bad >= 0)
        return fail(ST_EFORMAT, "tensor %s: row %lld, column %lld is not finite", row->name,
                    (long long)(row0 + bad / cols), (long long)(col0 + bad % cols));
    return ST_OK;
}

static enum status load_param(struct params *p, struct param *row, struct device *dev,
                              const struct source *s)
{
    const struct source_tensor *t = source_find(s, row->name);
    void *values;
    enum status st;

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

static enum status load(struct model *m, struct device *dev, const struct source *s)
{
    TRY(model_files_check(m, s));
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
            status_prefix("%s%s: ", dir, source_is_bin(dir) ? "" : "/" WEIGHTS_CONFIG);
    }
    free(found);
    return st;
}

static enum status load_from(struct model *m, struct device *dev, const char *path)
{
    struct source s;
    enum status st;

    TRY(source_open(&s, path));
    st = load(m, dev, &s);
    source_close(&s);
    return st;
}

enum status weights_load(struct model *m, struct device *dev, const char *dir)
{
    TRY(same_model(m, dir));
    return load_from(m, dev, dir);
}

enum status weights_load_file(struct model *m, struct device *dev, const char *path)
{
    return load_from(m, dev, path);
}
