#include "common/model/params.h"

#include "common/base/hash.h"
#include "common/base/rng.h"
#include "common/model/grains.h"

#include <stdlib.h>
#include <string.h>

enum status params_open(struct params *p, int room, int tp_rank, int tp_size)
{
    memset(p, 0, sizeof *p);
    p->item = calloc((size_t)room, sizeof *p->item);
    p->known = calloc((size_t)room, sizeof *p->known);
    if (!p->item || !p->known)
        return fail(ST_ENOMEM, "no memory for a table of %d parameters", room);
    p->room = room;
    p->tp_rank = tp_rank;
    p->tp_size = tp_size;
    return ST_OK;
}

void params_close(struct params *p)
{
    free(p->item);
    free(p->known);
    p->item = NULL;
    p->known = NULL;
}

void params_types(struct params *p, const struct config *cfg, enum dtype wide)
{
    int bf16 = cfg->train.precision == PRECISION_BF16;
    int pure = bf16 && cfg->train.pure_bf16;

    p->wide = wide;
    p->work = bf16 ? DT_BF16 : wide;
    p->moments = pure ? DT_BF16 : wide;
    p->masters = bf16 && !pure;
}

enum status params_add(struct params *p, const struct param *row)
{
    FAIL_IF(p->n == p->room, ST_EINTERNAL);
    p->item[p->n++] = *row;
    return ST_OK;
}

void param_shard(const struct params *p, const struct param *row, int64_t *rows, int64_t *cols,
                 int64_t *row0, int64_t *col0)
{
    *rows = row->cut == CUT_ROWS ? row->rows / p->tp_size : row->rows;
    *cols = row->cut == CUT_COLS ? row->cols / p->tp_size : row->cols;
    *row0 = row->cut == CUT_ROWS ? p->tp_rank * *rows : 0;
    *col0 = row->cut == CUT_COLS ? p->tp_rank * *cols : 0;
}

struct tensor param_view(const struct params *p, const struct param *row, void *data, enum dtype dt)
{
    int64_t rows, cols, row0, col0;
    int32_t local = row->cut == CUT_NONE ? 1 : row->grains / p->tp_size;

    param_shard(p, row, &rows, &cols, &row0, &col0);
    return tensor_grained(tensor_view(data, dt, rows, cols), row->cut == CUT_ROWS ? local : 1,
                          row->cut == CUT_COLS ? local : 1);
}

static enum status carve_one(const struct params *p, const struct param *row, struct arena *a,
                             enum dtype dt, struct tensor *t)
{
    void *data;

    *t = param_view(p, row, NULL, dt);
    TRY(arena_take(a, &data, (size_t)tensor_count(t) * dtype_size(dt)));
    t->data = data;
    return ST_OK;
}

static void fill_views(struct tensor *const use[2], const struct tensor *t)
{
    for (int i = 0; i < 2; i++)
        if (use[i])
            *use[i] = *t;
}

enum status params_carve(struct params *p, struct arena *state, int training)
{
    for (int i = 0; i < p->n; i++) { /* weights lie together: members of a group side by side */
        struct param *row = &p->item[i];

        TRY(carve_one(p, row, state, p->work, &row->w));
        fill_views(row->use_w, &row->w);
    }
    for (int i = 0; training && i < p->n; i++) {
        struct param *row = &p->item[i];

        if (p->masters)
            TRY(carve_one(p, row, state, p->wide, &row->master));
        TRY(carve_one(p, row, state, p->moments, &row->m));
        TRY(carve_one(p, row, state, p->moments, &row->v));
    }
    return ST_OK;
}

/* Bytes of one slot of the embedding and the blocks, which come first in the table. */
static enum status body_bytes(size_t *bytes, const struct params *p, int head_layer)
{
    struct arena count = arena_plan("gradients");
    struct tensor t;

    for (int i = 0; i < p->n && p->item[i].layer < head_layer; i++)
        TRY(carve_one(p, &p->item[i], &count, p->wide, &t));
    *bytes = arena_mark(&count);
    return ST_OK;
}

/* Slot 0 of all gradients. */
static enum status carve_first(struct params *p, struct arena *grads)
{
    size_t begin = arena_mark(grads);

    for (int i = 0; i < p->n; i++) {
        struct param *row = &p->item[i];
        struct tensor *first[2] = {row->use_g[0], NULL};

        TRY(carve_one(p, row, grads, p->wide, &row->g));
        fill_views(row->twice ? first : row->use_g, &row->g);
    }
    p->flat = arena_mark(grads) - begin;
    for (int i = 0; i < p->n; i++) { /* behind the others: they need not always travel */
        struct param *row = &p->item[i];

        if (!row->twice)
            continue;
        TRY(carve_one(p, row, grads, p->wide, &row->g2));
        if (row->use_g[1])
            *row->use_g[1] = row->g2;
    }
    p->second = arena_mark(grads) - begin - p->flat;
    return ST_OK;
}

enum status params_carve_grads(struct params *p, struct arena *grads, const struct grad_slots *n)
{
    size_t body = 0, head;
    void *more;

    TRY(body_bytes(&body, p, n->head_layer));
    TRY(arena_take(grads, &more, body * (size_t)(n->blocks - 1)));
    TRY(carve_first(p, grads));
    head = p->flat + p->second - body;
    TRY(arena_take(grads, &more, head * (size_t)(n->head - 1)));
    p->plane = -(int64_t)body;
    p->head_plane = (int64_t)head;
    return ST_OK;
}

const struct tensor *param_value(const struct param *row)
{
    return row->master.data ? &row->master : &row->w;
}

enum status param_set(struct params *p, struct param *row, struct device *dev, const void *values)
{
    size_t n = (size_t)tensor_count(&row->w);

    if (p->pieces && p->masters)
        TRY(grains_set_masters(p->pieces, p, row, dev, values));
    if (row->master.data) {
        TRY(device_upload(dev, row->master.data, values, n * dtype_size(p->wide)));
        return op_convert(dev, &row->w, &row->master, 1);
    }
    if (row->w.dtype == p->wide)
        return device_upload(dev, row->w.data, values, n * dtype_size(p->wide));

    uint16_t *bf16 = malloc(n * sizeof *bf16);
    enum status st;

    if (!bf16)
        return fail(ST_ENOMEM, "no memory to round %zu values of %s", n, row->name);
    for (size_t i = 0; i < n; i++)
        dtype_store(bf16, DT_BF16, (int64_t)i, dtype_load(values, p->wide, (int64_t)i));
    st = device_upload(dev, row->w.data, bf16, n * sizeof *bf16);
    free(bf16);
    return st;
}

/* This rank's start values of a parameter into host memory of the wide type. */
static void draw(const struct params *p, const struct param *row, uint64_t seed, void *values)
{
    struct rng_key key = rng_key(seed, RNG_INIT, hash_text(row->name));
    int64_t rows, cols, row0, col0;

    param_shard(p, row, &rows, &cols, &row0, &col0);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        uint64_t first = (uint64_t)((row0 + i) * row->cols + col0);

        if (row->sigma == 0.0 || row0 + i >= row->real_rows)
            for (int64_t j = 0; j < cols; j++)
                dtype_store(values, p->wide, i * cols + j, row->role == ROLE_GAIN ? 1.0 : 0.0);
        else if (p->wide == DT_F64)
            rng_normal_fill64((double *)values + i * cols, &key, first, (size_t)cols, row->sigma);
        else
            rng_normal_fill((float *)values + i * cols, &key, first, (size_t)cols, row->sigma);
    }
}

int64_t params_largest(const struct params *p)
{
    int64_t most = 0;

    for (int i = 0; i < p->n; i++) {
        int64_t n = tensor_count(&p->item[i].w);

        most = n > most ? n : most;
    }
    return most;
}

enum status params_init(struct params *p, struct device *dev, uint64_t seed)
{
    int64_t most = params_largest(p);
    void *values = malloc((size_t)most * dtype_size(p->wide));
    enum status st = ST_OK;

    if (!values)
        return fail(ST_ENOMEM, "no memory to draw %lld start values", (long long)most);
    for (int i = 0; i < p->n && st == ST_OK; i++) {
        struct param *row = &p->item[i];
        size_t bytes = (size_t)tensor_count(&row->m) * dtype_size(p->moments);

        draw(p, row, seed, values);
        st = param_set(p, row, dev, values);
        if (st == ST_OK && row->m.data)
            st = device_zero(dev, row->m.data, bytes);
        if (st == ST_OK && row->v.data)
            st = device_zero(dev, row->v.data, bytes);
    }
    free(values);
    if (st == ST_OK && p->pieces)
        st = grains_clear_moments(p->pieces, dev);
    return st;
}

int64_t params_count(const struct params *p)
{
    int64_t n = 0;

    for (int i = 0; i < p->n; i++)
        n += p->item[i].real_rows * p->item[i].cols;
    return n;
}

int64_t params_count_local(const struct params *p)
{
    int64_t n = 0;

    for (int i = 0; i < p->n; i++)
        n += tensor_count(&p->item[i].w);
    return n;
}

int param_is_vector(const struct param *row)
{
    return row->role == ROLE_GAIN || row->role == ROLE_BIAS;
}

int params_known(const struct params *p, const char *name)
{
    for (int i = 0; i < p->all; i++)
        if (p->known[i] == hash_text(name))
            return 1;
    return 0;
}

struct param *params_find(struct params *p, const char *name)
{
    for (int i = 0; i < p->n; i++)
        if (!strcmp(p->item[i].name, name))
            return &p->item[i];
    return NULL;
}

struct tensor param_grain(const struct param *row, const struct tensor *t, int32_t i)
{
    if (row->cut == CUT_ROWS)
        return tensor_rows(t, i * (t->rows / t->row_grains), t->rows / t->row_grains, 1);
    if (row->cut == CUT_COLS)
        return tensor_cols(t, i * (t->cols / t->col_grains), t->cols / t->col_grains, 1);
    return *t;
}
