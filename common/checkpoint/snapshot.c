#include "common/checkpoint/snapshot.h"

#include "common/base/hash.h"
#include "common/checkpoint/safetensors.h"

#include <stdlib.h>
#include <string.h>

enum { NAME = MANIFEST_TENSOR + 32 };

/* ---- the plan of the file ---- */

static enum safetensors_type type_of(enum dtype dt)
{
    return dt == DT_F64 ? SAFETENSORS_F64 : dt == DT_BF16 ? SAFETENSORS_BF16 : SAFETENSORS_F32;
}

static void describe(struct manifest_piece *e, char name[NAME], struct safetensors_spec *spec,
                     const struct part *p, int rank)
{
    const struct param *row = p->param;

    snprintf(e->tensor, sizeof e->tensor, "%s", row->name);
    e->kind = (int32_t)p->kind;
    e->grain = p->grain;
    e->dtype = (int32_t)p->memory.dtype;
    e->file = rank;
    e->area = p->area;
    e->rows = row->real_rows;
    e->cols = row->cols;
    e->bytes = (uint64_t)(p->area.rows * p->area.cols) * dtype_size(p->memory.dtype);
    snprintf(name, NAME, "%s:%d:%s", row->name, (int)p->grain, part_kind_name(p->kind));
    *spec = (struct safetensors_spec){.name = name,
                                      .type = type_of(p->memory.dtype),
                                      .rank = 2,
                                      .shape = {p->area.rows, p->area.cols}};
}

/* Offsets of all entries; the image with its header. */
static enum status lay_out(struct snapshot *s, const struct safetensors_spec *spec,
                           uint64_t *offset)
{
    static const char *const metadata[] = {"format", "narrows checkpoint", NULL};
    char *header = NULL;
    size_t bytes = 0;

    TRY(safetensors_header(&header, &bytes, offset, spec, s->parts.n, metadata));
    s->file.header = s->file.bytes = bytes;
    s->file.hash = hash_bytes(header, bytes);
    for (int i = 0; i < s->parts.n; i++) {
        s->entry[i].offset = offset[i];
        s->file.bytes += s->entry[i].bytes;
    }
    s->image = malloc((size_t)s->file.bytes);
    if (s->image) {
        memset(s->image, 0, (size_t)s->file.bytes); /* touched now, not in the first save */
        memcpy(s->image, header, bytes);
    }
    free(header);
    return s->image ? ST_OK
                    : fail(ST_ENOMEM, "no memory for a snapshot of %llu bytes",
                           (unsigned long long)s->file.bytes);
}

static enum status plan_file(struct snapshot *s, int rank)
{
    size_t n = (size_t)s->parts.n + 1;
    struct safetensors_spec *spec = calloc(n, sizeof *spec);
    uint64_t *offset = calloc(n, sizeof *offset);
    char(*name)[NAME] = calloc(n, sizeof *name);
    enum status st = ST_OK;

    s->entry = calloc(n, sizeof *s->entry);
    if (!spec || !offset || !name || !s->entry)
        st = fail(ST_ENOMEM, "no memory for a table of %zu pieces", n);
    for (int i = 0; st == ST_OK && i < s->parts.n; i++)
        describe(&s->entry[i], name[i], &spec[i], &s->parts.item[i], rank);
    if (st == ST_OK)
        st = lay_out(s, spec, offset);
    free(spec);
    free(offset);
    free(name);
    return st;
}

static size_t bytes_of(const struct tensor *t)
{
    return (size_t)tensor_count(t) * dtype_size(t->dtype);
}

static enum status take_room(struct snapshot *s)
{
    size_t most[PART_KINDS] = {0};

    for (int i = 0; i < s->parts.n; i++) {
        const struct part *p = &s->parts.item[i];

        if (!tensor_packed(&p->memory) && bytes_of(p->home) > most[p->kind])
            most[p->kind] = bytes_of(p->home);
    }
    for (int k = 0; k < PART_KINDS; k++) {
        s->raw[k] = malloc(most[k] + 1);
        if (!s->raw[k])
            return fail(ST_ENOMEM, "no memory for a tensor of %zu bytes", most[k]);
    }
    return ST_OK;
}

enum status snapshot_open(struct snapshot *s, const struct params *p, struct part_owner at,
                          int rank)
{
    enum status st;

    memset(s, 0, sizeof *s);
    snprintf(s->file.name, sizeof s->file.name, "rank-%05d.safetensors", rank);
    TRY(parts_list(&s->parts, p, at));
    st = plan_file(s, rank);
    if (st == ST_OK)
        st = take_room(s);
    if (st != ST_OK)
        snapshot_close(s);
    return st;
}

void snapshot_close(struct snapshot *s)
{
    parts_free(&s->parts);
    free(s->entry);
    free(s->image);
    for (int k = 0; k < PART_KINDS; k++)
        free(s->raw[k]);
    memset(s, 0, sizeof *s);
}

/* ---- taking it ---- */

/* Columns of a shard: it comes whole, once for all its pieces, which follow each other. */
static enum status take_columns(char *out, struct snapshot *s, const struct part *p,
                                struct device *dev)
{
    size_t es = dtype_size(p->memory.dtype), row = (size_t)p->area.cols * es;
    size_t stride = (size_t)p->memory.stride * es;
    const char *from = s->raw[p->kind];

    if (s->held[p->kind] != p->home)
        TRY(device_download(dev, s->raw[p->kind], p->home->data, bytes_of(p->home)));
    s->held[p->kind] = p->home;
    from += (const char *)p->memory.data - (const char *)p->home->data;
    for (int64_t i = 0; i < p->area.rows; i++)
        memcpy(out + (size_t)i * row, from + (size_t)i * stride, row);
    return ST_OK;
}

enum status snapshot_take(struct snapshot *s, struct device *dev)
{
    memset(s->held, 0, sizeof s->held);
    for (int i = 0; i < s->parts.n; i++) {
        const struct part *p = &s->parts.item[i];
        char *out = s->image + s->entry[i].offset;

        if (tensor_packed(&p->memory))
            TRY(device_download(dev, out, p->memory.data, (size_t)s->entry[i].bytes));
        else
            TRY(take_columns(out, s, p, dev));
        s->entry[i].hash = hash_bytes(out, (size_t)s->entry[i].bytes);
    }
    return ST_OK;
}

uint64_t snapshot_plan(const struct params *p, int replicas)
{
    size_t each = dtype_size(p->work) + 2 * dtype_size(p->moments);
    int64_t values = 0, most = 0;

    if (p->masters)
        each += dtype_size(p->wide);
    for (int i = 0; i < p->n; i++) {
        int64_t rows, cols, row0, col0;

        param_shard(p, &p->item[i], &rows, &cols, &row0, &col0);
        values += rows * cols;
        most = rows * cols > most ? rows * cols : most;
    }
    return (uint64_t)(values / replicas + (replicas > 1 ? most : 0)) * each;
}
