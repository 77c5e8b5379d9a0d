/* The writer. */
#include "common/checkpoint/folder.h"
#include "common/checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t spec_bytes(const struct safetensors_spec *t)
{
    uint64_t n = safetensors_type_size(t->type);

    for (int i = 0; i < t->rank; i++)
        n *= (uint64_t)t->shape[i];
    return n;
}

/* Wide elements first, so that each tensor is aligned to its type. */
static int by_order(const void *a, const void *b)
{
    const struct safetensors_spec *x = a, *y = b;
    size_t x_size = safetensors_type_size(x->type), y_size = safetensors_type_size(y->type);

    if (x_size != y_size)
        return x_size > y_size ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    const struct safetensors_slot *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static void release(struct safetensors_writer *w)
{
    for (int i = 0; i < w->n; i++)
        free(w->slot[i].name);
    free(w->slot);
    free(w->path);
    free(w->temporary);
    *w = (struct safetensors_writer){.fd = -1};
}

/* ---- the header ---- */

static json_t *describe(const struct safetensors_spec *t, uint64_t begin)
{
    json_t *shape = json_array();
    uint64_t end = begin + spec_bytes(t);

    for (int i = 0; i < t->rank; i++)
        json_array_append_new(shape, json_integer(t->shape[i]));
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", safetensors_type_name(t->type), "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)end);
}

/* *text = the header with its length in front, padded to a multiple of 8 bytes; *n bytes. */
static enum status header_text(char **text, size_t *n, json_t *header)
{
    size_t json = json_dumpb(header, NULL, 0, JSON_COMPACT);
    uint64_t padded = (json + 7) / 8 * 8;

    *n = 8 + (size_t)padded;
    *text = json ? malloc(*n) : NULL;
    if (!*text)
        return fail(ST_ENOMEM, "no memory for the header of a safetensors file");
    memcpy(*text, &padded, 8);
    memset(*text + 8, ' ', (size_t)padded);
    json_dumpb(header, *text + 8, json, JSON_COMPACT);
    return ST_OK;
}

static enum status metadata_text(json_t *header, const char *const *metadata)
{
    json_t *object = json_object();
    int bad = json_object_set_new(header, "__metadata__", object);

    for (; metadata[0] && !bad; metadata += 2)
        bad = json_object_set_new(object, metadata[0], json_string(metadata[1]));
    FAIL_IF(bad, ST_EINTERNAL);
    return ST_OK;
}

/* Fills header and slots (their places counted from the first byte of data). */
static enum status lay_out(struct safetensors_writer *w, json_t *header,
                           const struct safetensors_spec *t, int n)
{
    uint64_t at = 0;

    for (int i = 0; i < n; i++) {
        FAIL_IF(t[i].rank < 0 || t[i].rank > SAFETENSORS_RANK_WRITTEN, ST_EINTERNAL);
        FAIL_IF(json_object_get(header, t[i].name), ST_EINTERNAL);
        FAIL_IF(json_object_set_new(header, t[i].name, describe(&t[i], at)), ST_EINTERNAL);
        w->slot[i] = (struct safetensors_slot){
            .name = strdup(t[i].name), .offset = at, .bytes = spec_bytes(&t[i])};
        w->n++;
        if (!w->slot[i].name)
            return fail(ST_ENOMEM, "no memory for the table of %d tensors", n);
        at += w->slot[i].bytes;
    }
    return ST_OK;
}

static enum status write_header(struct safetensors_writer *w, json_t *header)
{
    char *text = NULL;
    size_t n;
    enum status st = header_text(&text, &n, header);

    if (st == ST_OK)
        st = folder_pwrite(w->fd, text, n, 0, w->temporary);
    for (int i = 0; i < w->n; i++)
        w->slot[i].offset += n;
    free(text);
    return st;
}

/* Builds header and slots of w from tensors in the file's order. */
static enum status build(struct safetensors_writer *w, json_t *header,
                         const struct safetensors_spec *sorted, int n, const char *const *metadata)
{
    if (metadata)
        TRY(metadata_text(header, metadata));
    return lay_out(w, header, sorted, n);
}

static enum status sort(struct safetensors_spec **sorted, const struct safetensors_spec *t, int n)
{
    *sorted = malloc(((size_t)n + 1) * sizeof **sorted);
    if (!*sorted)
        return fail(ST_ENOMEM, "no memory for the table of %d tensors", n);
    if (n)
        memcpy(*sorted, t, (size_t)n * sizeof **sorted);
    qsort(*sorted, (size_t)n, sizeof **sorted, by_order);
    return ST_OK;
}

static struct safetensors_slot *find_slot(const struct safetensors_writer *w, const char *name)
{
    struct safetensors_slot key;

    key.name = (char *)name; /* only compared */
    return bsearch(&key, w->slot, (size_t)w->n, sizeof key, by_name);
}

static enum status header_of(struct safetensors_writer *w, char **text, size_t *bytes,
                             const struct safetensors_spec *sorted, int n,
                             const char *const *metadata)
{
    json_t *header = json_object();
    enum status st;

    w->slot = calloc((size_t)n + 1, sizeof *w->slot);
    st = w->slot ? build(w, header, sorted, n, metadata)
                 : fail(ST_ENOMEM, "no memory for the table of %d tensors", n);
    if (st == ST_OK)
        st = header_text(text, bytes, header);
    json_decref(header);
    qsort(w->slot, (size_t)w->n, sizeof *w->slot, by_name);
    return st;
}

enum status safetensors_header(char **text, size_t *bytes, uint64_t *offset,
                               const struct safetensors_spec *t, int n, const char *const *metadata)
{
    struct safetensors_writer w = {.fd = -1};
    struct safetensors_spec *sorted;
    enum status st;

    TRY(sort(&sorted, t, n));
    st = header_of(&w, text, bytes, sorted, n, metadata);
    for (int i = 0; st == ST_OK && i < n; i++)
        offset[i] = *bytes + find_slot(&w, t[i].name)->offset;
    free(sorted);
    release(&w);
    return st;
}

/* ---- the file ---- */

static enum status open_names(struct safetensors_writer *w, const char *path, int n)
{
    size_t room = strlen(path) + sizeof ".partial";

    w->path = strdup(path);
    w->temporary = malloc(room);
    w->slot = calloc((size_t)n + 1, sizeof *w->slot);
    if (!w->path || !w->temporary || !w->slot)
        return fail(ST_ENOMEM, "no memory to write %s", path);
    snprintf(w->temporary, room, "%s.partial", path);
    w->fd = open(w->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w->fd >= 0)
        return ST_OK;
    fail(ST_EIO, "cannot write %s: %s", w->temporary, strerror(errno));
    free(w->temporary); /* whatever has that name is not ours */
    w->temporary = NULL;
    return ST_EIO;
}

static enum status begin(struct safetensors_writer *w, const struct safetensors_spec *sorted, int n,
                         const char *const *metadata)
{
    json_t *header = json_object();
    enum status st = build(w, header, sorted, n, metadata);

    if (st == ST_OK)
        st = write_header(w, header);
    json_decref(header);
    qsort(w->slot, (size_t)w->n, sizeof *w->slot, by_name);
    return st;
}

enum status safetensors_create(struct safetensors_writer *w, const char *path,
                               const struct safetensors_spec *t, int n, const char *const *metadata)
{
    struct safetensors_spec *sorted;
    enum status st;

    *w = (struct safetensors_writer){.fd = -1};
    TRY(sort(&sorted, t, n));
    st = open_names(w, path, n);
    if (st == ST_OK)
        st = begin(w, sorted, n, metadata);
    free(sorted);
    if (st != ST_OK)
        safetensors_drop(w);
    return st;
}

enum status safetensors_put(struct safetensors_writer *w, const char *name, const void *data)
{
    struct safetensors_slot *slot = find_slot(w, name);

    FAIL_IF(!slot || slot->written, ST_EINTERNAL);
    TRY(folder_pwrite(w->fd, data, (size_t)slot->bytes, slot->offset, w->temporary));
    slot->written = 1;
    return ST_OK;
}

static enum status put_on_disk(struct safetensors_writer *w)
{
    int bad;

    for (int i = 0; i < w->n; i++)
        FAIL_IF(!w->slot[i].written, ST_EINTERNAL);
    if (fsync(w->fd))
        return fail(ST_EIO, "cannot put %s on disk: %s", w->temporary, strerror(errno));
    bad = close(w->fd);
    w->fd = -1;
    if (bad)
        return fail(ST_EIO, "cannot write %s: %s", w->temporary, strerror(errno));
    if (rename(w->temporary, w->path))
        return fail(ST_EIO, "cannot rename %s to %s: %s", w->temporary, w->path, strerror(errno));
    return folder_sync_parent(w->path);
}

enum status safetensors_finish(struct safetensors_writer *w)
{
    enum status st = put_on_disk(w);

    if (st == ST_OK)
        release(w);
    else
        safetensors_drop(w);
    return st;
}

void safetensors_drop(struct safetensors_writer *w)
{
    if (w->fd >= 0)
        close(w->fd);
    if (w->temporary)
        (void)unlink(w->temporary);
    release(w);
}
