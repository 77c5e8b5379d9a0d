/* Communicators of the recording backend: they send nothing and count what is under way. */
#include "common/backend/record_state.h"

#include <stdlib.h>

struct recorded_comm {
    struct comm base;
    size_t in_flight, peak;
};

static enum status fly(struct comm *c, const struct tensor *t)
{
    struct recorded_comm *r = (struct recorded_comm *)c;

    r->in_flight += (size_t)tensor_count(t) * dtype_size(t->dtype);
    if (r->in_flight > r->peak)
        r->peak = r->in_flight;
    return ST_OK;
}

/* Tells the listener of a collective. */
static enum status hear(struct comm *c, enum record_message kind, const struct tensor *t, int n)
{
    const struct record_listener *l = record_state(c->dev)->listener;

    return l && c->size > 1 ? l->message(l->context, c, kind, t, n) : ST_OK;
}

enum status record_comm(struct comm **c, struct device *dev, int rank, int size,
                        struct ledger *ledger)
{
    struct recorded_comm *r = calloc(1, sizeof *r);

    if (!r)
        return fail(ST_ENOMEM, "no memory for a recording communicator");
    r->base = (struct comm){
        .be = &record_backend, .dev = dev, .ledger = ledger, .rank = rank, .size = size};
    *c = &r->base;
    return ST_OK;
}

static enum status create(struct comm **c, struct device *dev, struct host *group)
{
    (void)group;
    return record_comm(c, dev, 0, 1, NULL);
}

static void destroy(struct comm *c)
{
    free(c);
}

static enum status reserve(struct comm *c, size_t bytes)
{
    (void)c;
    (void)bytes;
    return ST_OK;
}

static enum status all_reduce(struct comm *c, struct tensor *t, int n)
{
    for (int i = 0; i < n; i++)
        TRY(fly(c, &t[i]));
    return hear(c, MESSAGE_ALL_REDUCE, t, n);
}

static enum status all_gather(struct comm *c, struct tensor *out, const struct tensor *in)
{
    const struct tensor both[] = {*out, *in};

    TRY(fly(c, out));
    return hear(c, MESSAGE_ALL_GATHER, both, 2);
}

static enum status reduce_scatter(struct comm *c, struct tensor *out, const struct tensor *in)
{
    const struct tensor both[] = {*out, *in};

    TRY(fly(c, in));
    return hear(c, MESSAGE_REDUCE_SCATTER, both, 2);
}

static enum status broadcast(struct comm *c, struct tensor *t, int root)
{
    (void)root;
    TRY(fly(c, t));
    return hear(c, MESSAGE_BROADCAST, t, 1);
}

static enum status receive(struct comm *c, struct tensor *t, int from)
{
    (void)from;
    return fly(c, t);
}

static enum status send_begin(struct comm *c, const struct tensor *t, int to)
{
    (void)to;
    return fly(c, t);
}

static enum status start(struct comm *c)
{
    (void)c;
    return ST_OK;
}

static enum status wait_all(struct comm *c)
{
    ((struct recorded_comm *)c)->in_flight = 0;
    return ST_OK;
}

static enum status stamp(struct comm *c, int64_t n)
{
    (void)c;
    (void)n;
    return ST_OK;
}

const struct comm_ops record_comm_ops = {.create = create,
                                         .destroy = destroy,
                                         .reserve = reserve,
                                         .all_reduce_begin = all_reduce,
                                         .all_gather_begin = all_gather,
                                         .reduce_scatter_begin = reduce_scatter,
                                         .broadcast_begin = broadcast,
                                         .send_begin = send_begin,
                                         .recv_begin = receive,
                                         .start = start,
                                         .wait = wait_all,
                                         .stamp = stamp};

size_t record_comm_peak(const struct comm *c)
{
    return ((const struct recorded_comm *)c)->peak;
}
