#include "common/data/shard_write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { PIECE = 1 << 14 }; /* tokens that are converted at once */

static enum status cannot_write(const char *path)
{
    return fail(ST_EIO, "cannot write %s: %s", path, strerror(errno));
}

/* ---- opening ---- */

static char *name_with(const char *prefix, const char *end)
{
    size_t n = strlen(prefix), m = strlen(end) + 1;
    char *name;

    if (n > 4 && (!strcmp(prefix + n - 4, ".bin") || !strcmp(prefix + n - 4, ".idx")))
        n -= 4;
    name = malloc(n + m);
    if (name) {
        memcpy(name, prefix, n);
        memcpy(name + n, end, m);
    }
    return name;
}

/* Opens a temporary file, locked: two processes must not write one. */
static enum status open_part(FILE **out, const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

    if (fd < 0)
        return cannot_write(path);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return fail(ST_EIO, "%s is being written by another process; choose another name", path);
    }
    if (ftruncate(fd, 0) == 0)
        *out = fdopen(fd, "w+b");
    if (!*out) {
        enum status st = cannot_write(path);

        close(fd);
        return st;
    }
    return ST_OK;
}

/* The borders of documents go to a file that has no name any more. */
static enum status open_borders(struct shard_write *w)
{
    char *path = name_with(w->path, ".borders.part");
    enum status st =
        path ? open_part(&w->borders, path) : fail(ST_ENOMEM, "no memory to write %s", w->path);

    if (st == ST_OK)
        unlink(path);
    free(path);
    return st;
}

/* Room for a header that is written at the end. */
static enum status leave_room(FILE *out, int bytes, const char *path)
{
    static const char zeros[SHARD_LLMC_HEADER];

    return fwrite(zeros, 1, (size_t)bytes, out) == (size_t)bytes ? ST_OK : cannot_write(path);
}

static enum status open_files(struct shard_write *w)
{
    int64_t zero = 0;

    TRY(open_part(&w->tokens, w->part));
    if (w->format == SHARD_LLMC)
        return leave_room(w->tokens, SHARD_LLMC_HEADER, w->part);
    TRY(open_part(&w->index, w->index_part));
    TRY(leave_room(w->index, SHARD_INDEX_HEADER, w->index_part));
    TRY(open_borders(w));
    return fwrite(&zero, sizeof zero, 1, w->borders) == 1 ? ST_OK : cannot_write(w->index_part);
}

static enum status check_free(const struct shard_write *w, int overwrite)
{
    const char *there = NULL;

    if (access(w->index_path, F_OK) == 0)
        there = w->index_path;
    if (access(w->path, F_OK) == 0)
        there = w->path;
    if (!there || overwrite)
        return ST_OK;
    return fail(ST_ECONFIG, "%s is there already; choose another name, or give --overwrite", there);
}

enum status shard_write_open(struct shard_write *w, const char *prefix, enum shard_format format,
                             int64_t vocab, int overwrite)
{
    int narrow = format == SHARD_MEGATRON ? vocab < 65500 : vocab <= 65536;
    enum status st = ST_OK;

    *w = (struct shard_write){.format = format,
                              .path = name_with(prefix, ".bin"),
                              .index_path = name_with(prefix, ".idx"),
                              .part = name_with(prefix, ".bin.part"),
                              .index_part = name_with(prefix, ".idx.part")};
    w->type = narrow ? SHARD_U16 : format == SHARD_MEGATRON ? SHARD_I32 : SHARD_U32;
    w->width = shard_width(w->type);
    if (!w->path || !w->index_path || !w->part || !w->index_part)
        st = fail(ST_ENOMEM, "no memory to write %s", prefix);
    if (st == ST_OK)
        st = check_free(w, overwrite);
    if (st == ST_OK)
        st = open_files(w);
    if (st != ST_OK)
        shard_write_abandon(w);
    return st;
}

/* ---- tokens ---- */

static enum status check_counts(const struct shard_write *w, int64_t n)
{
    if (w->format == SHARD_LLMC && w->count > INT32_MAX - n)
        return fail(ST_ECONFIG,
                    "%s would hold more than the 2147483647 tokens that llm.c's format counts; "
                    "prepare the input in several parts, or give --format megatron",
                    w->path);
    if (w->format == SHARD_MEGATRON && w->length > INT32_MAX - n)
        return fail(ST_ECONFIG,
                    "%s: a sequence has more than the 2147483647 tokens that the format counts; "
                    "part the input into documents",
                    w->path);
    return ST_OK;
}

enum status shard_write_tokens(struct shard_write *w, const int32_t *ids, int64_t n)
{
    TRY(check_counts(w, n));
    for (int64_t i = 0; i < n; i += PIECE) {
        int64_t some = n - i < PIECE ? n - i : PIECE;
        uint16_t narrow[PIECE];
        const void *from = ids + i;

        for (int64_t j = 0; w->width == 2 && j < some; j++)
            narrow[j] = (uint16_t)ids[i + j];
        if (w->width == 2)
            from = narrow;
        if (fwrite(from, (size_t)w->width, (size_t)some, w->tokens) != (size_t)some)
            return cannot_write(w->part);
    }
    w->count += n;
    w->length += n;
    return ST_OK;
}

enum status shard_write_sequence(struct shard_write *w)
{
    int32_t length = (int32_t)w->length;

    if (w->index && fwrite(&length, sizeof length, 1, w->index) != 1)
        return cannot_write(w->index_part);
    w->sequences++;
    w->length = 0;
    return ST_OK;
}

enum status shard_write_document(struct shard_write *w)
{
    if (w->borders && fwrite(&w->sequences, sizeof w->sequences, 1, w->borders) != 1)
        return cannot_write(w->index_part);
    w->documents++;
    return ST_OK;
}

enum status shard_write_drop(struct shard_write *w)
{
    int64_t bytes = w->length * w->width;

    if (fflush(w->tokens) != 0 || fseeko(w->tokens, -bytes, SEEK_CUR) != 0 ||
        ftruncate(fileno(w->tokens), ftello(w->tokens)) != 0)
        return cannot_write(w->part);
    w->count -= w->length;
    w->length = 0;
    return ST_OK;
}

/* ---- the end ---- */

/* Reads the lengths back, a piece at a time, and writes the offsets behind them. */
static enum status write_offsets(struct shard_write *w)
{
    int64_t offset = 0, offsets[1024], end = SHARD_INDEX_HEADER + 4 * w->sequences;
    int32_t lengths[1024];

    for (int64_t i = 0; i < w->sequences; i += 1024) {
        int64_t some = w->sequences - i < 1024 ? w->sequences - i : 1024;

        if (fseeko(w->index, SHARD_INDEX_HEADER + 4 * i, SEEK_SET) != 0 ||
            fread(lengths, 4, (size_t)some, w->index) != (size_t)some ||
            fseeko(w->index, end + 8 * i, SEEK_SET) != 0)
            return cannot_write(w->index_part);
        for (int64_t j = 0; j < some; j++) {
            offsets[j] = offset;
            offset += (int64_t)lengths[j] * w->width;
        }
        if (fwrite(offsets, 8, (size_t)some, w->index) != (size_t)some)
            return cannot_write(w->index_part);
    }
    return ST_OK;
}

static enum status copy_borders(struct shard_write *w)
{
    char piece[8192];
    size_t got;

    rewind(w->borders);
    if (fseeko(w->index, 0, SEEK_END) != 0)
        return cannot_write(w->index_part);
    while ((got = fread(piece, 1, sizeof piece, w->borders)) > 0)
        if (fwrite(piece, 1, got, w->index) != got)
            return cannot_write(w->index_part);
    return ferror(w->borders) ? cannot_write(w->index_part) : ST_OK;
}

static enum status write_index(struct shard_write *w)
{
    unsigned char header[SHARD_INDEX_HEADER] = "MMIDIDX";
    int64_t numbers[] = {w->sequences, w->documents + 1}, version = 1;

    TRY(write_offsets(w));
    TRY(copy_borders(w));
    memcpy(header + 9, &version, 8);
    header[17] = (unsigned char)w->type;
    memcpy(header + 18, numbers, sizeof numbers);
    rewind(w->index);
    return fwrite(header, sizeof header, 1, w->index) == 1 ? ST_OK : cannot_write(w->index_part);
}

static enum status write_header(struct shard_write *w)
{
    int32_t header[3] = {w->type == SHARD_U16 ? SHARD_MAGIC_U16 : SHARD_MAGIC_U32,
                         w->type == SHARD_U16 ? 1 : 7, (int32_t)w->count};

    rewind(w->tokens);
    return fwrite(header, sizeof header, 1, w->tokens) == 1 ? ST_OK : cannot_write(w->part);
}

/* Everything on disk, so that a name never stands for less. */
static enum status settle(FILE *out, const char *path)
{
    return fflush(out) == 0 && fsync(fileno(out)) == 0 ? ST_OK : cannot_write(path);
}

/* The old index goes first: old and new files never stand side by side. */
static enum status name_files(const struct shard_write *w)
{
    if (unlink(w->index_path) != 0 && errno != ENOENT)
        return cannot_write(w->index_path);
    if (rename(w->part, w->path) != 0)
        return cannot_write(w->path);
    if (w->format == SHARD_MEGATRON && rename(w->index_part, w->index_path) != 0)
        return cannot_write(w->index_path);
    return ST_OK;
}

static enum status complete(struct shard_write *w)
{
    if (w->count == 0)
        return fail(ST_EFORMAT, "no token to write to %s: the input has no text", w->path);
    TRY(w->format == SHARD_MEGATRON ? write_index(w) : write_header(w));
    TRY(settle(w->tokens, w->part));
    if (w->index)
        TRY(settle(w->index, w->index_part));
    return name_files(w);
}

static void close_all(struct shard_write *w)
{
    if (w->tokens)
        fclose(w->tokens);
    if (w->index)
        fclose(w->index);
    if (w->borders)
        fclose(w->borders);
    free(w->path);
    free(w->index_path);
    free(w->part);
    free(w->index_part);
    *w = (struct shard_write){0};
}

enum status shard_write_finish(struct shard_write *w)
{
    enum status st = complete(w);

    if (st != ST_OK)
        shard_write_abandon(w);
    else
        close_all(w);
    return st;
}

void shard_write_abandon(struct shard_write *w)
{
    if (w->tokens && w->part)
        unlink(w->part);
    if (w->index && w->index_part)
        unlink(w->index_part);
    close_all(w);
}
