#include "common/train/reduce.h"

#include "common/backend/planted.h"

#include <string.h>

enum { UNDER_WAY = 32 }; /* buckets begun before the first is waited for */

/* ---- tied ---- */

/* Exact: one replica joins two sums over all samples, so that several must sum both first. */
static enum status join(struct optimizer *o, struct device *dev, int reduced)
{
    struct params *p = &o->model->params;
    struct grains *s = o->pieces;

    if (reduced && s->sharded) {
        for (int i = 0; i < s->n; i++)
            if (s->item[i].g2.data)
                TRY(op_add(dev, &s->item[i].g, &s->item[i].g, &s->item[i].g2));
        return ST_OK;
    }
    for (int i = 0; i < p->n; i++)
        if (p->item[i].twice)
            TRY(op_add(dev, &p->item[i].g, &p->item[i].g, &p->item[i].g2));
    return ST_OK;
}

/* The first stage has the look-up's gradient, in g; the last the head's, in g2: each gets the
 * other's, and both add them in one order. */
static enum status exchange(struct optimizer *o)
{
    struct params *p = &o->model->params;
    struct comm *c = o->on.ends;

    for (int i = 0; c && i < p->n; i++) {
        struct param *row = &p->item[i];
        struct tensor *own = c->rank == 0 ? &row->g : &row->g2;
        struct tensor *other = c->rank == 0 ? &row->g2 : &row->g;

        if (!row->twice)
            continue;
        ledger_for(c->ledger, LEDGER_PP);
        TRY(comm_send_begin(c, own, 1 - c->rank));
        TRY(comm_recv_begin(c, other, 1 - c->rank));
        TRY(comm_wait(c));
    }
    return ST_OK;
}

enum status optimizer_join_tied(struct optimizer *o, struct device *dev)
{
    TRY(exchange(o));
    return join(o, dev, 0);
}

/* ---- whole buckets ---- */

/* Gradients of bucket b as one row, and the second ones of tied matrices as another. */
static enum status reduce_whole(struct optimizer *o, int b)
{
    const struct params *p = &o->model->params;
    size_t es = dtype_size(p->wide), begin = 0, end = 0, at = 0;
    struct tensor t[2];
    int n = 1;

    for (int i = 0; i < p->n; i++) {
        size_t bytes = (size_t)tensor_count(&p->item[i].g) * es;
        size_t next = at + (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;

        if (o->pieces->bucket_of[i] == b) {
            begin = end ? begin : at;
            end = next;
        }
        if (o->pieces->bucket_of[i] == b && p->item[i].twice && o->exact)
            t[n++] = tensor_view(p->item[i].g2.data, p->wide, 1, (int64_t)(p->second / es));
        at = next;
    }
    t[0] =
        tensor_view((char *)p->item[0].g.data + begin, p->wide, 1, (int64_t)((end - begin) / es));
    ledger_for(o->on.dp->ledger, LEDGER_DP);
    return comm_all_reduce_begin(o->on.dp, t, n);
}

/* ---- shards ---- */

static int64_t largest(const int64_t *share, int buckets)
{
    int64_t most = 0;

    for (int b = 0; b < buckets; b++)
        most = share[b] > most ? share[b] : most;
    return most;
}

enum status reduce_open(struct optimizer *o, struct arena *grads)
{
    const struct grains *s = o->pieces;
    size_t dp = (size_t)s->dp_size, es = dtype_size(o->model->params.wide);
    size_t first = (size_t)largest(s->share, s->buckets) * es;
    size_t second = (size_t)largest(s->share2, s->buckets) * es;

    TRY(arena_take(grads, &o->packed, dp * (first + second)));
    return arena_take(grads, &o->gathered,
                      (dp + 1) * (size_t)largest(s->share, s->buckets) *
                          dtype_size(o->model->params.work));
}

/* A piece's place among all replicas' shares. */
static struct tensor slot(void *base, enum dtype dt, const struct grain *piece, int64_t share,
                          int64_t at)
{
    return tensor_view((char *)base + (size_t)(piece->owner * share + at) * dtype_size(dt), dt,
                       piece->rows, piece->cols);
}

/* second: the head's gradients of tied matrices. */
static enum status pack(struct optimizer *o, struct device *dev, void *base, int b, int second)
{
    const struct params *p = &o->model->params;
    const struct grains *s = o->pieces;
    int64_t share = second ? s->share2[b] : s->share[b];
    int n = 0;

    TRY(device_zero(dev, base, (size_t)(share * s->dp_size) * dtype_size(p->wide)));
    for (int i = 0; i < s->n; i++) {
        const struct grain *piece = &s->item[i];
        const struct param *row = &p->item[piece->item];

        if (piece->bucket != b || (second && !row->twice))
            continue;
        o->from[n] = param_grain(row, second ? &row->g2 : &row->g, piece->grain);
        o->to[n++] = slot(base, p->wide, piece, share, second ? piece->at2 : piece->at);
    }
    return op_convert(dev, o->to, o->from, n);
}

/* Where this rank's reduced sums of a bucket begin. */
static struct tensor own_share(const struct optimizer *o, int b, int second)
{
    const struct grains *s = o->pieces;

    return tensor_view(second ? s->sum2[b] : s->sum[b], o->model->params.wide, 1,
                       second ? s->share2[b] : s->share[b]);
}

static enum status scatter(struct optimizer *o, struct device *dev, void *base, int b, int second)
{
    struct tensor own = own_share(o, b, second);
    struct tensor all = tensor_view(base, own.dtype, o->on.dp->size, own.cols);

    TRY(pack(o, dev, base, b, second));
    ledger_for(o->on.dp->ledger, LEDGER_ZERO);
    return comm_reduce_scatter_begin(o->on.dp, &own, &all);
}

/* One bucket is under way at a time: the next is packed where it stood. */
static enum status reduce_shards(struct optimizer *o, struct device *dev, int b)
{
    const struct grains *s = o->pieces;
    size_t first = (size_t)largest(s->share, s->buckets) * dtype_size(o->model->params.wide);

    TRY(comm_wait(o->on.dp));
    TRY(scatter(o, dev, o->packed, b, 0));
    if (!s->share2[b] || !o->exact)
        return ST_OK;
    return scatter(o, dev, (char *)o->packed + first * (size_t)s->dp_size, b, 1);
}

/* ---- order ---- */

static enum status begin(struct optimizer *o, struct device *dev, int b)
{
    int under_way = 0;

    o->begun[b] = 1;
    for (int i = 0; i < o->pieces->buckets; i++)
        under_way += o->begun[i];
    if (o->pieces->sharded)
        return reduce_shards(o, dev, b);
    if (o->on.dp->size == 1)
        return ST_OK;
    if (under_way % UNDER_WAY == 0)
        TRY(comm_wait(o->on.dp));
    return reduce_whole(o, b);
}

/* Layers that stand in each bucket; a tied matrix is complete only once both ends have met. */
void optimizer_start(struct optimizer *o)
{
    const struct params *p = &o->model->params;

    memset(o->left, 0, (size_t)o->pieces->buckets * sizeof *o->left);
    memset(o->begun, 0, (size_t)o->pieces->buckets);
    for (int i = 0; i < p->n; i++) {
        if (i == 0 || p->item[i].layer != p->item[i - 1].layer)
            o->left[o->pieces->bucket_of[i]]++;
        if (p->item[i].twice && (!o->exact || o->on.ends))
            o->left[o->pieces->bucket_of[i]]++; /* not before optimizer_reduce */
    }
}

enum status optimizer_layer_done(struct optimizer *o, struct device *dev, int layer)
{
    const struct params *p = &o->model->params;

    for (int i = 0; i < p->n; i++) {
        int b = o->pieces->bucket_of[i];

        if (p->item[i].layer != layer || (i > 0 && p->item[i - 1].layer == layer))
            continue;
        if (--o->left[b] == 0)
            TRY(begin(o, dev, b));
    }
    return ST_OK;
}

enum status optimizer_reduce(struct optimizer *o, struct device *dev)
{
    TRY(exchange(o));
    if (!o->exact)
        TRY(join(o, dev, 0));
    for (int b = o->pieces->buckets - 1; b >= 0; b--)
        if (!o->begun[b])
            TRY(begin(o, dev, b));
    if (o->on.dp->size > 1)
        TRY(comm_wait(o->on.dp));
    return o->exact ? join(o, dev, 1) : ST_OK;
}

/* ---- weights back ---- */

/* own: this rank's pieces go out; else everybody's come in. */
static enum status move_weights(struct optimizer *o, struct device *dev, int b, void *base, int own)
{
    const struct grains *s = o->pieces;
    struct tensor *packed = own ? o->to : o->from, *weights = own ? o->from : o->to;
    int n = 0;

    for (int i = 0; i < s->n; i++) {
        const struct grain *piece = &s->item[i];

        if (piece->bucket != b || (piece->owner == s->dp_rank) != own)
            continue;
        packed[n] = slot(base, o->model->params.work, piece, own ? 0 : s->share[b], piece->at);
        weights[n++] = piece->w;
    }
    return op_convert(dev, o->to, o->from, n);
}

enum status reduce_share_weights(struct optimizer *o, struct device *dev)
{
    const struct grains *s = o->pieces;
    enum dtype dt = o->model->params.work;

    for (int b = 0; b < s->buckets; b++) {
        struct tensor all = tensor_view(o->gathered, dt, s->dp_size, s->share[b]);
        struct tensor own = tensor_view(
            (char *)o->gathered + (size_t)tensor_count(&all) * dtype_size(dt), dt, 1, s->share[b]);

        TRY(device_zero(dev, own.data, (size_t)own.cols * dtype_size(dt)));
        TRY(move_weights(o, dev, b, own.data, 1));
        ledger_for(o->on.dp->ledger, LEDGER_ZERO);
        TRY(comm_all_gather(o->on.dp, &all, &own));
        TRY(move_weights(o, dev, b, all.data, 0));
    }
    return ST_OK;
}
