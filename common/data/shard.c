#include "common/data/shard.h"

#include "common/base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- names ---- */

static int ends_with(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);

    return n > m && !strcmp(path + n - m, end);
}

/* path without ".bin" or ".idx", and `end` put behind; malloc'd. */
static char *name_with(const char *path, const char *end)
{
    size_t n = strlen(path) - (ends_with(path, ".bin") || ends_with(path, ".idx") ? 4 : 0);
    size_t size = n + strlen(end) + 1;
    char *name = malloc(size);

    if (name)
        snprintf(name, size, "%.*s%s", (int)n, path, end);
    return name;
}

int shard_is(const char *path)
{
    char *index;
    int there;

    if (ends_with(path, ".bin") || ends_with(path, ".idx"))
        return 1;
    index = name_with(path, ".idx");
    there = index && access(path, F_OK) != 0 && access(index, F_OK) == 0;
    free(index);
    return there;
}

/* ---- opening ---- */

static enum status map_open_file(struct shard_map *map, int fd, const char *path)
{
    struct stat info;
    void *at;

    if (fstat(fd, &info) != 0)
        return fail(ST_EIO, "cannot read %s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return fail(ST_EIO, "%s is not a regular file; copy its content to one", path);
    map->size = info.st_size;
    if (map->size == 0)
        return ST_OK;
    at = mmap(NULL, (size_t)map->size, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return fail(ST_EIO, "cannot map %s (%lld bytes): %s", path, (long long)map->size,
                    strerror(errno));
    map->bytes = at;
    return ST_OK;
}

static enum status map_file(struct shard_map *map, const char *path)
{
    /* O_NONBLOCK: opening a pipe that nobody writes to must not hang. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum status st;

    if (fd < 0)
        return fail(ST_EIO, "cannot open token shard %s: %s", path, strerror(errno));
    st = map_open_file(map, fd, path);
    close(fd);
    return st;
}

static void unmap(struct shard_map *map)
{
    if (map->bytes)
        munmap((void *)(uintptr_t)map->bytes, (size_t)map->size);
}

static enum status open_megatron(struct shard *s)
{
    s->format = SHARD_MEGATRON;
    TRY(map_file(&s->index_map, s->index_path));
    TRY(shard_index_read(&s->index, &s->index_map, s->data.size, s->index_path, s->path));
    s->type = s->index.type;
    s->width = shard_width(s->type);
    s->tokens = s->data.bytes;
    s->count = s->data.size / s->width;
    s->sequences = s->index.sequences;
    s->documents = s->index.documents_count;
    return ST_OK;
}

static enum status open_llmc(struct shard *s)
{
    s->format = SHARD_LLMC;
    TRY(shard_llmc_read(&s->type, &s->count, &s->data, s->path));
    free(s->index_path);
    s->index_path = NULL;
    s->width = shard_width(s->type);
    s->tokens = s->data.bytes + SHARD_LLMC_HEADER;
    s->documents = s->sequences = 1;
    return ST_OK;
}

static int has_llmc_magic(const struct shard_map *file)
{
    int64_t magic = file->size >= 4 ? shard_number(file->bytes, 0, 4) : 0;

    return magic == SHARD_MAGIC_U16 || magic == SHARD_MAGIC_U32;
}

/* An index says Megatron, unless the tokens begin as llm.c's do and the index was not asked for. */
static enum status open_files(struct shard *s, const char *path)
{
    int index = access(s->index_path, F_OK) == 0;

    TRY(map_file(&s->data, s->path));
    if (ends_with(path, ".idx") || (index && !has_llmc_magic(&s->data)))
        return open_megatron(s);
    return open_llmc(s);
}

enum status shard_open(struct shard *s, const char *path)
{
    enum status st;

    *s = (struct shard){.path = name_with(path, ".bin"), .index_path = name_with(path, ".idx")};
    st = s->path && s->index_path ? open_files(s, path)
                                  : fail(ST_ENOMEM, "no memory to open %s", path);
    if (st != ST_OK)
        shard_close(s);
    return st;
}

void shard_close(struct shard *s)
{
    unmap(&s->data);
    unmap(&s->index_map);
    free(s->path);
    free(s->index_path);
    *s = (struct shard){0};
}

/* ---- reading ---- */

static int64_t token(const unsigned char *at, enum shard_type type)
{
    uint16_t u16;
    int16_t i16;
    uint32_t u32;

    switch (type) {
    case SHARD_U8:
        return *at;
    case SHARD_I8:
        return (int8_t)*at;
    case SHARD_U16:
        memcpy(&u16, at, sizeof u16);
        return u16;
    case SHARD_I16:
        memcpy(&i16, at, sizeof i16);
        return i16;
    case SHARD_U32:
        memcpy(&u32, at, sizeof u32);
        return u32;
    case SHARD_I64:
        return shard_number(at, 0, 8);
    default:
        return shard_number(at, 0, 4);
    }
}

void shard_read(int32_t *out, const struct shard *s, int64_t first, int64_t n)
{
    const unsigned char *at = s->tokens + first * s->width;
    uint16_t narrow;

    if (s->type == SHARD_U16)
        for (int64_t i = 0; i < n; i++) {
            memcpy(&narrow, at + 2 * i, sizeof narrow);
            out[i] = narrow;
        }
    else if (s->width == 4)
        memcpy(out, at, (size_t)n * sizeof *out);
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = (int32_t)token(at + i * s->width, s->type);
}

int64_t shard_sequence(const struct shard *s, int64_t i)
{
    if (s->format == SHARD_LLMC)
        return i > 0 ? s->count : 0;
    return i < s->sequences ? shard_number(s->index.offsets, i, 8) / s->width : s->count;
}

int64_t shard_document(const struct shard *s, int64_t j)
{
    if (s->format == SHARD_LLMC)
        return j > 0 ? s->count : 0;
    return shard_sequence(s, shard_number(s->index.documents, j, 8));
}

/* The largest id of n, negative ones counted as very large; loops that vectorise. */
static uint64_t largest(const struct shard *s, int64_t first, int64_t n)
{
    const unsigned char *at = s->tokens + first * s->width;
    uint16_t top16 = 0, x16;
    uint32_t top32 = 0, x32;
    uint64_t top = 0;

    if (s->type == SHARD_U16) {
        for (int64_t i = 0; i < n; i++) {
            memcpy(&x16, at + 2 * i, sizeof x16);
            top16 = x16 > top16 ? x16 : top16;
        }
        return top16;
    }
    if (s->width == 4) {
        for (int64_t i = 0; i < n; i++) {
            memcpy(&x32, at + 4 * i, sizeof x32);
            top32 = x32 > top32 ? x32 : top32;
        }
        return top32;
    }
    for (int64_t i = 0; i < n; i++) {
        uint64_t x = (uint64_t)token(at + i * s->width, s->type);

        top = x > top ? x : top;
    }
    return top;
}

static enum status refuse_id(const struct shard *s, int64_t vocab, int64_t first, int64_t n)
{
    for (int64_t i = first; i < first + n; i++) {
        int64_t id = token(s->tokens + i * s->width, s->type);

        if (id < 0 || id >= vocab)
            return fail(ST_EFORMAT,
                        "%s: the token at position %lld has id %lld; the vocabulary has ids 0 to "
                        "%lld: use the tokenizer that the data were made with, or set model.vocab",
                        s->path, (long long)i, (long long)id, (long long)vocab - 1);
    }
    return ST_OK;
}

/* Ids that the type cannot exceed need no look. */
static int cannot_exceed(const struct shard *s, int64_t vocab)
{
    return (s->type == SHARD_U8 && vocab >= 256) || (s->type == SHARD_U16 && vocab >= 65536);
}

enum status shard_check_ids(const struct shard *s, int64_t vocab, int64_t first, int64_t n)
{
    enum { PIECE = 1 << 20 };

    if (cannot_exceed(s, vocab))
        return ST_OK;
    for (int64_t i = first; i < first + n; i += PIECE) {
        int64_t some = first + n - i < PIECE ? first + n - i : PIECE;

        if (largest(s, i, some) >= (uint64_t)vocab)
            TRY(refuse_id(s, vocab, i, some));
    }
    return ST_OK;
}

uint64_t shard_hash(const struct shard *s)
{
    int64_t ends = s->data.size < 65536 ? s->data.size : 65536;
    uint64_t h = hash_bytes(&s->data.size, sizeof s->data.size);

    if (s->index_map.bytes)
        h = hash_more(h, s->index_map.bytes, (size_t)s->index_map.size);
    if (ends > 0) {
        h = hash_more(h, s->data.bytes, (size_t)ends);
        h = hash_more(h, s->data.bytes + s->data.size - ends, (size_t)ends);
    }
    return h;
}
