/* Folders of safetensors, and the table. */
#include "common/checkpoint/source.h"

#include "common/checkpoint/folder.h"
#include "common/checkpoint/source_table.h"
#include "common/checkpoint/weights.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILES_MOST = 4096 };

/* ---- the table ---- */

static int by_name(const void *a, const void *b)
{
    const struct source_tensor *x = a, *y = b;

    return strcmp(x->name, y->name);
}

/* Rows and columns as here: of more than two dimensions the first two. */
static void set_shape(struct source_tensor *t, const struct safetensors_tensor *raw)
{
    int turned = t->map == SOURCE_TURNED;

    t->rank = raw->rank;
    t->raw.shape = NULL;
    if (t->rank == 1) {
        t->rows = 1;
        t->cols = raw->shape[0];
    } else if (t->rank > 1) {
        t->rows = raw->shape[turned ? 1 : 0];
        t->cols = raw->shape[turned ? 0 : 1];
    }
}

enum status source_add(struct source *s, const char *name, const struct safetensors_tensor *raw,
                       enum source_map map, int64_t head_dim, const char *file_path)
{
    struct source_tensor *t;

    if (s->n == s->room) {
        int room = s->room ? 2 * s->room : 64;
        struct source_tensor *grown = realloc(s->tensor, (size_t)room * sizeof *grown);

        if (!grown)
            return fail(ST_ENOMEM, "no memory for the table of %d tensors", room);
        s->tensor = grown;
        s->room = room;
    }
    t = &s->tensor[s->n];
    *t = (struct source_tensor){.name = strdup(name),
                                .raw = *raw,
                                .map = map,
                                .head_dim = head_dim,
                                .file_path = file_path};
    if (!t->name)
        return fail(ST_ENOMEM, "no memory for the name of a tensor");
    set_shape(t, raw);
    s->n++;
    return ST_OK;
}

static enum status finish_table(struct source *s)
{
    if (s->n)
        qsort(s->tensor, (size_t)s->n, sizeof *s->tensor, by_name);
    for (int i = 1; i < s->n; i++)
        if (!strcmp(s->tensor[i].name, s->tensor[i - 1].name))
            return fail(ST_EFORMAT, "%s: tensor %.96s is there twice", s->where, s->tensor[i].name);
    return ST_OK;
}

const struct source_tensor *source_find(const struct source *s, const char *name)
{
    struct source_tensor key = {.name = (char *)(uintptr_t)name}; /* only compared */

    return s->n ? bsearch(&key, s->tensor, (size_t)s->n, sizeof key, by_name) : NULL;
}

/* ---- files ---- */

/* CoLA's names of factors, and ours. Returns the length of the part before, or 0. */
static size_t cola_factor(const char **ours, const char *name)
{
    static const char *const names[][2] = {{".cola_a", ".down.weight"}, {".cola_b", ".up.weight"}};
    size_t n = strlen(name);

    for (int i = 0; i < 2; i++) {
        size_t end = strlen(names[i][0]);

        if (n > end && !strcmp(name + n - end, names[i][0])) {
            *ours = names[i][1];
            return n - end;
        }
    }
    return 0;
}

static enum status add_tensor(struct source *s, const struct safetensors_tensor *t,
                              const char *file_path)
{
    const char *end = NULL;
    size_t stem = cola_factor(&end, t->name), room = strlen(t->name) + 16;
    char *name;
    enum status st;

    if (!stem)
        return source_add(s, t->name, t, SOURCE_PLAIN, 0, file_path);
    name = malloc(room);
    if (!name)
        return fail(ST_ENOMEM, "no memory for the name of a tensor");
    snprintf(name, room, "%.*s%s", (int)stem, t->name, end);
    st = source_add(s, name, t, SOURCE_TURNED, 0, file_path);
    free(name);
    return st;
}

static enum status add_file(struct source *s, const char *path)
{
    struct safetensors *f;

    if (s->files == s->file_room) {
        int room = s->file_room ? 2 * s->file_room : 4;
        struct safetensors *grown = realloc(s->file, (size_t)room * sizeof *grown);

        if (!grown)
            return fail(ST_ENOMEM, "no memory for the files of %s", s->where);
        s->file = grown;
        s->file_room = room;
    }
    f = &s->file[s->files];
    TRY(safetensors_open(f, path));
    s->files++;
    for (int i = 0; i < f->n; i++)
        TRY(add_tensor(s, &f->tensor[i], f->path));
    return ST_OK;
}

/* An entry of weight_map: its file is opened unless it is open, and must hold the tensor. */
static enum status add_listed(struct source *s, const char *dir, const char *tensor,
                              const json_t *name)
{
    const struct safetensors *f = NULL;
    char path[FOLDER_PATH];

    if (!json_is_string(name) || strchr(json_string_value(name), '/'))
        return fail(ST_EFORMAT, "%s/" WEIGHTS_INDEX ": weight_map holds what is no file name", dir);
    TRY(folder_join(path, dir, json_string_value(name)));
    for (int i = 0; i < s->files && !f; i++)
        if (!strcmp(s->file[i].path, path))
            f = &s->file[i];
    if (!f) {
        if (s->files == FILES_MOST)
            return fail(ST_EFORMAT, "%s/" WEIGHTS_INDEX ": more than %d files", dir, FILES_MOST);
        TRY(add_file(s, path));
        f = &s->file[s->files - 1];
    }
    if (!safetensors_find(f, tensor))
        return fail(ST_EFORMAT, "%s/" WEIGHTS_INDEX ": tensor %.96s is missing from %.96s", dir,
                    tensor, json_string_value(name));
    return ST_OK;
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
        st = add_listed(s, dir, json_object_iter_key(at), json_object_iter_value(at));
    json_decref(root);
    return st;
}

static enum status add_folder(struct source *s, const char *dir)
{
    char one[FOLDER_PATH], index[FOLDER_PATH];

    TRY(folder_join(one, dir, WEIGHTS_TENSORS));
    TRY(folder_join(index, dir, WEIGHTS_INDEX));
    return access(one, R_OK) && !access(index, R_OK) ? add_indexed(s, dir) : add_file(s, one);
}

/* ---- opening ---- */

static int is_folder(const char *path)
{
    struct stat info;

    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

int source_is_bin(const char *path)
{
    size_t n = strlen(path);

    return n > 4 && !strcmp(path + n - 4, ".bin") && !is_folder(path);
}

/* Kind and ids of a folder; one that has no config.json (a single file) is taken for a LLaMA. */
static enum status read_kind(struct source *s, const char *path)
{
    char json[FOLDER_PATH];
    struct config *cfg;
    enum status st;

    s->kind = HF_LLAMA;
    s->ids = (struct hf_ids){-1, -1, -1};
    if (s->bin || !is_folder(path))
        return ST_OK;
    TRY(folder_join(json, path, WEIGHTS_CONFIG));
    cfg = malloc(sizeof *cfg);
    if (!cfg)
        return fail(ST_ENOMEM, "no memory for the configuration of %s", path);
    config_default(cfg);
    st = hf_config_read_all(cfg, &s->kind, &s->ids, json);
    free(cfg);
    return st;
}

static enum status open_all(struct source *s, const char *path)
{
    TRY(read_kind(s, path));
    TRY(s->bin            ? source_bin_open(s, path)
        : is_folder(path) ? add_folder(s, path)
                          : add_file(s, path));
    return finish_table(s);
}

enum status source_open(struct source *s, const char *path)
{
    enum status st;

    memset(s, 0, sizeof *s);
    s->where = path;
    s->bin = source_is_bin(path);
    st = open_all(s, path);
    if (st != ST_OK)
        source_close(s);
    return st;
}

void source_close(struct source *s)
{
    for (int i = 0; i < s->n; i++)
        free(s->tensor[i].name);
    free(s->tensor);
    for (int i = 0; i < s->files; i++)
        safetensors_close(&s->file[i]);
    free(s->file);
    if (s->map)
        munmap(s->map, s->map_size);
    memset(s, 0, sizeof *s);
}

enum status source_config(struct config *cfg, const char *path)
{
    char json[FOLDER_PATH];

    if (source_is_bin(path))
        return source_bin_config(cfg, path);
    TRY(folder_join(json, path, WEIGHTS_CONFIG));
    return hf_config_read(cfg, json);
}

/* ---- values ---- */

/* The row of the file that is row `row` here. */
static int64_t halved_row(const struct source_tensor *t, int64_t row)
{
    int64_t head = row / t->head_dim, j = row % t->head_dim, half = t->head_dim / 2;

    return head * t->head_dim + (j < half ? 2 * j : 2 * (j - half) + 1);
}

enum status source_read(void *out, enum dtype dt, const struct source_tensor *t, int64_t row,
                        int64_t col, int64_t n)
{
    FAIL_IF(row < 0 || row >= t->rows || col < 0 || n < 0 || col > t->cols - n, ST_EINTERNAL);
    if (t->map == SOURCE_HALVED)
        row = halved_row(t, row);
    if (t->map != SOURCE_TURNED)
        return safetensors_read(out, dt, &t->raw, row * t->cols + col, n);
    for (int64_t i = 0; i < n; i++)
        TRY(safetensors_read((char *)out + (size_t)i * dtype_size(dt), dt, &t->raw,
                             (col + i) * t->rows + row, 1));
    return ST_OK;
}

enum status source_read_all(void *out, enum dtype dt, const struct source_tensor *t)
{
    int64_t bad;

    for (int64_t i = 0; i < t->rows; i++)
        TRY(source_read((char *)out + (size_t)(i * t->cols) * dtype_size(dt), dt, t, i, 0,
                        t->cols));
    bad = dtype_not_finite(out, dt, t->rows * t->cols);
    if (bad >= 0)
        return fail(ST_EFORMAT, "%s: tensor %s: row %lld, column %lld is not finite", t->file_path,
                    t->name, (long long)(bad / t->cols), (long long)(bad % t->cols));
    return ST_OK;
}

int source_redundant(const struct source *s, const struct source_tensor *t, int tied)
{
    static const char end[] = ".self_attn.rotary_emb.inv_freq";
    const struct source_tensor *embed;
    size_t n = strlen(t->name);

    if (n >= sizeof end && !strcmp(t->name + n - (sizeof end - 1), end))
        return 1;
    embed = source_find(s, "model.embed_tokens.weight");
    if (strcmp(t->name, "lm_head.weight") != 0 || !tied || !embed)
        return 0;
    return embed->raw.type == t->raw.type &&
           embed->raw.end - embed->raw.begin == t->raw.end - t->raw.begin &&
           !memcmp(embed->raw.data, t->raw.data, t->raw.end - t->raw.begin);
}

enum dtype source_wide(const struct source *s)
{
    for (int i = 0; i < s->n; i++)
        if (s->tensor[i].raw.type == SAFETENSORS_F64)
            return DT_F64;
    return DT_F32;
}
