/* One hash of all weights for every layout. */
#include "common/backend/host.h"
#include "common/base/hash.h"
#include "common/model/grains.h"
#include "common/model/params.h"

#include <stdlib.h>
#include <string.h>

static uint64_t hash_tensor(const struct tensor *t, size_t elem)
{
    struct hash h;

    hash_begin(&h);
    for (int64_t i = 0; i < t->rows; i++)
        hash_add(&h, tensor_row(t, i), (size_t)t->cols * elem);
    return hash_value(&h);
}

/* Grains of a TP rank. */
static int32_t rank_grains(const struct params *p)
{
    int32_t grains = 1;

    for (int i = 0; i < p->n; i++)
        if (p->item[i].cut != CUT_NONE && p->item[i].grains / p->tp_size > grains)
            grains = p->item[i].grains / p->tp_size;
    return grains;
}

/* Masters lie with their owners. */
static int masters_sharded(const struct params *p)
{
    return p->pieces && p->masters;
}

static enum status hash_on_host(uint64_t *hash, struct device *dev, const struct tensor *t,
                                void *buffer)
{
    struct tensor host = *t;
    size_t elem = dtype_size(t->dtype);

    TRY(device_download(dev, buffer, t->data, (size_t)tensor_count(t) * elem));
    host.data = buffer;
    *hash = hash_tensor(&host, elem);
    return ST_OK;
}

/* hashes[grain * p->all + parameter] of this rank's own masters. */
static enum status hash_masters(uint64_t *hashes, const struct params *p, struct device *dev,
                                void *buffer)
{
    for (int i = 0; i < p->pieces->n; i++) {
        const struct grain *piece = &p->pieces->item[i];
        uint64_t *at = &hashes[piece->grain * p->all + p->item[piece->item].index];

        if (piece->master.data)
            TRY(hash_on_host(at, dev, &piece->master, buffer));
    }
    return ST_OK;
}

static enum status hash_values(uint64_t *hashes, const struct params *p, struct device *dev,
                               void *buffer)
{
    for (int i = 0; i < p->n; i++) {
        const struct param *row = &p->item[i];
        struct tensor t = *param_value(row);
        size_t elem = dtype_size(t.dtype);
        int32_t mine = row->cut == CUT_NONE ? 1 : row->grains / p->tp_size;

        TRY(device_download(dev, buffer, t.data, (size_t)tensor_count(&t) * elem));
        t.data = buffer;
        for (int32_t g = 0; g < mine; g++) {
            struct tensor piece = param_grain(row, &t, g);

            hashes[g * p->all + row->index] = hash_tensor(&piece, elem);
        }
    }
    return ST_OK;
}

/* A table with every stage's entries: a stage fills its own, others have zeros there. The copy of
 * a tied matrix is held against the first one instead. */
static enum status join_stages(uint64_t *hashes, const struct params *p, size_t n)
{
    uint64_t *own = malloc(n * sizeof *own);
    enum status st = own ? ST_OK : fail(ST_ENOMEM, "no memory for hashes of %zu pieces", n);

    if (st == ST_OK)
        memcpy(own, hashes, n * sizeof *own);
    for (int i = 0; st == ST_OK && i < p->n; i++)
        for (size_t at = (size_t)p->item[i].index; p->item[i].copy && at < n; at += (size_t)p->all)
            hashes[at] = 0;
    if (st == ST_OK)
        st = host_sum_i64(p->pp, (int64_t *)hashes, (int)n);
    for (int i = 0; st == ST_OK && i < p->n; i++)
        for (size_t at = (size_t)p->item[i].index; p->item[i].copy && at < n; at += (size_t)p->all)
            if (hashes[at] != own[at])
                st = fail(ST_EINTERNAL, "the last stage holds another %s than the first",
                          p->item[i].name);
    free(own);
    return st;
}

/* hashes[grain * p->all + parameter] of this TP rank, of all stages; a parameter that is not cut
 * counts as every grain. */
static enum status hash_local(uint64_t *hashes, const struct params *p, struct device *dev,
                              int32_t grains, void *buffer)
{
    size_t n = (size_t)grains * (size_t)p->all;

    memset(hashes, 0, n * sizeof *hashes);
    if (masters_sharded(p)) {
        TRY(hash_masters(hashes, p, dev, buffer));
        TRY(host_sum_i64(p->dp, (int64_t *)hashes, (int)n));
    } else {
        TRY(hash_values(hashes, p, dev, buffer));
    }
    for (int i = 0; i < p->n; i++)
        for (int32_t g = 1; p->item[i].cut == CUT_NONE && g < grains; g++)
            hashes[g * p->all + p->item[i].index] = hashes[p->item[i].index];
    return p->pp ? join_stages(hashes, p, n) : ST_OK;
}

/* all[rank][grain * p->all + parameter]: what is not cut must have the same hash on every rank,
 * which the hash of the whole table, one for all ranks, would not show. */
static enum status same_whole(const struct params *p, const uint64_t *all, size_t local)
{
    for (int r = 1; r < p->tp_size; r++)
        for (int i = 0; i < p->n; i++) {
            size_t at = (size_t)p->item[i].index;

            if (p->item[i].cut == CUT_NONE && all[(size_t)r * local + at] != all[at])
                return fail(ST_EINTERNAL,
                            "tensor-parallel rank %d holds another %s than rank 0, and both hold "
                            "it whole",
                            r, p->item[i].name);
        }
    return ST_OK;
}

enum status params_hash(uint64_t *hash, const struct params *p, struct device *dev, struct host *tp)
{
    int32_t grains = rank_grains(p);
    size_t local = (size_t)grains * (size_t)p->all * sizeof(uint64_t);
    uint64_t *all = malloc(local * (size_t)(p->tp_size + 1));
    void *buffer = malloc((size_t)params_largest(p) * 8);
    enum status st;

    if (!all || !buffer) {
        free(all);
        free(buffer);
        return fail(ST_ENOMEM, "no memory to hash %d parameters", p->n);
    }
    st = hash_local((uint64_t *)((char *)all + local * (size_t)p->tp_size), p, dev, grains, buffer);
    if (st == ST_OK && p->tp_size > 1)
        st = host_gather(tp, all, (char *)all + local * (size_t)p->tp_size, local);
    else if (st == ST_OK)
        memcpy(all, (char *)all + local, local);
    if (st == ST_OK)
        st = same_whole(p, all, local / sizeof *all);
    *hash = hash_bytes(all, local * (size_t)p->tp_size);
    free(all);
    free(buffer);
    return st;
}
