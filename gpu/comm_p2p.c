/* Sends and receives between two ranks, by NCCL. */
#include "gpu/comm_state.h"
#include "gpu/gpu.h"
#include "gpu/stamp.h"

/* Sends and receives between two ranks may be begun in any order, so NCCL must see them together:
 * they are kept until the wait, or until the list is full. */
static enum status start_queue(struct gpu_comm *c)
{
    struct tensor t = tensor_view(NULL, DT_F32, c->queued, 1);
    ncclResult_t r = ncclSuccess, end;

    if (c->queued == 0)
        return ST_OK;
    TRY(gpu_comm_begin(c, "sends and receives", &t));
    ncclGroupStart();
    for (int i = 0; i < c->queued && (r == ncclSuccess || r == ncclInProgress); i++) {
        const struct p2p *q = &c->queue[i];

        r = q->send ? ncclSend(q->data, q->count, q->type, q->peer, c->nccl, c->stream)
                    : ncclRecv(q->data, q->count, q->type, q->peer, c->nccl, c->stream);
    }
    end = ncclGroupEnd();
    TRY(gpu_comm_launched(c, r == ncclSuccess || r == ncclInProgress ? end : r));
    for (int i = 0; i < c->queued; i++)
        if (c->queue[i].moment >= 0)
            TRY(gpu_stamp_on(c->dev, c->queue[i].moment, c->stream));
    c->queued = 0;
    return ST_OK;
}

enum status gpu_comm_stamp(struct comm *c, int64_t n)
{
    struct gpu_comm *gc = gpu_comm_of(c);

    if (gc->queued == 0)
        return gpu_stamp_on(gc->dev, n, gc->stream);
    gc->queue[gc->queued - 1].moment = n;
    return ST_OK;
}

static enum status enqueue(struct gpu_comm *c, const struct tensor *t, int peer, int send)
{
    struct p2p *q;

    if (c->queued == P2P_MAX)
        return fail(ST_ECOMM, "more than %d sends and receives begun before a wait", P2P_MAX);
    q = &c->queue[c->queued++];
    q->data = t->data;
    q->count = (size_t)tensor_count(t);
    q->peer = peer;
    q->send = send;
    q->moment = -1;
    q->type = gpu_comm_type(t);
    return ST_OK;
}

enum status gpu_send_begin(struct comm *c, const struct tensor *t, int to)
{
    return enqueue(gpu_comm_of(c), t, to, 1);
}

enum status gpu_recv_begin(struct comm *c, struct tensor *t, int from)
{
    return enqueue(gpu_comm_of(c), t, from, 0);
}

enum status gpu_comm_start(struct comm *c)
{
    return start_queue(gpu_comm_of(c));
}
