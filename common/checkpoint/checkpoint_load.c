/* Reading: the pieces that a layout needs, verified, whatever layout wrote them. */
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/folder.h"

#include "common/base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct source {
    const char *folder;
    const struct manifest *m;
    int *fd; /* of each file; -1: not open yet */
    char *buffer;
    size_t room;
    struct checkpoint_read *count;
};

/* ---- files ---- */

static enum status read_range(const struct source *s, int file, uint64_t offset, size_t n)
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

static enum status make_room(struct source *s, size_t n)
{
    char *grown;

    if (n <= s->room)
        return ST_OK;
    grown = realloc(s->buffer, n);
    if (!grown)
        return fail(ST_ENOMEM, "no memory for a piece of %zu bytes", n);
    s->buffer = grown;
    s->room = n;
    return ST_OK;
}

static enum status check_header(struct source *s, int file)
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

static enum status open_file(struct source *s, int file)
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

/* The piece into s->buffer: as it was when the snapshot was taken, and finite. */
static enum status read_piece(struct source *s, const struct manifest_piece *p)
{
    const char *kind = part_kind_name((enum part_kind)p->kind);
    int64_t bad;

    TRY(open_file(s, p->file));
    TRY(make_room(s, (size_t)p->bytes));
    TRY(read_range(s, p->file, p->offset, (size_t)p->bytes));
    if (hash_bytes(s->buffer, (size_t)p->bytes) != p->hash)
        return fail(ST_EFORMAT,
                    "%s/%s is damaged: tensor %s, grain %d (%s) has another hash than the manifest "
                    "says",
                    s->folder, s->m->file[p->file].name, p->tensor, (int)p->grain, kind);
    bad = dtype_not_finite(s->buffer, (enum dtype)p->dtype, p->area.rows * p->area.cols);
    if (bad >= 0)
        return fail(ST_EFORMAT,
                    "%s/%s: tensor %s (%s): row %" PRId64 ", column %" PRId64 " is not finite",
                    s->folder, s->m->file[p->file].name, p->tensor, kind,
                    p->area.row + bad / p->area.cols, p->area.col + bad % p->area.cols);
    return ST_OK;
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

/* What two areas share; rows or cols are 0 or less when that is nothing. */
static struct part_area shared(const struct part_area *a, const struct part_area *b)
{
    struct part_area s = {.row = max64(a->row, b->row), .col = max64(a->col, b->col)};

    s.rows = min64(a->row + a->rows, b->row + b->rows) - s.row;
    s.cols = min64(a->col + a->cols, b->col + b->cols) - s.col;
    return s;
}

/* The part of the piece in s->buffer that lies in `want` goes to out, [want->rows, want->cols]. */
static void place(char *out, const struct part_area *want, const struct source *s,
                  const struct manifest_piece *p)
{
    size_t es = dtype_size((enum dtype)p->dtype);
    struct part_area a = shared(want, &p->area);

    for (int64_t i = 0; i < a.rows; i++) {
        int64_t to = (a.row - want->row + i) * want->cols + a.col - want->col;
        int64_t from = (a.row - p->area.row + i) * p->area.cols + a.col - p->area.col;

        memcpy(out + (size_t)to * es, s->buffer + (size_t)from * es, (size_t)a.cols * es);
    }
}

/* ---- tensors ---- */

static enum status check_tensor(const struct source *s, const struct param *row,
                                const struct manifest_piece *p, int n, enum part_kind kind,
                                enum dtype dt)
{
    if (n == 0)
        return fail(ST_EFORMAT, "%s: tensor %s (%s) is missing", s->folder, row->name,
                    part_kind_name(kind));
    if (p->rows != row->real_rows || p->cols != row->cols)
        return fail(ST_EFORMAT,
                    "%s: tensor %s has shape [%" PRId64 ", %" PRId64 "]; the model has [%" PRId64
                    ", %" PRId64 "]",
                    s->folder, row->name, p->rows, p->cols, row->real_rows, row->cols);
    for (int i = 0; i < n; i++)
        if (p[i].dtype != (int32_t)dt)
            return fail(ST_EFORMAT, "%s: tensor %s (%s) is of type %s; this run has %s", s->folder,
                        row->name, part_kind_name(kind), manifest_type_name((enum dtype)p[i].dtype),
                        manifest_type_name(dt));
    return ST_OK;
}

/* An area of a tensor and kind into out, packed; rows of padding are zero. */
static enum status read_area(char *out, struct source *s, const struct param *row,
                             enum part_kind kind, enum dtype dt, const struct part_area *want)
{
    const struct manifest_piece *piece;
    int n = manifest_find(&piece, s->m, row->name, kind);

    TRY(check_tensor(s, row, piece, n, kind, dt));
    memset(out, 0, (size_t)(want->rows * want->cols) * dtype_size(dt));
    for (int i = 0; i < n; i++) {
        struct part_area a = shared(want, &piece[i].area);

        if (a.rows <= 0 || a.cols <= 0)
            continue;
        TRY(read_piece(s, &piece[i]));
        place(out, want, s, &piece[i]);
    }
    return ST_OK;
}

/* The same of this rank's shard. */
static enum status read_shard(char *out, struct source *s, const struct params *p,
                              const struct param *row, enum part_kind kind, enum dtype dt)
{
    struct part_area want;

    param_shard(p, row, &want.rows, &want.cols, &want.row, &want.col);
    return read_area(out, s, row, kind, dt, &want);
}

/* Into the device's memory of that kind. */
static enum status load_kind(struct source *s, struct params *p, struct param *row,
                             struct device *dev, enum part_kind kind)
{
    const struct tensor *t = part_memory(row, kind);
    size_t bytes = (size_t)tensor_count(t) * dtype_size(t->dtype);
    char *host = malloc(bytes);
    enum status st;

    if (!host)
        return fail(ST_ENOMEM, "no memory for %zu bytes of %s", bytes, row->name);
    st = read_shard(host, s, p, row, kind, t->dtype);
    if (st == ST_OK)
        st = device_upload(dev, t->data, host, bytes);
    if (st == ST_OK)
        st = device_sync(dev); /* before the host's copy goes */
    free(host);
    return st;
}

/* Into what this rank's shard of ZeRO-1 has of that kind. */
static enum status load_shards(struct source *s, struct params *p, struct param *row,
                               struct device *dev, enum part_kind kind)
{
    enum status st = ST_OK;

    for (int i = 0; st == ST_OK && i < p->pieces->n; i++) {
        const struct grain *piece = &p->pieces->item[i];
        const struct tensor *t = part_of_shard(piece, kind);
        struct part_area want = part_grain_area(p, row, piece->grain);
        size_t bytes = (size_t)tensor_count(t) * dtype_size(t->dtype);
        char *host;

        if (&p->item[piece->item] != row || !t->data)
            continue;
        want.rows = t->rows; /* those of padding too */
        host = malloc(bytes);
        st = host ? read_area(host, s, row, kind, t->dtype, &want)
                  : fail(ST_ENOMEM, "no memory for %zu bytes of %s", bytes, row->name);
        if (st == ST_OK)
            st = device_upload(dev, t->data, host, bytes);
        if (st == ST_OK)
            st = device_sync(dev);
        free(host);
    }
    return st;
}

/* Every tensor of the checkpoint has its place in the model; kinds: and every kind in this run. */
static enum status check_left_over(const struct source *s, struct params *p, int kinds)
{
    const struct manifest *m = s->m;

    for (int i = 0; i < m->pieces; i++) {
        const struct manifest_piece *e = &m->piece[i];
        const struct param *row = params_find(p, e->tensor);

        if (!row && params_known(p, e->tensor))
            continue; /* another stage's */
        if (!row)
            return fail(ST_EFORMAT, "%s: the model has no place for tensor %s", s->folder,
                        e->tensor);
        if (kinds && !part_exists(p, row, (enum part_kind)e->kind))
            return fail(ST_EFORMAT,
                        "%s: tensor %s (%s): this run has none; train.precision and "
                        "train.pure_bf16 must be the checkpoint's",
                        s->folder, e->tensor, part_kind_name((enum part_kind)e->kind));
    }
    return ST_OK;
}

static enum status load_all(struct source *s, struct params *p, struct device *dev)
{
    TRY(check_left_over(s, p, 1));
    for (int i = 0; i < p->n; i++)
        for (int k = 0; k < PART_KINDS; k++)
            if (p->pieces && k != PART_WEIGHT)
                TRY(load_shards(s, p, &p->item[i], dev, (enum part_kind)k));
            else if (part_memory(&p->item[i], (enum part_kind)k)->data)
                TRY(load_kind(s, p, &p->item[i], dev, (enum part_kind)k));
    return ST_OK;
}

/* The master where the checkpoint has one: the weight is its rounding. */
static enum status load_weight(struct source *s, struct params *p, struct param *row,
                               struct device *dev)
{
    const struct manifest_piece *piece;
    int masters = manifest_find(&piece, s->m, row->name, PART_MASTER);
    enum part_kind kind = masters ? PART_MASTER : PART_WEIGHT;
    int n = manifest_find(&piece, s->m, row->name, kind);
    int64_t count = tensor_count(&row->w);
    enum dtype dt = n ? (enum dtype)piece->dtype : DT_F32;
    char *host = malloc((size_t)count * dtype_size(dt)),
         *wide = malloc((size_t)count * dtype_size(p->wide));
    enum status st = ST_OK;

    if (!host || !wide)
        st = fail(ST_ENOMEM, "no memory for %" PRId64 " values of %s", count, row->name);
    if (st == ST_OK)
        st = read_shard(host, s, p, row, kind, dt);
    for (int64_t i = 0; st == ST_OK && i < count; i++)
        dtype_store(wide, p->wide, i, dtype_load(host, dt, i));
    if (st == ST_OK)
        st = param_set(p, row, dev, wide);
    if (st == ST_OK)
        st = device_sync(dev);
    free(host);
    free(wide);
    return st;
}

static enum status load_weights(struct source *s, struct params *p, struct device *dev)
{
    TRY(check_left_over(s, p, 0));
    for (int i = 0; i < p->n; i++)
        TRY(load_weight(s, p, &p->item[i], dev));
    return ST_OK;
}

static enum status verify_all(struct source *s, struct params *p, struct device *dev)
{
    (void)p;
    (void)dev;
    for (int i = 0; i < s->m->files; i++)
        TRY(open_file(s, i));
    for (int i = 0; i < s->m->pieces; i++)
        TRY(read_piece(s, &s->m->piece[i]));
    return ST_OK;
}

/* ---- the three ways to read ---- */

static enum status with_source(const char *folder, const struct manifest *m,
                               struct checkpoint_read *count, struct params *p, struct device *dev,
                               enum status (*read)(struct source *, struct params *,
                                                   struct device *))
{
    struct source s = {.folder = folder, .m = m, .count = count};
    enum status st;

    *count = (struct checkpoint_read){.whole = manifest_bytes(m)};
    s.fd = malloc(((size_t)m->files + 1) * sizeof *s.fd);
    if (!s.fd)
        return fail(ST_ENOMEM, "no memory for %d files", m->files);
    for (int i = 0; i < m->files; i++)
        s.fd[i] = -1;
    st = read(&s, p, dev);
    for (int i = 0; i < m->files; i++)
        if (s.fd[i] >= 0)
            close(s.fd[i]);
    free(s.fd);
    free(s.buffer);
    return st;
}

enum status checkpoint_load(struct params *p, struct device *dev, const char *folder,
                            const struct manifest *m, struct checkpoint_read *count)
{
    return with_source(folder, m, count, p, dev, load_all);
}

enum status checkpoint_load_weights(struct params *p, struct device *dev, const char *folder,
                                    const struct manifest *m, struct checkpoint_read *count)
{
    return with_source(folder, m, count, p, dev, load_weights);
}

enum status checkpoint_verify(const char *folder, const struct manifest *m,
                              struct checkpoint_read *count)
{
    return with_source(folder, m, count, NULL, NULL, verify_all);
}
