/* Saving: shards come together on rank 0 of the TP group, one parameter at a time; those of later
 * stages of a pipeline reach the first one before. */
#include "common/checkpoint/folder.h"
#include "common/checkpoint/hf_config.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/weights.h"
#include "common/model/grains.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What a process that was ended leaves of WEIGHTS_TENSORS. */
#define WEIGHTS_UNFINISHED "model.safetensors.partial"

static const char *const files[] = {WEIGHTS_CONFIG, WEIGHTS_TENSORS, WEIGHTS_UNFINISHED,
                                    WEIGHTS_SETTINGS, NULL};

struct save {
    const struct model *m;
    struct model all; /* the table of the whole model, without memory */
    struct device *dev;
    struct host *tp;
    const char *dir;               /* what the folder will be called */
    struct safetensors_writer out; /* rank 0 */
    const char *name;              /* of the tensor that is written next, and its values */
    const void *values;
    char folder[FOLDER_PATH];   /* the partial one; rank 0 */
    void *raw, *shard, *shards; /* as on the device; wide; those of all ranks */
    void *whole;                /* wide; rank 0 */
    void *pieces;               /* of one message, of all ranks */
};

enum { PIECE = 1 << 20 }; /* bytes of a message: what host_gather keeps for good */

int weights_shared_save(const struct model *m)
{
    return m->params.pieces && m->params.masters;
}

/* Nonzero on the ranks among whom the whole model comes together. */
static int gathers(const struct model *m)
{
    return m->part.stage == 0 && (!m->params.dp || host_rank(m->params.dp) == 0);
}

/* ---- gathering ---- */

static enum status make_room(struct save *s)
{
    const struct params *p = &s->all.params;
    size_t es = dtype_size(p->wide); /* of the values as well: they are wide or narrower */
    int64_t whole = 0, shard = 0;

    for (int i = 0; i < p->n; i++) {
        const struct param *row = &p->item[i];
        int64_t rows, cols, row0, col0;

        param_shard(p, row, &rows, &cols, &row0, &col0);
        shard = rows * cols > shard ? rows * cols : shard;
        whole = row->rows * row->cols > whole ? row->rows * row->cols : whole;
    }
    s->raw = malloc((size_t)shard * es);
    s->shard = malloc((size_t)shard * es);
    s->shards = malloc((size_t)(shard * p->tp_size) * es);
    s->whole = malloc((size_t)whole * es);
    s->pieces = malloc((size_t)p->tp_size * PIECE);
    if (!s->raw || !s->shard || !s->shards || !s->whole || !s->pieces)
        return fail(ST_ENOMEM, "no memory to gather weights of %lld values", (long long)whole);
    return ST_OK;
}

/* Puts a grain into the shard that it belongs to. */
static void place_grain(struct save *s, const struct param *row, const struct grain *piece)
{
    struct tensor shard = param_view(&s->m->params, row, s->shard, s->m->params.wide);
    struct tensor at = param_grain(row, &shard, piece->grain);
    size_t es = dtype_size(at.dtype);

    for (int64_t i = 0; i < at.rows; i++)
        memcpy(tensor_row(&at, i), (char *)s->raw + (size_t)(i * at.cols) * es,
               (size_t)at.cols * es);
}

/* The same in pieces of a length that a group keeps memory for. */
static enum status broadcast(struct host *group, void *data, size_t bytes, int root)
{
    for (size_t at = 0; at < bytes; at += PIECE)
        TRY(host_broadcast(group, (char *)data + at, bytes - at < PIECE ? bytes - at : PIECE,
                           root));
    return ST_OK;
}

/* Masters that lie with their owners among the replicas. Collective over them. */
static enum status fetch_sharded(struct save *s, const struct param *row)
{
    const struct params *p = &s->m->params;

    for (int i = 0; i < p->pieces->n; i++) {
        const struct grain *piece = &p->pieces->item[i];
        size_t bytes = (size_t)(piece->rows * piece->cols) * dtype_size(p->wide);

        if (&p->item[piece->item] != row)
            continue;
        if (piece->master.data)
            TRY(device_download(s->dev, s->raw, piece->master.data, bytes));
        TRY(broadcast(p->dp, s->raw, bytes, piece->owner));
        place_grain(s, row, piece);
    }
    return ST_OK;
}

/* This rank's exact values of a parameter, wide, in s->shard. */
static enum status fetch(struct save *s, const struct param *row)
{
    const struct tensor *t = param_value(row);
    enum dtype wide = s->m->params.wide;
    int64_t n = tensor_count(t);

    if (weights_shared_save(s->m))
        return fetch_sharded(s, row);
    TRY(device_download(s->dev, t->dtype == wide ? s->shard : s->raw, t->data,
                        (size_t)n * dtype_size(t->dtype)));
    if (t->dtype != wide)
        for (int64_t i = 0; i < n; i++)
            dtype_store(s->shard, wide, i, dtype_load(s->raw, t->dtype, i));
    return ST_OK;
}

/* s->shards = every rank's s->shard, rank after rank. */
static enum status gather(struct save *s, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t n = bytes - at < PIECE ? bytes - at : PIECE;

        TRY(host_gather(s->tp, s->pieces, (char *)s->shard + at, n));
        for (int r = 0; r < s->m->tp_size; r++)
            memcpy((char *)s->shards + (size_t)r * bytes + at, (char *)s->pieces + (size_t)r * n,
                   n);
    }
    return ST_OK;
}

/* Puts the shard of rank r where it belongs in s->whole. */
static void place(struct save *s, const struct param *row, int r)
{
    struct params as_rank = s->m->params;
    size_t es = dtype_size(as_rank.wide);
    int64_t rows, cols, row0, col0;

    as_rank.tp_rank = r;
    param_shard(&as_rank, row, &rows, &cols, &row0, &col0);
    for (int64_t i = 0; i < rows; i++)
        memcpy((char *)s->whole + (size_t)((row0 + i) * row->cols + col0) * es,
               (char *)s->shards + (size_t)((r * rows + i) * cols) * es, (size_t)cols * es);
}

/* The row of this stage for parameter i of the whole model; NULL: another stage has it. */
static const struct param *own_row(const struct save *s, int i)
{
    const struct params *p = &s->m->params;

    for (int j = 0; j < p->n; j++)
        if (p->item[j].index == i && !p->item[j].copy)
            return &p->item[j];
    return NULL;
}

/* s->shard = this TP rank's values of parameter i, on the stage that has it and on the first. */
static enum status bring(struct save *s, int i, size_t bytes)
{
    const struct params *p = &s->m->params;
    const struct param *own = own_row(s, i);

    if (own)
        TRY(fetch(s, own));
    if (!p->pp || (p->dp && host_rank(p->dp) != 0))
        return ST_OK;
    return broadcast(p->pp, s->shard, bytes, model_stage_of(s->m, s->all.params.item[i].layer));
}

static enum status put_tensor(void *context)
{
    struct save *s = context;

    return safetensors_put(&s->out, s->name, s->values);
}

/* Other ranks wait for the disk as long as it takes. */
static enum status put(struct save *s, const char *name, const void *values)
{
    s->name = name;
    s->values = values;
    return host_work(s->tp, put_tensor, s);
}

static enum status save_param(struct save *s, int i)
{
    const struct params *p = &s->m->params;
    const struct param *row = &s->all.params.item[i];
    struct tensor shard = param_view(&s->all.params, row, NULL, p->wide);
    size_t bytes = (size_t)tensor_count(&shard) * dtype_size(p->wide);
    int cut = row->cut != CUT_NONE && p->tp_size > 1;

    TRY(bring(s, i, bytes));
    if (!gathers(s->m))
        return ST_OK;
    if (cut)
        TRY(gather(s, bytes));
    if (p->tp_rank != 0)
        return ST_OK;
    if (!cut)
        return put(s, row->name, s->shard);
    for (int r = 0; r < p->tp_size; r++)
        place(s, row, r);
    return put(s, row->name, s->whole);
}

/* ---- the folder ---- */

static enum status create_tensors(struct save *s)
{
    static const char *const metadata[] = {"format", "pt", NULL};
    const struct params *p = &s->all.params;
    struct safetensors_spec *spec = calloc((size_t)p->n, sizeof *spec);
    char path[FOLDER_PATH];
    enum status st;

    if (!spec)
        return fail(ST_ENOMEM, "no memory for the table of %d tensors", p->n);
    for (int i = 0; i < p->n; i++) {
        const struct param *row = &p->item[i];
        int vector = param_is_vector(row);

        spec[i] = (struct safetensors_spec){
            .name = row->name,
            .type = p->wide == DT_F64 ? SAFETENSORS_F64 : SAFETENSORS_F32,
            .rank = vector ? 1 : 2,
            .shape = {vector ? row->cols : row->real_rows, vector ? 0 : row->cols}};
    }
    st = folder_join(path, s->folder, WEIGHTS_TENSORS);
    if (st == ST_OK)
        st = safetensors_create(&s->out, path, spec, p->n, metadata);
    free(spec);
    return st;
}

enum status weights_write_settings(const char *path, const struct config *cfg)
{
    enum status st, end;
    FILE *out = fopen(path, "w");

    if (!out)
        return fail(ST_EIO, "cannot write %s: %s", path, strerror(errno));
    st = config_print(out, cfg);
    if (st != ST_OK)
        status_prefix("%s: ", path);
    end = folder_close(out, path);
    return st == ST_OK ? end : st;
}

static enum status write_texts(struct save *s)
{
    char path[FOLDER_PATH];

    TRY(folder_join(path, s->folder, WEIGHTS_CONFIG));
    TRY(hf_config_write(path, s->m->cfg, s->m->params.wide));
    TRY(folder_join(path, s->folder, WEIGHTS_SETTINGS));
    return weights_write_settings(path, s->m->cfg);
}

static enum status begin_folder(void *context)
{
    struct save *s = context;

    TRY(folder_begin(s->folder, s->dir, files));
    TRY(write_texts(s));
    return create_tensors(s);
}

static enum status finish_folder(void *context)
{
    struct save *s = context;

    TRY(safetensors_finish(&s->out));
    return folder_commit(s->dir, files);
}

static enum status write_all(struct save *s)
{
    int writes = s->m->tp_rank == 0 && gathers(s->m);

    TRY(model_open(&s->all, s->m->cfg, s->m->tp_rank, s->m->tp_size, s->m->params.wide));
    TRY(make_room(s));
    if (writes)
        TRY(host_work(s->tp, begin_folder, s));
    for (int i = 0; i < s->all.params.n; i++)
        TRY(save_param(s, i));
    return writes ? host_work(s->tp, finish_folder, s) : ST_OK;
}

enum status weights_save(const char *dir, const struct model *m, struct device *dev,
                         struct host *tp)
{
    struct save *s = calloc(1, sizeof *s);
    enum status st;

    if (!s)
        return fail(ST_ENOMEM, "no memory to save weights");
    s->m = m;
    s->dev = dev;
    s->tp = tp;
    s->dir = dir;
    s->out.fd = -1;
    st = write_all(s);
    if (st != ST_OK && m->tp_rank == 0 && gathers(m)) {
        safetensors_drop(&s->out);
        if (s->folder[0])
            folder_drop(dir, files);
    }
    model_close(&s->all);
    free(s->raw);
    free(s->shard);
    free(s->shards);
    free(s->whole);
    free(s->pieces);
    free(s);
    return st;
}

enum status weights_remove(const char *dir)
{
    return folder_remove(dir, files);
}
