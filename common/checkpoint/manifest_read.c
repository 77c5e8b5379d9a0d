/* From the text to the table. */
#include "common/checkpoint/folder.h"
#include "common/checkpoint/manifest.h"

#include "common/base/hash.h"
#include "common/model/config_value.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a manifest ends with, and its bytes. */
#define SEAL_FORMAT ",\"xxh64\":\"%016llx\"}\n"
enum { SEAL = sizeof ",\"xxh64\":\"0123456789abcdef\"}\n" - 1 };
enum { DIM_MOST = 1 << 30, FILES_MOST = 1 << 20 };
static const int64_t text_most = INT64_C(1) << 30;

/* ---- fields ---- */

static enum status bad(const struct manifest *m, const char *what)
{
    return fail(ST_EFORMAT, "%s: %s is missing, or not what it should be", m->path, what);
}

static enum status get_int(int64_t *out, const struct manifest *m, const json_t *o, const char *key,
                           int64_t lo, int64_t hi)
{
    const json_t *v = json_object_get(o, key);

    if (!json_is_integer(v) || json_integer_value(v) < lo || json_integer_value(v) > hi)
        return bad(m, key);
    *out = json_integer_value(v);
    return ST_OK;
}

static enum status get_u64(uint64_t *out, const struct manifest *m, const json_t *o,
                           const char *key)
{
    int64_t v;

    TRY(get_int(&v, m, o, key, 0, INT64_MAX));
    *out = (uint64_t)v;
    return ST_OK;
}

static enum status get_text(const char **out, const struct manifest *m, const json_t *o,
                            const char *key, size_t most)
{
    *out = json_string_value(json_object_get(o, key));
    return *out && strlen(*out) < most ? ST_OK : bad(m, key);
}

static enum status get_hash(uint64_t *out, const struct manifest *m, const json_t *o,
                            const char *key)
{
    const char *text;
    char *end;

    TRY(get_text(&text, m, o, key, HASH_HEX));
    *out = strtoull(text, &end, 16);
    return strlen(text) == HASH_HEX - 1 && !*end ? ST_OK : bad(m, key);
}

static enum status get_real(double *out, const struct manifest *m, const json_t *o, const char *key)
{
    const char *text;
    char *end;

    TRY(get_text(&text, m, o, key, 40));
    *out = strtod(text, &end);
    return *text && !*end ? ST_OK : bad(m, key);
}

static enum status get_pair(int64_t out[2], const struct manifest *m, const json_t *o,
                            const char *key)
{
    const json_t *list = json_object_get(o, key);

    if (json_array_size(list) != 2)
        return bad(m, key);
    for (size_t i = 0; i < 2; i++) {
        const json_t *v = json_array_get(list, i);

        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > DIM_MOST)
            return bad(m, key);
        out[i] = json_integer_value(v);
    }
    return ST_OK;
}

/* ---- sections ---- */

/* A key of today that the manifest lacks keeps its default: it came later. One that is not known
 * today comes from a later program, which may mean something by it. */
static enum status read_config(struct manifest *m, json_t *o)
{
    config_default(&m->cfg);
    if (!json_is_object(o))
        return bad(m, "config");
    for (void *at = json_object_iter(o); at; at = json_object_iter_next(o, at)) {
        const char *name = json_object_iter_key(at),
                   *text = json_string_value(json_object_iter_value(at));
        const struct config_key *k = config_find(name);

        if (!k || !text)
            return fail(ST_EFORMAT, "%s: this narrows knows no configuration key %.64s", m->path,
                        name);
        if (k->type == CONFIG_IS_TEXT && !*text)
            ((char *)&m->cfg)[k->offset] = '\0';
        else if (config_value_set(&m->cfg, k, text) != ST_OK) {
            status_prefix("%s: ", m->path);
            return ST_EFORMAT;
        }
    }
    return ST_OK;
}

static enum status read_state(struct manifest *m, json_t *root)
{
    struct manifest_state *s = &m->state;
    json_t *data = json_object_get(root, "data"), *told = json_object_get(root, "statistics");
    int64_t ranks;

    TRY(get_int(&s->step, m, root, "step", 0, INT64_MAX / 2));
    TRY(get_int(&ranks, m, root, "ranks", 1, FILES_MOST));
    TRY(get_int(&s->samples, m, data, "samples", 0, INT64_MAX / 2));
    TRY(get_hash(&s->train, m, data, "train"));
    TRY(get_hash(&s->validation, m, data, "validation"));
    TRY(get_real(&s->loss, m, told, "loss"));
    TRY(get_real(&s->norm, m, told, "grad_norm"));
    TRY(get_real(&s->best, m, told, "best_validation_loss"));
    m->ranks = (int)ranks;
    return get_int(&s->skips, m, told, "skipped_in_a_row", 0, 1 << 30);
}

static enum status read_files(struct manifest *m, const json_t *list)
{
    size_t n = json_array_size(list);

    if (!json_is_array(list) || n > FILES_MOST)
        return bad(m, "files");
    m->file = calloc(n + 1, sizeof *m->file);
    if (!m->file)
        return fail(ST_ENOMEM, "no memory for the table of %zu files", n);
    for (size_t i = 0; i < n; i++) {
        const json_t *o = json_array_get(list, i);
        struct manifest_file *f = &m->file[m->files++];
        const char *name;

        TRY(get_text(&name, m, o, "name", sizeof f->name));
        if (!*name || *name == '.' || strchr(name, '/'))
            return bad(m, "name of a file");
        snprintf(f->name, sizeof f->name, "%s", name);
        TRY(get_u64(&f->bytes, m, o, "bytes"));
        TRY(get_u64(&f->header, m, o, "header"));
        TRY(get_hash(&f->hash, m, o, "xxh64"));
        if (f->header > f->bytes)
            return bad(m, "header");
    }
    return ST_OK;
}

/* Numbers that depend on each other. */
static enum status check_piece(const struct manifest *m, const struct manifest_piece *p)
{
    const struct part_area *a = &p->area;
    const struct manifest_file *f = &m->file[p->file];

    if (a->rows < 1 || a->cols < 1 || a->row + a->rows > p->rows || a->col + a->cols > p->cols)
        return fail(ST_EFORMAT, "%s: tensor %s: a piece lies outside the tensor", m->path,
                    p->tensor);
    if (p->offset < f->header || p->offset > f->bytes || p->bytes > f->bytes - p->offset)
        return fail(ST_EFORMAT, "%s: tensor %s: a piece lies outside %s", m->path, p->tensor,
                    f->name);
    return ST_OK;
}

static enum status read_piece(struct manifest *m, struct manifest_piece *p, const json_t *o)
{
    const char *kind, *type;
    int64_t grain, file, at[2], shape[2];

    TRY(get_text(&kind, m, o, "kind", 16));
    TRY(get_text(&type, m, o, "dtype", 16));
    p->kind = (int32_t)part_kind_find(kind);
    p->dtype = (int32_t)manifest_type_find(type);
    if (p->kind == PART_KINDS || p->dtype == DT_COUNT)
        return fail(ST_EFORMAT, "%s: tensor %s: kind %s of type %s is not known", m->path,
                    p->tensor, kind, type);
    TRY(get_int(&grain, m, o, "grain", 0, DIM_MOST));
    TRY(get_int(&file, m, o, "file", 0, m->files - 1));
    TRY(get_pair(at, m, o, "at"));
    TRY(get_pair(shape, m, o, "shape"));
    TRY(get_u64(&p->offset, m, o, "offset"));
    TRY(get_hash(&p->hash, m, o, "xxh64"));
    p->grain = (int32_t)grain;
    p->file = (int32_t)file;
    p->area = (struct part_area){.row = at[0], .col = at[1], .rows = shape[0], .cols = shape[1]};
    p->bytes = (uint64_t)(shape[0] * shape[1]) * dtype_size((enum dtype)p->dtype);
    return check_piece(m, p);
}

static enum status read_tensor(struct manifest *m, const json_t *o)
{
    const json_t *list = json_object_get(o, "pieces");
    int64_t shape[2];
    const char *name;

    TRY(get_text(&name, m, o, "name", MANIFEST_TENSOR));
    TRY(get_pair(shape, m, o, "shape"));
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct manifest_piece *p = &m->piece[m->pieces];

        snprintf(p->tensor, sizeof p->tensor, "%s", name);
        p->rows = shape[0];
        p->cols = shape[1];
        TRY(read_piece(m, p, json_array_get(list, i)));
        m->pieces++;
    }
    return ST_OK;
}

static enum status read_tensors(struct manifest *m, const json_t *list)
{
    size_t n = json_array_size(list), pieces = 0;

    if (!json_is_array(list))
        return bad(m, "tensors");
    for (size_t i = 0; i < n; i++)
        pieces += json_array_size(json_object_get(json_array_get(list, i), "pieces"));
    m->piece = calloc(pieces + 1, sizeof *m->piece);
    if (!m->piece)
        return fail(ST_ENOMEM, "no memory for the table of %zu pieces", pieces);
    for (size_t i = 0; i < n; i++)
        TRY(read_tensor(m, json_array_get(list, i)));
    manifest_sort(m);
    return ST_OK;
}

/* ---- the file ---- */

/* *text [*n], a zero behind it. */
static enum status read_text(char **text, size_t *n, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    ssize_t got = -1;

    if (fd < 0)
        return fail(ST_EIO, "%s cannot be opened: %s", path, strerror(errno));
    *text = NULL;
    if (!fstat(fd, &info) && S_ISREG(info.st_mode) && info.st_size < text_most)
        *text = malloc((size_t)info.st_size + 1);
    if (*text)
        got = read(fd, *text, (size_t)info.st_size);
    close(fd);
    if (got < 0 || got != info.st_size) {
        free(*text);
        return fail(ST_EIO, "%s cannot be read", path);
    }
    *n = (size_t)got;
    (*text)[*n] = '\0';
    return ST_OK;
}

/* A text of another format is called so before its hash is looked at: it may have none. */
static enum status check_version(const struct manifest *m, const json_t *root)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_t *version = json_object_get(root, "version");

    if (!format || strcmp(format, "narrows checkpoint") != 0 || !json_is_integer(version))
        return fail(ST_EFORMAT, "%s is no manifest of a narrows checkpoint", m->path);
    if (json_integer_value(version) != MANIFEST_VERSION)
        return fail(ST_EFORMAT,
                    "%s has format version %lld; this narrows reads version %d: use the narrows "
                    "that wrote it, or a later one",
                    m->path, (long long)json_integer_value(version), MANIFEST_VERSION);
    return ST_OK;
}

static enum status check_seal(const struct manifest *m, const char *text, size_t n)
{
    char want[SEAL + 1];

    if (n <= SEAL)
        return fail(ST_EFORMAT, "%s is too short for a manifest", m->path);
    snprintf(want, sizeof want, SEAL_FORMAT, (unsigned long long)hash_bytes(text, n - SEAL));
    if (strcmp(text + n - SEAL, want) != 0)
        return fail(ST_EFORMAT, "%s is damaged: its hash is not that of its text", m->path);
    return ST_OK;
}

static enum status parse(struct manifest *m, const char *text, size_t n)
{
    json_error_t error;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    enum status st;

    if (!root)
        return fail(ST_EFORMAT, "%s is damaged: byte %d: %s", m->path, error.position, error.text);
    st = check_version(m, root);
    if (st == ST_OK)
        st = check_seal(m, text, n);
    if (st == ST_OK)
        st = read_config(m, json_object_get(root, "config"));
    if (st == ST_OK)
        st = read_state(m, root);
    if (st == ST_OK)
        st = read_files(m, json_object_get(root, "files"));
    if (st == ST_OK)
        st = read_tensors(m, json_object_get(root, "tensors"));
    if (st == ST_OK)
        st = manifest_check_covers(m);
    json_decref(root);
    return st;
}

enum status manifest_read(struct manifest *m, const char *folder)
{
    char path[FOLDER_PATH], *text = NULL;
    size_t n = 0;
    enum status st;

    memset(m, 0, sizeof *m);
    TRY(folder_join(path, folder, MANIFEST_NAME));
    m->path = strdup(path);
    if (!m->path)
        return fail(ST_ENOMEM, "no memory to read %s", path);
    st = read_text(&text, &n, path);
    if (st == ST_OK) {
        st = parse(m, text, n);
        free(text);
    }
    if (st != ST_OK)
        manifest_free(m);
    return st;
}
