#include "common/parallel/pipe.h"

#include "common/backend/device.h"

static struct comm *sending(const struct pipe *p, enum pipe_direction d)
{
    return d == PIPE_FORWARD ? p->on.next[d] : p->on.prev[d];
}

static struct comm *receiving(const struct pipe *p, enum pipe_direction d)
{
    return d == PIPE_FORWARD ? p->on.prev[d] : p->on.next[d];
}

enum status pipe_open(struct pipe *p, const struct pipe_edges *on, struct arena *memory,
                      size_t bytes)
{
    *p = (struct pipe){.on = *on};
    for (int d = 0; d < PIPE_DIRECTIONS; d++)
        if (sending(p, d))
            TRY(arena_take(memory, &p->buffer[d], bytes));
    return ST_OK;
}

enum status pipe_send(struct pipe *p, struct device *dev, const struct tensor *x,
                      enum pipe_direction d)
{
    struct comm *c = sending(p, d);
    struct tensor copy = *x;

    FAIL_IF(!c || !tensor_packed(x), ST_EINTERNAL);
    ledger_for(c->ledger, LEDGER_PP);
    TRY(comm_wait(c));
    copy.data = p->buffer[d];
    TRY(device_copy(dev, copy.data, x->data, (size_t)tensor_count(x) * dtype_size(x->dtype)));
    TRY(comm_send_begin(c, &copy, 1 - c->rank));
    return comm_start(c);
}

enum status pipe_receive(struct pipe *p, struct tensor *x, enum pipe_direction d)
{
    struct comm *c = receiving(p, d);

    FAIL_IF(!c, ST_EINTERNAL);
    ledger_for(c->ledger, LEDGER_PP);
    TRY(comm_recv_begin(c, x, 1 - c->rank));
    return comm_wait(c);
}

enum status pipe_flush(struct pipe *p)
{
    for (int d = 0; d < PIPE_DIRECTIONS; d++)
        if (sending(p, d))
            TRY(comm_wait(sending(p, d)));
    return ST_OK;
}
