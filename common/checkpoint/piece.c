#include "common/checkpoint/piece.h"

#include "common/base/hash.h"
#include "common/checkpoint/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum status piece_source_open(struct piece_source *s, const char *folder, const struct manifest *m,
                              struct checkpoint_read *count)
{
    *s = (struct piece_source){.folder = folder, .m = m, .count = count};
    s->fd = malloc(((size_t)m->files + 1) * sizeof *s->fd);
    if (!s->fd)
        return fail(ST_ENOMEM, "no memory for %d files", m->files);
    for (int i = 0; i < m->files; i++)
        s->fd[i] = -1;
    return ST_OK;
}

void piece_source_close(struct piece_source *s)
{
    for (int i = 0; i < s->m->files; i++)
        if (s->fd[i] >= 0)
            close(s->fd[i]);
    free(s->fd);
    free(s->buffer);
    free(s->stage);
}

/* ---- files ---- */

static enum status read_range(const struct piece_source *s, int file, uint64_t offset, size_t n)
{
    const char *name = s->m->file[file].name;
    size_t done = 0;

    while (done < n) {
        ssize_t got = pread(s->fd[file], s->buffer + done, n - done, (off_t)(offset + done));

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return fail(ST_EIO, "%s/%s cannot be read: %s", s->folder, name,
                        got ? strerror(errno) : "it ends too early");
        done += (size_t)got;
    }
    s->count->read += n;
    return ST_OK;
}

/* *p has room for n bytes; what it held is gone. */
static enum status grow(char **p, size_t *room, size_t n)
{
    if (n <= *room)
        return ST_OK;
    free(*p);
    *p = malloc(n);
    *room = *p ? n : 0;
    return *p ? ST_OK : fail(ST_ENOMEM, "no memory to read %zu bytes of a checkpoint", n);
}

static enum status make_room(struct piece_source *s, size_t n)
{
    return grow(&s->buffer, &s->room, n);
}

enum status piece_stage(struct piece_source *s, size_t n)
{
    return grow(&s->stage, &s->stage_room, n);
}

static enum status check_header(struct piece_source *s, int file)
{
    const struct manifest_file *f = &s->m->file[file];
    struct stat info;

    if (fstat(s->fd[file], &info) || !S_ISREG(info.st_mode))
        return fail(ST_EIO, "%s/%s is not a file that can be read", s->folder, f->name);
    if ((uint64_t)info.st_size != f->bytes)
        return fail(ST_EFORMAT, "%s/%s has %lld bytes, the manifest says %" PRIu64 ": it was %s",
                    s->folder, f->name, (long long)info.st_size, f->bytes,
                    (uint64_t)info.st_size < f->bytes ? "cut off" : "added to");
    TRY(make_room(s, (size_t)f->header));
    TRY(read_range(s, file, 0, (size_t)f->header));
    if (hash_bytes(s->buffer, (size_t)f->header) != f->hash)
        return fail(ST_EFORMAT,
                    "%s/%s is damaged: its header has another hash than the manifest "
                    "says",
                    s->folder, f->name);
    return ST_OK;
}

enum status piece_open_file(struct piece_source *s, int file)
{
    char path[FOLDER_PATH];

    if (s->fd[file] >= 0)
        return ST_OK;
    TRY(folder_join(path, s->folder, s->m->file[file].name));
    s->fd[file] = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (s->fd[file] < 0)
        return fail(ST_EIO, "%s cannot be opened: %s", path, strerror(errno));
    return check_header(s, file);
}

/* ---- areas ---- */

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int piece_overlap(const struct part_area *a, const struct part_area *b)
{
    return a->row < b->row + b->rows && b->row < a->row + a->rows && a->col < b->col + b->cols &&
           b->col < a->col + a->cols;
}

/* Elements [at, at + n) of the piece, in s->buffer: those in the goal's area go there. */
static void place(struct piece_goal *g, const struct piece_source *s,
                  const struct manifest_piece *p, int64_t at, int64_t n)
{
    size_t es = dtype_size((enum dtype)p->dtype);
    const struct part_area *w = &g->want, *a = &p->area;

    for (int64_t done = 0, count; done < n; done += count) {
        int64_t row = a->row + (at + done) / a->cols, col = a->col + (at + done) % a->cols;
        int64_t from = max64(col, w->col), to;

        count = min64(n - done, a->col + a->cols - col);
        to = min64(col + count, w->col + w->cols);
        if (row < w->row || row >= w->row + w->rows || from >= to)
            continue;
        memcpy(g->host + (size_t)((row - w->row) * w->cols + from - w->col) * es,
               s->buffer + (size_t)(done + from - col) * es, (size_t)(to - from) * es);
    }
}

/* The same where the piece is whole rows of the area, perhaps with others above or below. */
static enum status place_rows(struct piece_goal *g, const struct piece_source *s,
                              const struct manifest_piece *p, int64_t at, int64_t n)
{
    size_t es = dtype_size((enum dtype)p->dtype);
    int64_t first = (p->area.row - g->want.row) * g->want.cols + at; /* in the area */
    int64_t skip = first < 0 ? -first : 0;
    int64_t end = min64(first + n, g->want.rows * g->want.cols);

    if (first + skip >= end)
        return ST_OK;
    TRY(device_upload(g->dev, g->device + (size_t)(first + skip) * es,
                      s->buffer + (size_t)skip * es, (size_t)(end - first - skip) * es));
    return device_sync(g->dev); /* before the buffer is used again */
}

/* ---- pieces ---- */

enum { CHUNK = 1 << 18 }; /* bytes that stay in a core's cache from reading to placing */

static enum status not_finite(const struct piece_source *s, const struct manifest_piece *p,
                              int64_t at)
{
    return fail(
        ST_EFORMAT, "%s/%s: tensor %s (%s): row %" PRId64 ", column %" PRId64 " is not finite",
        s->folder, s->m->file[p->file].name, p->tensor, part_kind_name((enum part_kind)p->kind),
        p->area.row + at / p->area.cols, p->area.col + at % p->area.cols);
}

/* Reads elements [at, at + n), looks them through, places them. goal NULL: nowhere. *bad: the first
 * that is not finite; it is told only when the hash is right. */
static enum status read_chunk(struct piece_source *s, const struct manifest_piece *p,
                              struct hash *h, int64_t *bad, struct piece_goal *g, int64_t at,
                              int64_t n)
{
    size_t es = dtype_size((enum dtype)p->dtype), bytes = (size_t)n * es;
    int64_t odd;

    TRY(read_range(s, p->file, p->offset + (uint64_t)at * es, bytes));
    hash_add(h, s->buffer, bytes);
    odd = *bad < 0 ? dtype_not_finite(s->buffer, (enum dtype)p->dtype, n) : -1;
    if (odd >= 0)
        *bad = at + odd;
    if (g && g->device)
        return place_rows(g, s, p, at, n);
    if (g)
        place(g, s, p, at, n);
    return ST_OK;
}

enum status piece_read(struct piece_source *s, const struct manifest_piece *p, struct piece_goal *g)
{
    int64_t all = p->area.rows * p->area.cols, bad = -1;
    int64_t most = CHUNK / (int64_t)dtype_size((enum dtype)p->dtype);
    struct hash h;

    TRY(piece_open_file(s, p->file));
    TRY(make_room(s, CHUNK));
    hash_begin(&h);
    for (int64_t at = 0; at < all; at += most)
        TRY(read_chunk(s, p, &h, &bad, g, at, min64(most, all - at)));
    if (hash_value(&h) != p->hash)
        return fail(ST_EFORMAT,
                    "%s/%s is damaged: tensor %s, grain %d (%s) has another hash than the manifest "
                    "says",
                    s->folder, s->m->file[p->file].name, p->tensor, (int)p->grain,
                    part_kind_name((enum part_kind)p->kind));
    return bad < 0 ? ST_OK : not_finite(s, p, bad);
}
