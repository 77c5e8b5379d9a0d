/* The reader. */
#include "common/checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are read as they lie in memory");

enum { HEADER_MOST = 100000000, LABEL = 100 };

/* ---- opening ---- */

static enum status map_file(struct safetensors *f, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe shall not keep us waiting */
    struct stat info;
    enum status st = ST_OK;

    if (fd < 0)
        return fail(ST_EIO, "%s cannot be opened: %s", path, strerror(errno));
    if (fstat(fd, &info))
        st = fail(ST_EIO, "%s cannot be read: %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode))
        st = fail(ST_EIO, "%s is not a file", path);
    else if (info.st_size < 8)
        st = fail(ST_EFORMAT,
                  "%s is no safetensors file: it has %lld bytes, the length of the "
                  "header alone takes 8",
                  path, (long long)info.st_size);
    if (st == ST_OK) {
        f->size = (size_t)info.st_size;
        f->map = mmap(NULL, f->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (f->map == MAP_FAILED) {
            f->map = NULL;
            st = fail(ST_EIO, "%s cannot be mapped: %s", path, strerror(errno));
        }
    }
    close(fd);
    return st;
}

/* The JSON: [*text, *text + *n) without its padding. */
static enum status find_header(const struct safetensors *f, const char **text, size_t *n)
{
    uint64_t length;

    memcpy(&length, f->map, sizeof length);
    if (length > HEADER_MOST)
        return fail(ST_EFORMAT,
                    "%s: a header of %" PRIu64 " bytes; at most %d are allowed (is it "
                    "a safetensors file?)",
                    f->path, length, HEADER_MOST);
    if (length > f->size - 8)
        return fail(ST_EFORMAT,
                    "%s: a header of %" PRIu64 " bytes in a file of %zu: it was cut off", f->path,
                    length, f->size);
    *text = (const char *)f->map + 8;
    *n = (size_t)length;
    while (*n && (*text)[*n - 1] == ' ')
        (*n)--;
    if (*n < 2 || (*text)[0] != '{' || (*text)[*n - 1] != '}')
        return fail(ST_EFORMAT, "%s: the header is no JSON object padded with spaces", f->path);
    return ST_OK;
}

static enum status parse_header(struct safetensors *f)
{
    const char *text = NULL;
    size_t n = 0;
    json_error_t error;

    TRY(find_header(f, &text, &n));
    f->header = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (!f->header)
        return fail(ST_EFORMAT, "%s: header, byte %d: %s", f->path, error.position, error.text);
    if (!json_is_object((json_t *)f->header))
        return fail(ST_EFORMAT, "%s: the header is no JSON object", f->path);
    return ST_OK;
}

static enum status check_metadata(const struct safetensors *f, json_t *metadata)
{
    if (!json_is_object(metadata))
        return fail(ST_EFORMAT, "%s: __metadata__ is no object", f->path);
    for (void *at = json_object_iter(metadata); at; at = json_object_iter_next(metadata, at))
        if (!json_is_string(json_object_iter_value(at)))
            return fail(ST_EFORMAT, "%s: __metadata__ holds a value that is no text", f->path);
    return ST_OK;
}

/* ---- one tensor ---- */

/* A name that a terminal can stand. */
static void set_label(char label[LABEL], const char *name)
{
    size_t i = 0;

    for (; name[i] && i < LABEL - 1; i++) {
        label[i] = name[i];
        if ((unsigned char)name[i] < 32 || name[i] == 127)
            label[i] = '?';
    }
    label[i] = '\0';
}

static enum status parse_type(struct safetensors_tensor *t, json_t *dtype)
{
    char label[LABEL];

    if (!json_is_string(dtype))
        return fail(ST_EFORMAT, "dtype is no text");
    for (int i = 0; i < SAFETENSORS_TYPE_COUNT; i++) {
        if (strcmp(json_string_value(dtype), safetensors_type_name((enum safetensors_type)i)) != 0)
            continue;
        t->type = (enum safetensors_type)i;
        return ST_OK;
    }
    set_label(label, json_string_value(dtype));
    return fail(ST_EFORMAT, "dtype %s is not known", label);
}

static enum status parse_shape(struct safetensors_tensor *t, json_t *shape, int64_t *dims)
{
    int64_t most = INT64_MAX / 8; /* bytes fit as well */

    t->rank = (int)json_array_size(shape);
    t->shape = dims;
    t->count = 1;
    for (int i = 0; i < t->rank; i++) {
        json_t *dim = json_array_get(shape, (size_t)i);

        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return fail(ST_EFORMAT, "dimension %d of the shape is no whole number from 0 on", i);
        dims[i] = json_integer_value(dim);
        if (dims[i] && t->count > most / dims[i])
            return fail(ST_EFORMAT, "the shape has more elements than a number can hold");
        t->count *= dims[i];
    }
    return ST_OK;
}

static enum status parse_offsets(struct safetensors_tensor *t, json_t *offsets, size_t data_size)
{
    json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    size_t bytes = (size_t)t->count * safetensors_type_size(t->type);

    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return fail(ST_EFORMAT, "data_offsets is no pair of whole numbers");
    if (json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin) ||
        (uint64_t)json_integer_value(end) > data_size)
        return fail(ST_EFORMAT, "data_offsets %lld to %lld lie outside the %zu bytes of data",
                    (long long)json_integer_value(begin), (long long)json_integer_value(end),
                    data_size);
    t->begin = (size_t)json_integer_value(begin);
    t->end = (size_t)json_integer_value(end);
    if (t->end - t->begin != bytes)
        return fail(ST_EFORMAT, "data_offsets span %zu bytes, shape and dtype take %zu",
                    t->end - t->begin, bytes);
    return ST_OK;
}

static enum status parse_tensor(struct safetensors_tensor *t, json_t *value, int64_t *dims,
                                size_t data_size)
{
    json_t *dtype = json_object_get(value, "dtype"), *shape = json_object_get(value, "shape"),
           *offsets = json_object_get(value, "data_offsets");

    if (!dtype || !json_is_array(shape) || !json_is_array(offsets) || json_object_size(value) != 3)
        return fail(ST_EFORMAT, "it is not described by dtype, shape and data_offsets alone");
    TRY(parse_type(t, dtype));
    TRY(parse_shape(t, shape, dims));
    TRY(parse_offsets(t, offsets, data_size));
    return ST_OK;
}

/* ---- all tensors ---- */

static int by_place(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int by_name(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;

    return strcmp(x->name, y->name);
}

static enum status check_coverage(const struct safetensors *f, size_t data_size)
{
    char label[LABEL];
    size_t at = 0;

    qsort(f->tensor, (size_t)f->n, sizeof *f->tensor, by_place);
    for (int i = 0; i < f->n; i++) {
        const struct safetensors_tensor *t = &f->tensor[i];

        set_label(label, t->name);
        if (t->begin != at)
            return fail(ST_EFORMAT,
                        "%s: tensor %s begins at byte %zu of the data, where %zu is "
                        "next: a %s",
                        f->path, label, t->begin, at, t->begin > at ? "gap" : "overlap");
        at = t->end;
    }
    if (at != data_size)
        return fail(ST_EFORMAT, "%s: %zu bytes of data, of which tensors take %zu", f->path,
                    data_size, at);
    qsort(f->tensor, (size_t)f->n, sizeof *f->tensor, by_name);
    return ST_OK;
}

/* Room for all tensors and their dimensions. */
static enum status make_room(struct safetensors *f)
{
    json_t *root = f->header;
    size_t n = json_object_size(root), dims = 0;

    for (void *at = json_object_iter(root); at; at = json_object_iter_next(root, at))
        dims += json_array_size(json_object_get(json_object_iter_value(at), "shape"));
    f->tensor = calloc(n + 1, sizeof *f->tensor);
    f->dims = calloc(dims + 1, sizeof *f->dims);
    if (!f->tensor || !f->dims)
        return fail(ST_ENOMEM, "no memory for the table of %zu tensors of %s", n, f->path);
    return ST_OK;
}

/* One entry of the header, a tensor; *dims moves on. */
static enum status add_tensor(struct safetensors *f, const char *name, json_t *value,
                              int64_t **dims, size_t data_size)
{
    struct safetensors_tensor *t = &f->tensor[f->n++];
    char label[LABEL];

    t->name = name;
    if (parse_tensor(t, value, *dims, data_size) != ST_OK) {
        set_label(label, name);
        status_prefix("%s: tensor %s: ", f->path, label);
        return ST_EFORMAT;
    }
    t->data = (const char *)f->map + f->size - data_size + t->begin;
    *dims += t->rank;
    return ST_OK;
}

static enum status parse_tensors(struct safetensors *f)
{
    json_t *root = f->header;
    uint64_t header;
    int64_t *dims;

    memcpy(&header, f->map, sizeof header);
    TRY(make_room(f));
    dims = f->dims;
    for (void *at = json_object_iter(root); at; at = json_object_iter_next(root, at)) {
        const char *name = json_object_iter_key(at);
        json_t *value = json_object_iter_value(at);

        if (strcmp(name, "__metadata__") == 0)
            TRY(check_metadata(f, value));
        else
            TRY(add_tensor(f, name, value, &dims, f->size - 8 - (size_t)header));
    }
    return check_coverage(f, f->size - 8 - (size_t)header);
}

static enum status open_checked(struct safetensors *f, const char *path)
{
    f->path = strdup(path);
    if (!f->path)
        return fail(ST_ENOMEM, "no memory to open %s", path);
    TRY(map_file(f, path));
    TRY(parse_header(f));
    TRY(parse_tensors(f));
    return ST_OK;
}

enum status safetensors_open(struct safetensors *f, const char *path)
{
    enum status st;

    memset(f, 0, sizeof *f);
    st = open_checked(f, path);
    if (st != ST_OK)
        safetensors_close(f);
    return st;
}

void safetensors_close(struct safetensors *f)
{
    json_decref(f->header);
    free(f->tensor);
    free(f->dims);
    free(f->path);
    if (f->map)
        munmap(f->map, f->size);
    memset(f, 0, sizeof *f);
}

/* ---- looking ---- */

const struct safetensors_tensor *safetensors_find(const struct safetensors *f, const char *name)
{
    struct safetensors_tensor key = {.name = name};

    return f->n ? bsearch(&key, f->tensor, (size_t)f->n, sizeof key, by_name) : NULL;
}

const char *safetensors_metadata(const struct safetensors *f, const char *key)
{
    return json_string_value(json_object_get(json_object_get(f->header, "__metadata__"), key));
}
