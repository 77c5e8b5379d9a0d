/* What wait runs: rounds of messages between all ranks, and sums over ranks. See comm.c. */
#include "ref/comm_state.h"
#include "ref/rank_sum.h"

#include <stdlib.h>
#include <string.h>

/* Memory and payloads ---------------------------------------------------------------------- */

static size_t padded(size_t bytes)
{
    return (bytes + STAGE_ALIGN - 1) / STAGE_ALIGN * STAGE_ALIGN;
}

enum status ref_comm_take(char **p, size_t bytes)
{
    *p = aligned_alloc(STAGE_ALIGN, padded(bytes + 1));
    if (!*p)
        return fail(ST_ENOMEM, "no host memory for %zu bytes of staging between ranks", bytes);
    return ST_OK;
}

enum status ref_comm_widen(struct ref_comm_buffer *b, size_t bytes)
{
    if (bytes <= b->size)
        return ST_OK;
    free(b->p);
    *b = (struct ref_comm_buffer){0};
    TRY(ref_comm_take(&b->p, bytes));
    b->size = bytes;
    return ST_OK;
}

/* Room for what one collective receives. */
static enum status work_room(struct ref_comm *c, size_t bytes)
{
    c->grown += bytes > c->work.size;
    return ref_comm_widen(&c->work, bytes);
}

size_t ref_comm_bytes(const struct tensor *t)
{
    return (size_t)tensor_count(t) * dtype_size(t->dtype);
}

size_t ref_comm_item_bytes(const struct ref_comm_item *it)
{
    size_t sum = 0;

    for (int i = 0; i < it->n; i++)
        sum += ref_comm_bytes(&it->t[i]);
    return sum;
}

static int direct(const struct ref_comm *c, const struct ref_comm_item *it)
{
    return it->bytes * (size_t)c->base.size <= DIRECT_MAX;
}

/* Elements [cut(r), cut(r + 1)) of a tensor are rank r's slice of it. */
static int64_t cut(const struct tensor *t, int r, int ranks)
{
    return tensor_count(t) / ranks * r + tensor_count(t) % ranks * r / ranks;
}

static size_t slice_bytes(const struct tensor *t, int r, int ranks)
{
    return (size_t)(cut(t, r + 1, ranks) - cut(t, r, ranks)) * dtype_size(t->dtype);
}

/* Slice r of every tensor of it, one after another, to (pack) or from payload at *at. */
static void move_slices(const struct ref_comm_item *it, size_t *at, int r, int ranks, int pack)
{
    for (int i = 0; i < it->n; i++) {
        const struct tensor *t = &it->t[i];
        size_t bytes = slice_bytes(t, r, ranks);
        char *data = (char *)t->data + (size_t)cut(t, r, ranks) * dtype_size(t->dtype);

        if (pack)
            memcpy(it->payload + *at, data, bytes);
        else
            memcpy(data, it->payload + *at, bytes);
        *at += bytes;
    }
}

/* Payload of an all-reduce: the whole tensors, or slice by slice. */
void ref_comm_move(const struct ref_comm *c, const struct ref_comm_item *it, int pack)
{
    int ranks = direct(c, it) ? 1 : c->base.size;
    size_t at = 0;

    for (int r = 0; r < ranks; r++)
        move_slices(it, &at, r, ranks, pack);
}

/* Rounds of messages ----------------------------------------------------------------------- */

static enum status end_round(struct ref_comm *c)
{
    return host_set_wait(&c->round, c->h->job, 1, c->h->job->timeout);
}

/* Sets c->block: rank r's part is `bytes` long. */
static void equal_blocks(struct ref_comm *c, size_t bytes)
{
    for (int r = 0; r <= c->base.size; r++)
        c->block[r] = (size_t)r * bytes;
}

/* Sets c->block: rank r's part holds slice r of every tensor. */
static void slice_blocks(struct ref_comm *c, const struct ref_comm_item *it)
{
    c->block[0] = 0;
    for (int r = 0; r < c->base.size; r++) {
        c->block[r + 1] = c->block[r];
        for (int i = 0; i < it->n; i++)
            c->block[r + 1] += slice_bytes(&it->t[i], r, c->base.size);
    }
}

/* Every rank's block goes to all: blocks[rank] is there before, all of them after. */
static enum status share_blocks(struct ref_comm *c, char *blocks)
{
    const size_t *at = c->block;
    int me = c->base.rank;

    for (int r = 0; r < c->base.size; r++)
        if (r != me)
            TRY(host_set_receive(&c->round, c->h, blocks + at[r], at[r + 1] - at[r], r));
    for (int r = 0; r < c->base.size; r++)
        if (r != me)
            TRY(host_set_send(&c->round, c->h, blocks + at[me], at[me + 1] - at[me], r));
    return end_round(c);
}

/* Block r goes to rank r; what came for this rank stands in work, rank after rank. */
static enum status deal_blocks(struct ref_comm *c, const char *blocks)
{
    const size_t *at = c->block;
    int me = c->base.rank;
    size_t bytes = at[me + 1] - at[me];

    TRY(work_room(c, bytes * (size_t)c->base.size));
    memcpy(c->work.p + (size_t)me * bytes, blocks + at[me], bytes);
    for (int r = 0; r < c->base.size; r++)
        if (r != me)
            TRY(host_set_receive(&c->round, c->h, c->work.p + (size_t)r * bytes, bytes, r));
    for (int r = 0; r < c->base.size; r++)
        if (r != me)
            TRY(host_set_send(&c->round, c->h, blocks + at[r], at[r + 1] - at[r], r));
    return end_round(c);
}

/* Gathers every rank's payload in work. */
static enum status gather(struct ref_comm *c, const struct ref_comm_item *it)
{
    TRY(work_room(c, it->bytes * (size_t)c->base.size));
    equal_blocks(c, it->bytes);
    memcpy(c->work.p + c->block[c->base.rank], it->payload, it->bytes);
    return share_blocks(c, c->work.p);
}

/* The collectives -------------------------------------------------------------------------- */

static enum status reduce_direct(struct ref_comm *c, struct ref_comm_item *it)
{
    size_t at = 0;

    TRY(gather(c, it));
    for (int i = 0; i < it->n; i++) {
        struct tensor *t = &it->t[i];

        rank_sum(t->data, c->work.p + at, it->bytes, c->base.size, t->dtype, tensor_count(t));
        at += ref_comm_bytes(t);
    }
    return ST_OK;
}

static enum status reduce_slices(struct ref_comm *c, struct ref_comm_item *it)
{
    int p = c->base.size, me = c->base.rank;
    size_t pitch, at = 0;
    char *own;

    slice_blocks(c, it);
    TRY(deal_blocks(c, it->payload));
    own = it->payload + c->block[me];
    pitch = c->block[me + 1] - c->block[me];
    for (int i = 0; i < it->n; i++) {
        const struct tensor *t = &it->t[i];

        rank_sum(own + at, c->work.p + at, pitch, p, t->dtype, cut(t, me + 1, p) - cut(t, me, p));
        at += slice_bytes(t, me, p);
    }
    TRY(share_blocks(c, it->payload));
    ref_comm_move(c, it, 0);
    return ST_OK;
}

static enum status all_reduce(struct ref_comm *c, struct ref_comm_item *it)
{
    return direct(c, it) ? reduce_direct(c, it) : reduce_slices(c, it);
}

static enum status all_gather(struct ref_comm *c, struct ref_comm_item *it)
{
    TRY(gather(c, it));
    memcpy(it->t[0].data, c->work.p, ref_comm_bytes(&it->t[0]));
    return ST_OK;
}

static enum status reduce_scatter(struct ref_comm *c, struct ref_comm_item *it)
{
    const struct tensor *out = &it->t[0];

    equal_blocks(c, ref_comm_bytes(out));
    TRY(deal_blocks(c, it->payload));
    rank_sum(out->data, c->work.p, ref_comm_bytes(out), c->base.size, out->dtype,
             tensor_count(out));
    return ST_OK;
}

static enum status broadcast(struct ref_comm *c, struct ref_comm_item *it)
{
    if (c->base.rank != it->peer)
        TRY(host_set_receive(&c->round, c->h, it->payload, it->bytes, it->peer));
    for (int r = 0; r < c->base.size; r++)
        if (c->base.rank == it->peer && r != it->peer)
            TRY(host_set_send(&c->round, c->h, it->payload, it->bytes, r));
    TRY(end_round(c));
    memcpy(it->t[0].data, it->payload, it->bytes);
    return ST_OK;
}

enum status ref_comm_run(struct ref_comm *c, struct ref_comm_item *it)
{
    static enum status (*const run[])(struct ref_comm *, struct ref_comm_item *) = {
        all_reduce, all_gather, reduce_scatter, broadcast};

    return run[it->kind](c, it);
}
