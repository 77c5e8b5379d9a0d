#include "common/data/input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

enum { BUFFER = 1 << 17 };

/* ---- opening ---- */

/* Waits until a pipe has something, a fifth of a second at a time: signals restart a read, so that
 * one would not be left when a stop is asked for. */
static enum status wait_readable(const struct input *in)
{
    struct pollfd one = {.fd = in->fd, .events = POLLIN};

    while (in->waits) {
        if (in->stop && in->stop())
            return fail(ST_ESTOP, "stopped on request while %s was read", in->path);
        if (poll(&one, 1, 200) > 0)
            break;
    }
    return ST_OK;
}

/* Fills the buffer as far as the file goes. What is in it stays. */
static enum status refill(struct input *in)
{
    memmove(in->buffer, in->buffer + in->at, in->end - in->at);
    in->end -= in->at;
    in->at = 0;
    while (in->end < BUFFER && !in->ended) {
        ssize_t got;

        TRY(wait_readable(in));
        got = read(in->fd, in->buffer + in->end, BUFFER - in->end);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail(ST_EIO, "cannot read %s: %s", in->path, strerror(errno));
        in->ended = got == 0;
        in->end += (size_t)got;
        in->taken += got;
    }
    return ST_OK;
}

static enum input_packing packing_of(const unsigned char *bytes, size_t n)
{
    static const unsigned char zstd[] = {0x28, 0xb5, 0x2f, 0xfd};

    if (n >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b)
        return INPUT_GZIP;
    return n >= 4 && !memcmp(bytes, zstd, sizeof zstd) ? INPUT_ZSTD : INPUT_PLAIN;
}

static enum status start_unpacking(struct input *in)
{
    z_stream *gzip;

    in->packing = packing_of(in->buffer, in->end);
    if (in->packing == INPUT_ZSTD)
        in->state = ZSTD_createDStream();
    if (in->packing == INPUT_GZIP) {
        gzip = calloc(1, sizeof *gzip);
        if (gzip && inflateInit2(gzip, 16 + MAX_WBITS) != Z_OK) { /* 16: with gzip's header */
            free(gzip);
            gzip = NULL;
        }
        in->state = gzip;
    }
    if (in->packing != INPUT_PLAIN && !in->state)
        return fail(ST_ENOMEM, "no memory to unpack %s", in->path);
    return ST_OK;
}

static enum status open_file(struct input *in)
{
    struct stat info;

    if (in->fd < 0 || fstat(in->fd, &info) != 0)
        return fail(ST_EIO, "cannot open %s: %s", in->path, strerror(errno));
    in->waits = !S_ISREG(info.st_mode);
    if (S_ISDIR(info.st_mode))
        return fail(ST_EIO, "%s is a directory; name the files in it", in->path);
    in->buffer = malloc(BUFFER);
    if (!in->buffer)
        return fail(ST_ENOMEM, "no memory to read %s", in->path);
    TRY(refill(in));
    return start_unpacking(in);
}

enum status input_open(struct input *in, const char *path, int (*stop)(void))
{
    int standard = !strcmp(path, "-");
    enum status st;

    *in = (struct input){.path = standard ? "standard input" : path, .stop = stop};
    in->fd = standard ? dup(0) : open(path, O_RDONLY | O_CLOEXEC);
    st = open_file(in);
    if (st != ST_OK)
        input_close(in);
    return st;
}

void input_close(struct input *in)
{
    if (in->fd >= 0)
        close(in->fd);
    if (in->packing == INPUT_ZSTD)
        ZSTD_freeDStream(in->state);
    if (in->packing == INPUT_GZIP && in->state) {
        inflateEnd(in->state);
        free(in->state);
    }
    free(in->buffer);
    *in = (struct input){.fd = -1};
}

enum status input_sizes(int64_t *bytes, const char *const *paths, int n)
{
    struct stat info;

    *bytes = 0;
    for (int i = 0; i < n; i++) {
        int there = !strcmp(paths[i], "-") ? fstat(0, &info) : stat(paths[i], &info);

        if (there != 0)
            return fail(ST_EIO, "cannot open %s: %s", paths[i], strerror(errno));
        *bytes = *bytes < 0 || !S_ISREG(info.st_mode) ? -1 : *bytes + info.st_size;
    }
    return ST_OK;
}

/* ---- reading ---- */

static enum status damaged(const struct input *in, const char *why)
{
    return fail(ST_EFORMAT, "%s is damaged near byte %lld of the packed file: %s", in->path,
                (long long)(in->taken - (int64_t)(in->end - in->at)), why);
}

/* Each unpacks from the buffer into out; *got bytes. */
static enum status inflate_some(struct input *in, unsigned char *out, size_t n, size_t *got)
{
    z_stream *z = in->state;
    uInt room = n < (1u << 30) ? (uInt)n : 1u << 30;
    int code;

    if (in->whole) { /* another member follows, as `cat a.gz b.gz` makes them */
        inflateReset(z);
        in->whole = 0;
    }
    z->next_in = in->buffer + in->at;
    z->avail_in = (uInt)(in->end - in->at);
    z->next_out = out;
    z->avail_out = room;
    code = inflate(z, Z_NO_FLUSH);
    in->at = in->end - z->avail_in;
    *got = room - z->avail_out;
    if (code == Z_STREAM_END)
        in->whole = 1;
    else if (code != Z_OK && code != Z_BUF_ERROR)
        return damaged(in, z->msg ? z->msg : "gzip's data are not valid");
    return ST_OK;
}

static enum status unzstd_some(struct input *in, void *out, size_t n, size_t *got)
{
    ZSTD_inBuffer from = {in->buffer, in->end, in->at};
    ZSTD_outBuffer to = {out, n, 0};
    size_t code = ZSTD_decompressStream(in->state, &to, &from);

    if (ZSTD_isError(code))
        return damaged(in, ZSTD_getErrorName(code));
    in->at = from.pos;
    *got = to.pos;
    in->whole = code == 0;
    return ST_OK;
}

static enum status unpack_some(struct input *in, unsigned char *out, size_t n, size_t *got)
{
    size_t some = in->end - in->at;

    if (in->packing == INPUT_GZIP)
        return inflate_some(in, out, n, got);
    if (in->packing == INPUT_ZSTD)
        return unzstd_some(in, out, n, got);
    *got = n < some ? n : some;
    memcpy(out, in->buffer + in->at, *got);
    in->at += *got;
    return ST_OK;
}

enum status input_read(struct input *in, void *out, size_t n, size_t *got)
{
    *got = 0;
    while (*got < n) {
        size_t some = 0;

        if (in->at == in->end && !in->ended)
            TRY(refill(in));
        if (in->at == in->end && (in->packing == INPUT_PLAIN || in->whole))
            break;
        TRY(unpack_some(in, (unsigned char *)out + *got, n - *got, &some));
        *got += some;
        if (some == 0 && in->at == in->end && in->ended && !in->whole)
            return damaged(in, "it ends too early; fetch it again");
    }
    in->unpacked += (int64_t)*got;
    return ST_OK;
}
