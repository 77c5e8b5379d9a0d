/* begin copies what is to be sent and fills the tensors with NaN; wait runs what was begun, in
 * order. Nothing reads or writes a tensor in between, and no message ever touches one: a wait that
 * is cut short leaves its messages to staging memory that outlives them.
 *
 * All-reduce: when every rank can hold the tensors of all ranks in DIRECT_MAX bytes, it gets them
 * all and adds them up itself: one round, and the fewest changes of process when ranks share cores.
 * Above that, rank r adds up slice r and sends the sum round. Both run the same rank_sum, so that
 * size decides about time and never about bits.
 */
#include "ref/comm.h"

#include "common/backend/device.h"
#include "ref/comm_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_name[] = {"all-reduce", "all-gather", "reduce-scatter",
                                        "broadcast",  "send",       "receive"};

static struct ref_comm *mine(struct comm *c)
{
    return (struct ref_comm *)c;
}

/* Memory ----------------------------------------------------------------------------------- */

static size_t padded(size_t bytes)
{
    return (bytes + STAGE_ALIGN - 1) / STAGE_ALIGN * STAGE_ALIGN;
}

static enum status stage_room(struct ref_comm *c, struct ref_comm_item *it, size_t bytes)
{
    it->bytes = bytes;
    c->wanted += padded(bytes);
    if (c->used + padded(bytes) <= c->stage.size) {
        it->payload = c->stage.p + c->used;
        c->used += padded(bytes);
        return ST_OK;
    }
    /* Messages may be on their way from the staging memory: it must not move now. */
    c->grown++;
    TRY(ref_comm_take(&it->own, bytes));
    it->payload = it->own;
    return ST_OK;
}

static int messages(const struct ref_comm *c, size_t bytes)
{
    return (int)(bytes / (c->round.chunk ? c->round.chunk : HOST_CHUNK)) + 1;
}

static enum status reserve(struct comm *base, size_t bytes)
{
    struct ref_comm *c = mine(base);
    size_t slack = (size_t)c->base.size * COMM_GROUP_MAX * sizeof(double);

    FAIL_IF(c->queued > 0, ST_EINTERNAL);
    TRY(ref_comm_widen(&c->stage, bytes + (size_t)QUEUE_MAX * STAGE_ALIGN));
    TRY(ref_comm_widen(&c->work, bytes + slack + DIRECT_MAX));
    TRY(host_set_reserve(&c->pairs, QUEUE_MAX + messages(c, bytes)));
    return host_set_reserve(&c->round, 2 * (c->base.size + messages(c, bytes)));
}

/* Lets go of what is in flight; its memory lives on until MPI has ended. */
static void give_up(struct ref_comm *c)
{
    host_set_abandon(&c->pairs);
    host_set_abandon(&c->round);
    for (int i = 0; i < c->queued; i++)
        host_keep(c->h->job, c->queue[i].own);
    host_keep(c->h->job, c->stage.p);
    host_keep(c->h->job, c->work.p);
    c->stage = c->work = (struct ref_comm_buffer){0};
    c->queued = c->posted = c->ended = 0;
    c->used = c->wanted = 0;
}

static void destroy(struct comm *base)
{
    struct ref_comm *c = mine(base);

    if (c->queued > 0)
        give_up(c);
    host_set_free(&c->pairs);
    host_set_free(&c->round);
    free(c->stage.p);
    free(c->work.p);
    free(c->block);
    host_free(c->h);
    free(c);
}

static enum status create(struct comm **out, struct device *dev, struct host *group)
{
    struct ref_comm *c = calloc(1, sizeof *c);
    enum status st;

    if (!c)
        return fail(ST_ENOMEM, "no host memory for a communicator");
    c->base = (struct comm){.be = dev->be, .rank = host_rank(group), .size = host_size(group)};
    c->block = calloc((size_t)c->base.size + 1, sizeof *c->block);
    if (!c->block)
        st = fail(ST_ENOMEM, "no host memory for a communicator");
    else
        st = host_split(&c->h, group, 0, host_rank(group));
    if (st == ST_OK)
        st = reserve(&c->base, 0);
    if (st == ST_OK)
        *out = &c->base;
    else
        destroy(&c->base);
    return st;
}

/* A value that no arithmetic survives unnoticed: NaN, or the lowest integer. */
static void poison(const struct tensor *t)
{
    double bad = t->dtype == DT_I32 ? INT32_MIN : NAN;
    int64_t n = tensor_count(t);
    size_t es = dtype_size(t->dtype), done;
    char *p = t->data;

    if (n == 0)
        return;
    dtype_store(p, t->dtype, 0, bad);
    for (done = es; done < (size_t)n * es; done *= 2)
        memcpy(p + done, p, done * 2 <= (size_t)n * es ? done : (size_t)n * es - done);
}

/* begin ------------------------------------------------------------------------------------ */

/* A new item for the n tensors t with a payload of bytes. */
static enum status begin(struct ref_comm *c, struct ref_comm_item **out, enum ref_comm_kind kind,
                         const struct tensor *t, int n, size_t bytes)
{
    struct ref_comm_item *it = &c->queue[c->queued];

    if (c->dead)
        return fail(ST_EPEER, "this communicator was given up when a rank failed");
    FAIL_IF(c->queued == QUEUE_MAX, ST_EINTERNAL);
    *it = (struct ref_comm_item){.kind = kind, .n = n};
    memcpy(it->t, t, (size_t)n * sizeof *t);
    TRY(stage_room(c, it, bytes));
    c->queued++;
    *out = it;
    return ST_OK;
}

static enum status all_reduce_begin(struct comm *base, struct tensor *t, int n)
{
    struct ref_comm *c = mine(base);
    struct ref_comm_item *it = NULL, sizes = {.n = n};

    if (c->base.size == 1)
        return ST_OK;
    memcpy(sizes.t, t, (size_t)n * sizeof *t);
    TRY(begin(c, &it, ALL_REDUCE, t, n, ref_comm_item_bytes(&sizes)));
    ref_comm_move(c, it, 1);
    for (int i = 0; i < n; i++)
        poison(&t[i]);
    return ST_OK;
}

/* all-gather and reduce-scatter: in is sent, out is what wait fills. */
static enum status begin_across(struct comm *base, enum ref_comm_kind kind, struct tensor *out,
                                const struct tensor *in)
{
    struct ref_comm *c = mine(base);
    struct ref_comm_item *it = NULL;

    if (c->base.size == 1) {
        memmove(out->data, in->data, ref_comm_bytes(in));
        return ST_OK;
    }
    TRY(begin(c, &it, kind, out, 1, ref_comm_bytes(in)));
    memcpy(it->payload, in->data, it->bytes);
    poison(out);
    return ST_OK;
}

static enum status all_gather_begin(struct comm *c, struct tensor *out, const struct tensor *in)
{
    return begin_across(c, ALL_GATHER, out, in);
}

static enum status reduce_scatter_begin(struct comm *c, struct tensor *out, const struct tensor *in)
{
    return begin_across(c, REDUCE_SCATTER, out, in);
}

static enum status broadcast_begin(struct comm *base, struct tensor *t, int root)
{
    struct ref_comm *c = mine(base);
    struct ref_comm_item *it = NULL;

    if (c->base.size == 1)
        return ST_OK;
    TRY(begin(c, &it, BROADCAST, t, 1, ref_comm_bytes(t)));
    it->peer = root;
    memcpy(it->payload, t->data, it->bytes);
    poison(t);
    return ST_OK;
}

static enum status post_pair(struct ref_comm *c, const struct ref_comm_item *it)
{
    if (it->kind == SEND)
        return host_set_send(&c->pairs, c->h, it->payload, it->bytes, it->peer);
    return host_set_receive(&c->pairs, c->h, it->payload, it->bytes, it->peer);
}

/* On its way at once, unless something before it is not: messages between two ranks are told
 * apart by their order alone. */
static enum status begin_pair(struct ref_comm *c, enum ref_comm_kind kind, const struct tensor *t,
                              int peer)
{
    struct ref_comm_item *it = NULL;

    TRY(begin(c, &it, kind, t, 1, ref_comm_bytes(t)));
    it->peer = peer;
    if (kind == SEND)
        memcpy(it->payload, t->data, it->bytes);
    else
        poison(t);
    if (c->posted < c->queued - 1)
        return ST_OK;
    c->posted++;
    return post_pair(c, it);
}

static enum status send_begin(struct comm *c, const struct tensor *t, int to)
{
    return begin_pair(mine(c), SEND, t, to);
}

static enum status receive_begin(struct comm *c, struct tensor *t, int from)
{
    return begin_pair(mine(c), RECEIVE, t, from);
}

/* Sends and receives that nothing stood before are on their way since their begin. */
static enum status start(struct comm *base)
{
    FAIL_IF(mine(base)->posted < mine(base)->queued, ST_EINTERNAL);
    return ST_OK;
}

/* wait ------------------------------------------------------------------------------------- */

/* Puts "all-reduce of f32 [4, 8] and 2 more: " in front of the message. */
static enum status named(const struct ref_comm *c, const struct ref_comm_item *it, enum status st)
{
    char more[32] = "", peer[48] = "";

    if (it->n > 1)
        snprintf(more, sizeof more, " and %d more", it->n - 1);
    if (it->kind >= BROADCAST)
        snprintf(peer, sizeof peer, " %s rank %d", it->kind == SEND ? "to" : "from",
                 c->h->peer[it->peer]);
    status_prefix("%s of %s [%lld, %lld]%s%s among %d ranks: ", kind_name[it->kind],
                  dtype_name(it->t[0].dtype), (long long)it->t[0].rows, (long long)it->t[0].cols,
                  more, peer, c->base.size);
    return st;
}

/* Ends the sends and receives before item `end`. */
static enum status end_pairs(struct ref_comm *c, int end)
{
    enum status st;

    if (c->ended == end)
        return ST_OK;
    st = host_set_wait(&c->pairs, c->h->job, 1, c->h->job->timeout);
    if (st != ST_OK)
        return named(c, &c->queue[c->ended], st);
    for (; c->ended < end; c->ended++)
        if (c->queue[c->ended].kind == RECEIVE)
            memcpy(c->queue[c->ended].t[0].data, c->queue[c->ended].payload,
                   c->queue[c->ended].bytes);
    return ST_OK;
}

static enum status run_item(struct ref_comm *c, int i)
{
    struct ref_comm_item *it = &c->queue[i];
    enum status st;

    if (i < c->posted)
        return ST_OK;
    c->posted = i + 1;
    if (it->kind == SEND || it->kind == RECEIVE)
        return post_pair(c, it);
    TRY(end_pairs(c, i));
    st = ref_comm_run(c, it);
    c->ended = i + 1;
    return st == ST_OK ? st : named(c, it, st);
}

static enum status run_all(struct ref_comm *c)
{
    TRY(host_usable(c->h));
    for (int i = 0; i < c->queued; i++)
        TRY(run_item(c, i));
    return end_pairs(c, c->queued);
}

static enum status stamp_done(struct ref_comm *c)
{
    for (int i = 0; i < c->moments; i++)
        TRY(device_stamp(c->base.dev, c->moment[i], ""));
    c->moments = 0;
    return ST_OK;
}

/* What is queued is done in the next wait. */
static enum status stamp(struct comm *base, int64_t n)
{
    struct ref_comm *c = mine(base);

    if (c->queued == 0)
        return device_stamp(base->dev, n, "");
    FAIL_IF(c->moments == QUEUE_MAX, ST_EINTERNAL);
    c->moment[c->moments++] = n;
    return ST_OK;
}

static enum status wait(struct comm *base)
{
    struct ref_comm *c = mine(base);
    enum status st;

    if (c->dead)
        return fail(ST_EPEER, "this communicator was given up when a rank failed");
    if (c->queued == 0)
        return ST_OK;
    st = run_all(c);
    if (st != ST_OK) {
        c->dead = 1;
        give_up(c);
        return st;
    }
    for (int i = 0; i < c->queued; i++)
        free(c->queue[i].own);
    c->queued = c->posted = c->ended = 0;
    c->used = 0;
    TRY(stamp_done(c));
    /* What did not fit fits next time. */
    if (c->wanted > c->stage.size)
        TRY(ref_comm_widen(&c->stage, c->wanted));
    c->wanted = 0;
    return ST_OK;
}

int64_t ref_comm_grown(const struct comm *c)
{
    return ((const struct ref_comm *)c)->grown;
}

void ref_comm_set_chunk(struct comm *c, size_t bytes)
{
    mine(c)->round.chunk = mine(c)->pairs.chunk = bytes;
}

const struct comm_ops ref_comm_ops = {
    .create = create,
    .destroy = destroy,
    .reserve = reserve,
    .all_reduce_begin = all_reduce_begin,
    .all_gather_begin = all_gather_begin,
    .reduce_scatter_begin = reduce_scatter_begin,
    .broadcast_begin = broadcast_begin,
    .send_begin = send_begin,
    .recv_begin = receive_begin,
    .start = start,
    .wait = wait,
    .stamp = stamp,
};
