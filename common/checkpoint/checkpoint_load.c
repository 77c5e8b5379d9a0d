/* Reading: the pieces that a layout needs, verified, whatever layout wrote them. */
#include "common/checkpoint/piece.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- tensors ---- */

static enum status check_tensor(const struct piece_source *s, const struct param *row,
                                const struct manifest_piece *p, int n, enum part_kind kind,
                                enum dtype dt)
{
    if (n == 0)
        return fail(ST_EFORMAT, "%s/%s: tensor %s (%s) is missing", s->folder, MANIFEST_NAME,
                    row->name, part_kind_name(kind));
    if (p->rows != row->real_rows || p->cols != row->cols)
        return fail(ST_EFORMAT,
                    "%s/%s: tensor %s has shape [%" PRId64 ", %" PRId64 "]; the model has [%" PRId64
                    ", %" PRId64 "]",
                    s->folder, s->m->file[p->file].name, row->name, p->rows, p->cols,
                    row->real_rows, row->cols);
    for (int i = 0; i < n; i++)
        if (p[i].dtype != (int32_t)dt)
            return fail(ST_EFORMAT, "%s/%s: tensor %s (%s) is of type %s; this run has %s",
                        s->folder, s->m->file[p[i].file].name, row->name, part_kind_name(kind),
                        manifest_type_name((enum dtype)p[i].dtype), manifest_type_name(dt));
    return ST_OK;
}

/* The area of the goal, of a tensor and kind; rows of padding are zero. */
static enum status read_area(struct piece_goal *g, struct piece_source *s, const struct param *row,
                             enum part_kind kind, enum dtype dt)
{
    const struct manifest_piece *piece;
    int n = manifest_find(&piece, s->m, row->name, kind);

    TRY(check_tensor(s, row, piece, n, kind, dt));
    for (int i = 0; i < n; i++)
        if (piece_overlap(&g->want, &piece[i].area))
            TRY(piece_read(s, &piece[i], g));
    return ST_OK;
}

/* Nonzero when every piece that the area needs is whole rows of it. */
static int whole_rows(const struct piece_source *s, const struct param *row, enum part_kind kind,
                      const struct part_area *want)
{
    const struct manifest_piece *piece;
    int n = manifest_find(&piece, s->m, row->name, kind), whole = 1;

    for (int i = 0; i < n; i++)
        if (piece_overlap(want, &piece[i].area))
            whole &= piece[i].area.col == want->col && piece[i].area.cols == want->cols;
    return whole;
}

/* An area into the device's memory t, which holds it packed. */
static enum status load_area(struct piece_source *s, const struct param *row, enum part_kind kind,
                             const struct tensor *t, struct device *dev,
                             const struct part_area *want)
{
    struct piece_goal g = {.want = *want, .dev = dev};
    size_t bytes = (size_t)tensor_count(t) * dtype_size(t->dtype);
    int padded = want->row + want->rows > row->real_rows;

    if (whole_rows(s, row, kind, want)) {
        g.device = t->data;
        if (padded)
            TRY(device_zero(dev, t->data, bytes));
        return read_area(&g, s, row, kind, t->dtype);
    }
    TRY(piece_stage(s, bytes));
    g.host = s->stage;
    if (padded)
        memset(g.host, 0, bytes);
    TRY(read_area(&g, s, row, kind, t->dtype));
    TRY(device_upload(dev, t->data, g.host, bytes));
    return device_sync(dev); /* before the host's memory is used again */
}

static struct part_area shard_area(const struct params *p, const struct param *row)
{
    struct part_area a;

    param_shard(p, row, &a.rows, &a.cols, &a.row, &a.col);
    return a;
}

/* What this rank's shard of ZeRO-1 has of that kind. */
static enum status load_shards(struct piece_source *s, struct params *p, struct param *row,
                               struct device *dev, enum part_kind kind)
{
    for (int i = 0; i < p->pieces->n; i++) {
        const struct grain *piece = &p->pieces->item[i];
        const struct tensor *t = part_of_shard(piece, kind);
        struct part_area want = part_grain_area(p, row, piece->grain);

        if (&p->item[piece->item] != row || !t->data)
            continue;
        want.rows = t->rows; /* those of padding too */
        TRY(load_area(s, row, kind, t, dev, &want));
    }
    return ST_OK;
}

static enum status load_kind(struct piece_source *s, struct params *p, struct param *row,
                             struct device *dev, enum part_kind kind)
{
    struct part_area want = shard_area(p, row);

    return load_area(s, row, kind, part_memory(row, kind), dev, &want);
}

/* Every tensor of the checkpoint has its place in the model; kinds: and every kind in this run. */
static enum status check_left_over(const struct piece_source *s, struct params *p, int kinds)
{
    const struct manifest *m = s->m;

    for (int i = 0; i < m->pieces; i++) {
        const struct manifest_piece *e = &m->piece[i];
        const struct param *row = params_find(p, e->tensor);

        if (!row && params_known(p, e->tensor))
            continue; /* another stage's */
        if (!row)
            return fail(ST_EFORMAT, "%s/%s: the model has no place for tensor %s", s->folder,
                        s->m->file[e->file].name, e->tensor);
        if (kinds && !part_exists(p, row, (enum part_kind)e->kind))
            return fail(ST_EFORMAT,
                        "%s/%s: tensor %s (%s): this run has none; train.precision and "
                        "train.pure_bf16 must be the checkpoint's",
                        s->folder, s->m->file[e->file].name, e->tensor,
                        part_kind_name((enum part_kind)e->kind));
    }
    return ST_OK;
}

static enum status load_all(struct piece_source *s, struct params *p, struct device *dev)
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
static enum status load_weight(struct piece_source *s, struct params *p, struct param *row,
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
    struct piece_goal g = {.want = shard_area(p, row), .host = host};
    enum status st = ST_OK;

    if (!host || !wide)
        st = fail(ST_ENOMEM, "no memory for %" PRId64 " values of %s", count, row->name);
    if (st == ST_OK) {
        memset(host, 0, (size_t)count * dtype_size(dt));
        st = read_area(&g, s, row, kind, dt);
    }
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

static enum status load_weights(struct piece_source *s, struct params *p, struct device *dev)
{
    TRY(check_left_over(s, p, 0));
    for (int i = 0; i < p->n; i++)
        TRY(load_weight(s, p, &p->item[i], dev));
    return ST_OK;
}

static enum status verify_all(struct piece_source *s, struct params *p, struct device *dev)
{
    (void)p;
    (void)dev;
    for (int i = 0; i < s->m->files; i++)
        TRY(piece_open_file(s, i));
    for (int i = 0; i < s->m->pieces; i++)
        TRY(piece_read(s, &s->m->piece[i], NULL));
    return ST_OK;
}

/* ---- the three ways to read ---- */

static enum status with_source(const char *folder, const struct manifest *m,
                               struct checkpoint_read *count, struct params *p, struct device *dev,
                               enum status (*read)(struct piece_source *, struct params *,
                                                   struct device *))
{
    struct piece_source s;
    enum status st;

    *count = (struct checkpoint_read){.whole = manifest_bytes(m)};
    TRY(piece_source_open(&s, folder, m, count));
    st = read(&s, p, dev);
    piece_source_close(&s);
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
