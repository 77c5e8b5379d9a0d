/* Opening, checking, importing. */
#include "common/checkpoint/model_files.h"

#include "common/base/hash.h"
#include "common/checkpoint/weights.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the table ---- */

enum status model_files_table(struct model *table, struct config *cfg)
{
    TRY(config_resolve(cfg, 1, 0));
    TRY(config_validate(cfg, 1));
    return model_open(table, cfg, 0, 1, DT_F32);
}

static enum status check_row(const struct source *s, const struct param *row)
{
    const struct source_tensor *t = source_find(s, row->name);
    int vector = param_is_vector(row);
    int64_t rows = vector ? 1 : row->real_rows;

    if (!t)
        return fail(ST_EFORMAT, "%s: tensor %s is missing", s->where, row->name);
    if (t->rank == (vector ? 1 : 2) && t->rows == rows && t->cols == row->cols)
        return ST_OK;
    if (vector)
        return fail(ST_EFORMAT,
                    "%s: tensor %s has %d dimension(s) and begins with %lld x %lld; the model has "
                    "[%lld]",
                    s->where, row->name, t->rank, (long long)t->rows, (long long)t->cols,
                    (long long)row->cols);
    return fail(ST_EFORMAT,
                "%s: tensor %s has shape [%lld, %lld] (%d dimensions); the model has "
                "[%lld, %lld]",
                s->where, row->name, (long long)t->rows, (long long)t->cols, t->rank,
                (long long)rows, (long long)row->cols);
}

/* Nonzero for a parameter of the model, whatever stage of a pipeline holds it. */
static int knows(const struct params *p, const char *name)
{
    uint64_t hash = hash_text(name);

    for (int i = 0; i < p->all; i++)
        if (p->known[i] == hash)
            return 1;
    return 0;
}

enum status model_files_check(const struct model *table, const struct source *s)
{
    const struct params *p = &table->params;

    for (int i = 0; i < s->n; i++) {
        const struct source_tensor *t = &s->tensor[i];

        if (!knows(p, t->name) && !source_redundant(s, t, table->ends.tied))
            return fail(ST_EFORMAT, "%s: the model has no place for tensor %.96s%s", s->where,
                        t->name,
                        strcmp(t->name, "lm_head.weight") != 0
                            ? ""
                            : ", which differs from the embedding that it is tied to");
    }
    for (int i = 0; i < p->n; i++)
        TRY(check_row(s, &p->item[i]));
    return ST_OK;
}

/* ---- opening ---- */

static enum status open_table(struct model_files *f, const char *path)
{
    enum status st;

    config_default(&f->cfg);
    TRY(source_config(&f->cfg, path));
    st = model_files_table(&f->table, &f->cfg);
    if (st != ST_OK) {
        status_prefix("%s: ", path);
        return st;
    }
    return model_files_check(&f->table, &f->source);
}

enum status model_files_open(struct model_files *f, const char *path)
{
    enum status st;

    memset(f, 0, sizeof *f);
    f->framed = 1;
    TRY(source_open(&f->source, path));
    st = open_table(f, path);
    if (st != ST_OK)
        model_files_close(f);
    return st;
}

void model_files_close(struct model_files *f)
{
    if (f->table.cfg)
        model_close(&f->table);
    source_close(&f->source);
}

/* ---- tensors ---- */

enum status model_files_values(void **values, const struct source_tensor *t, enum dtype wide)
{
    size_t bytes = (size_t)(t->rows * t->cols) * dtype_size(wide);
    enum status st;

    *values = malloc(bytes ? bytes : 1);
    if (!*values)
        return fail(ST_ENOMEM, "no memory for %zu bytes of %s", bytes, t->name);
    st = source_read_all(*values, wide, t);
    if (st != ST_OK) {
        free(*values);
        *values = NULL;
    }
    return st;
}

/* Nonzero for a factor, whose name then ends in CoLA's word for it. name: [96]. */
static int cola_name(char *name, const struct param *row)
{
    static const char *const ends[][2] = {{".down.weight", ".cola_a"}, {".up.weight", ".cola_b"}};
    size_t n = strlen(row->name);

    memcpy(name, row->name, sizeof row->name);
    for (int i = 0; i < 2; i++) {
        size_t end = strlen(ends[i][0]);

        if (n <= end || strcmp(row->name + n - end, ends[i][0]) != 0)
            continue;
        memcpy(name + n - end, ends[i][1], strlen(ends[i][1]) + 1);
        return 1;
    }
    return 0;
}

enum status model_files_begin(struct outlet *o, const char *dir, const struct model *table,
                              enum safetensors_type type, int cola)
{
    const struct params *p = &table->params;
    struct safetensors_spec *spec = calloc((size_t)p->n, sizeof *spec);
    char(*name)[sizeof p->item->name] = calloc((size_t)p->n, sizeof *name);
    enum status st = ST_OK;

    if (!spec || !name)
        st = fail(ST_ENOMEM, "no memory for the table of %d tensors", p->n);
    for (int i = 0; st == ST_OK && i < p->n; i++) {
        const struct param *row = &p->item[i];
        int vector = param_is_vector(row), turned = cola_name(name[i], row) && cola;

        if (!turned)
            memcpy(name[i], row->name, sizeof row->name);
        spec[i].name = name[i];
        spec[i].rank = vector ? 1 : 2;
        spec[i].shape[0] = vector || turned ? row->cols : row->real_rows;
        spec[i].shape[1] = vector ? 0 : turned ? row->real_rows : row->cols;
    }
    if (st == ST_OK)
        st = outlet_begin(o, dir, type, spec, p->n);
    free(spec);
    free(name);
    return st;
}

/* turned [cols, rows] = values [rows, cols] */
static void turn(void *turned, const void *values, enum dtype wide, int64_t rows, int64_t cols)
{
    size_t es = dtype_size(wide);

    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            memcpy((char *)turned + (size_t)(j * rows + i) * es,
                   (const char *)values + (size_t)(i * cols + j) * es, es);
}

enum status model_files_put(struct outlet *o, const struct param *row, const void *values,
                            enum dtype wide, int cola)
{
    int64_t n = row->real_rows * row->cols;
    char name[sizeof row->name];
    enum status st;
    void *turned;

    if (!cola || !cola_name(name, row))
        return outlet_put(o, row->name, values, wide, n);
    turned = malloc((size_t)n * dtype_size(wide));
    if (!turned)
        return fail(ST_ENOMEM, "no memory for %lld values of %s", (long long)n, row->name);
    turn(turned, values, wide, row->real_rows, row->cols);
    st = outlet_put(o, name, turned, wide, n);
    free(turned);
    return st;
}

enum status model_files_copy(struct outlet *o, const struct model_files *f, const struct param *row,
                             int cola)
{
    enum dtype wide = source_wide(&f->source);
    enum status st;
    void *values;

    TRY(model_files_values(&values, source_find(&f->source, row->name), wide));
    st = model_files_put(o, row, values, wide, cola);
    free(values);
    return st;
}

/* ---- importing ---- */

/* The folder that f lies in. */
static enum status folder_of(char *folder, const struct source *s)
{
    const char *slash = strrchr(s->where, '/');

    if (!s->bin)
        return folder_join(folder, s->where, ".");
    if (!slash)
        return folder_join(folder, ".", ".");
    snprintf(folder, FOLDER_PATH, "%.*s", (int)(slash - s->where) + 1, s->where);
    return ST_OK;
}

static const char *const tokenizer_names[] = {"tokenizer.json", "tokenizer.model"};

/* The first of these names that a folder has, or NULL. */
static enum status tokenizer_in(const char **name, const char *folder)
{
    char path[FOLDER_PATH];

    for (int i = 0; i < 2; i++) {
        *name = tokenizer_names[i];
        TRY(folder_join(path, folder, *name));
        if (!access(path, R_OK))
            return ST_OK;
    }
    *name = NULL;
    return ST_OK;
}

/* text [CONFIG_TEXT] = folder/name. */
static enum status set_name(char *text, const char *folder, const char *name)
{
    int n = snprintf(text, CONFIG_TEXT, "%s%s%s", folder, folder[0] ? "/" : "", name);

    if (n < 0 || n >= CONFIG_TEXT)
        return fail(ST_EIO, "the path %.64s... is too long for data.tokenizer", text);
    return ST_OK;
}

enum status model_files_tokenizer(char *name, const struct model_files *f, const char *given)
{
    char folder[FOLDER_PATH];
    const char *found;

    if (given)
        return set_name(name, "", given);
    TRY(folder_of(folder, &f->source));
    TRY(tokenizer_in(&found, folder));
    if (!found)
        return fail(ST_EUSAGE,
                    "%s has no tokenizer.json or tokenizer.model; name its tokenizer: "
                    "--tokenizer FILE",
                    f->source.where);
    return set_name(name, folder, found);
}

/* narrows.yaml, with the tokenizer that is given or was copied. */
static enum status write_settings(struct outlet *o, struct config *cfg, const char *tokenizer)
{
    char path[FOLDER_PATH];
    const char *found = tokenizer;

    if (!tokenizer)
        TRY(tokenizer_in(&found, o->partial));
    if (!found) /* whoever uses the model has to name one: bytes would be wrong without a word */
        return ST_OK;
    TRY(set_name(cfg->data.tokenizer, tokenizer ? "" : o->dir, found));
    TRY(outlet_path(path, o, WEIGHTS_SETTINGS));
    return weights_write_settings(path, cfg);
}

enum status model_files_settings(struct outlet *o, const struct model_files *f, struct config *cfg,
                                 const char *tokenizer)
{
    struct hf_form form = {
        .kind = hf_config_kind(cfg), .dtype = outlet_dtype(o->type), .ids = f->source.ids};
    char path[FOLDER_PATH], folder[FOLDER_PATH];
    int copied;

    cfg->sample.frame = f->framed != 0;
    TRY(folder_of(folder, &f->source));
    if (!f->source.bin) {
        TRY(outlet_copy_tokenizer(o, folder, &copied));
        TRY(outlet_copy(o, folder, "generation_config.json", NULL));
    }
    TRY(outlet_path(path, o, WEIGHTS_CONFIG));
    TRY(hf_config_export(path, cfg, &form));
    return write_settings(o, cfg, tokenizer);
}

static enum status import_all(struct outlet *o, const struct model_files *f, const char *tokenizer)
{
    struct config *cfg;
    enum status st;

    for (int i = 0; i < f->table.params.n; i++)
        TRY(model_files_copy(o, f, &f->table.params.item[i], 0));
    cfg = malloc(sizeof *cfg);
    if (!cfg)
        return fail(ST_ENOMEM, "no memory for a configuration");
    config_default(cfg);
    st = source_config(cfg, f->source.where);
    if (st == ST_OK)
        st = model_files_settings(o, f, cfg, tokenizer);
    free(cfg);
    return st;
}

enum status model_files_import(const struct model_files *f, const char *dir, const char *tokenizer)
{
    int wide = source_wide(&f->source) == DT_F64;
    struct outlet o;
    enum status st;

    TRY(model_files_begin(&o, dir, &f->table, wide ? SAFETENSORS_F64 : SAFETENSORS_F32, 0));
    st = import_all(&o, f, tokenizer);
    if (st == ST_OK)
        return outlet_commit(&o);
    outlet_drop(&o);
    return st;
}
