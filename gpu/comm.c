/* Collectives by NCCL. Communicators are non-blocking: no call of theirs may wait for a peer inside
 * NCCL, where neither the job's failure flag nor its deadline is heeded. */
#include "gpu/comm.h"

#include "common/backend/comm.h"
#include "common/base/log.h"
#include "gpu/comm_state.h"
#include "gpu/gpu.h"
#include "gpu/graph.h"

#include <stdio.h>
#include <stdlib.h>

static enum status check(ncclResult_t r, const struct gpu_comm *c, const char *what)
{
    const char *last = ncclGetLastError(c->nccl);

    if (r == ncclSuccess || r == ncclInProgress)
        return ST_OK;
    return fail(ST_ECOMM, "%s: %s%s%s (NCCL_DEBUG=WARN tells more)", what, ncclGetErrorString(r),
                last && *last ? "; " : "", last && *last ? last : "");
}

/* Ends every communicator of dev: what runs on them stops. */
static void abort_all(struct gpu_device *dev)
{
    gpu_graphs_drop(dev);
    for (struct gpu_comm *c = dev->comms; c; c = c->next) {
        if (c->nccl)
            ncclCommAbort(c->nccl);
        c->nccl = NULL;
        c->dead = c->base.size > 1;
    }
}

static enum status look(struct gpu_device *dev, struct host_poll *poll, const char *what)
{
    struct gpu_comm *watched = dev->comms;

    for (struct gpu_comm *c = dev->comms; c; c = c->next) {
        ncclResult_t state = ncclSuccess;

        if (c->dead)
            return fail(ST_ECOMM, "%s: communication was ended after an earlier failure", what);
        if (!c->nccl)
            continue;
        TRY(check(ncclCommGetAsyncError(c->nccl, &state), c, what));
        TRY(check(state, c, c->what));
        if (cudaEventQuery(c->done) == cudaErrorNotReady) {
            watched = c;
            what = c->what;
        }
    }
    return watched ? host_poll(poll, watched->group, what) : ST_OK;
}

enum status gpu_comm_poll(struct gpu_device *dev, struct host_poll *poll, const char *what)
{
    enum status st = look(dev, poll, what);

    if (st != ST_OK)
        abort_all(dev);
    return st;
}

enum status gpu_comm_quiet(struct gpu_device *dev)
{
    struct host_poll poll = host_poll_start();

    for (struct gpu_comm *c = dev->comms; c; c = c->next)
        while (c->nccl && cudaEventQuery(c->done) == cudaErrorNotReady)
            TRY(gpu_comm_poll(dev, &poll, c->what));
    return ST_OK;
}

enum status gpu_comm_recorded(struct gpu_device *dev)
{
    for (struct gpu_comm *c = dev->comms; c; c = c->next)
        if (c->recorded)
            CUDA_TRY(cudaEventRecord(c->done, dev->stream));
    return ST_OK;
}

/* Waits on the host until NCCL has done its part of the call r: the kernels are then enqueued. */
static enum status settle(struct gpu_comm *c, ncclResult_t r)
{
    struct host_poll poll = host_poll_start();
    ncclResult_t state = r;
    enum status st = check(r, c, c->what);

    while (st == ST_OK && state == ncclInProgress) {
        st = check(ncclCommGetAsyncError(c->nccl, &state), c, c->what);
        if (st == ST_OK && state == ncclInProgress)
            st = host_poll(&poll, c->group, c->what);
    }
    if (st == ST_OK)
        st = check(state, c, c->what);
    if (st != ST_OK)
        abort_all(c->dev);
    return st;
}

/* Rank 0's id for all, or its failure for all. */
static enum status spread_id(ncclUniqueId *id, struct gpu_comm *c)
{
    struct {
        ncclUniqueId id;
        int failed;
    } word = {.failed = 0};
    enum status st = ST_OK;

    if (c->base.rank == 0) {
        st = check(ncclGetUniqueId(&word.id), c, "ncclGetUniqueId");
        word.failed = st != ST_OK;
    }
    TRY(host_broadcast(c->group, &word, sizeof word, 0));
    if (word.failed)
        return st != ST_OK ? st : fail(ST_EPEER, "NCCL did not start on rank 0 of a group");
    *id = word.id;
    return ST_OK;
}

static enum status connect_nccl(struct gpu_comm *c)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;

    /* NVLink multicast (NVLS) needs a fabric manager that lends it, and where it fails it may take
     * the node's GPUs with it. It is off unless the user says NCCL_NVLS_ENABLE=1 (or 2). */
    setenv("NCCL_NVLS_ENABLE", "0", 0);
    /* Buffers registered for a graph would make ranks talk while one records alone, and could
     * choose another way to sum than plain calls have. */
    setenv("NCCL_GRAPH_REGISTER", "0", 0);
    config.blocking = 0;
    TRY(spread_id(&id, c));
    snprintf(c->what, sizeof c->what, "start of NCCL on %d ranks", c->base.size);
    return settle(c, ncclCommInitRankConfig(&c->nccl, c->base.size, id, c->base.rank, &config));
}

static enum status create_parts(struct gpu_comm *c)
{
    CUDA_TRY(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking));
    CUDA_TRY(cudaEventCreateWithFlags(&c->ready, cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreateWithFlags(&c->done, cudaEventDisableTiming));
    return c->base.size > 1 ? connect_nccl(c) : ST_OK;
}

enum status gpu_comm_create(struct comm **c, struct device *dev, struct host *group)
{
    struct gpu_comm *made = calloc(1, sizeof *made);
    enum status st;

    if (!made)
        return fail(ST_ENOMEM, "no host memory for a communicator");
    made->base =
        (struct comm){.be = &gpu_backend, .rank = host_rank(group), .size = host_size(group)};
    made->dev = gpu_of(dev);
    made->next = made->dev->comms;
    made->dev->comms = made;
    st = host_split(&made->group, group, 0, host_rank(group)); /* the caller may free its own */
    if (st == ST_OK)
        st = create_parts(made);
    if (st != ST_OK) {
        gpu_comm_destroy(&made->base);
        return st;
    }
    *c = &made->base;
    return ST_OK;
}

/* In peace all ranks take part; after a failure the communicator was aborted before. */
static void disconnect(struct gpu_comm *c)
{
    if (!c->nccl)
        return;
    gpu_graphs_drop(c->dev);
    snprintf(c->what, sizeof c->what, "end of NCCL on %d ranks", c->base.size);
    if (settle(c, ncclCommFinalize(c->nccl)) == ST_OK)
        ncclCommDestroy(c->nccl);
    else
        log_warn("a communicator did not end in order: %s", status_message());
    c->nccl = NULL;
}

void gpu_comm_destroy(struct comm *c)
{
    struct gpu_comm *gone = gpu_comm_of(c);

    if (!gone)
        return;
    disconnect(gone);
    for (struct gpu_comm **at = &gone->dev->comms; *at; at = &(*at)->next)
        if (*at == gone) {
            *at = gone->next;
            break;
        }
    if (gone->ready)
        cudaEventDestroy(gone->ready);
    if (gone->done)
        cudaEventDestroy(gone->done);
    if (gone->stream)
        cudaStreamDestroy(gone->stream);
    host_free(gone->group);
    free(gone);
}

ncclDataType_t gpu_comm_type(const struct tensor *t)
{
    static const ncclDataType_t types[DT_COUNT] = {[DT_F32] = ncclFloat32,
                                                   [DT_F64] = ncclFloat64,
                                                   [DT_BF16] = ncclBfloat16,
                                                   [DT_I32] = ncclInt32};

    return types[t->dtype];
}

enum status gpu_comm_begin(struct gpu_comm *c, const char *name, const struct tensor *t)
{
    if (c->dead || !c->nccl)
        return fail(ST_ECOMM, "%s: communication was ended after an earlier failure", name);
    snprintf(c->what, sizeof c->what, "%s of [%lld, %lld] %s over %d ranks", name,
             (long long)t->rows, (long long)t->cols, dtype_name(t->dtype), c->base.size);
    CUDA_TRY(cudaEventRecord(c->ready, c->dev->stream));
    CUDA_TRY(cudaStreamWaitEvent(c->stream, c->ready, 0));
    c->begun = 1;
    return ST_OK;
}

enum status gpu_comm_launched(struct gpu_comm *c, ncclResult_t r)
{
    TRY(settle(c, r));
    CUDA_TRY(cudaEventRecord(c->done, c->stream));
    c->recorded |= gpu_capturing(c->dev);
    return gpu_put(c->dev, GPU_PUT_CALL);
}

/* One rank: its own tensor is the result. */
static enum status alone(struct gpu_comm *c, struct tensor *out, const struct tensor *in)
{
    if (out->data == in->data)
        return ST_OK;
    return gpu_copy(&c->dev->base, out->data, in->data,
                    (size_t)tensor_count(in) * dtype_size(in->dtype));
}

enum status gpu_all_reduce_begin(struct comm *c, struct tensor *t, int n)
{
    struct gpu_comm *gc = gpu_comm_of(c);
    ncclResult_t r = ncclSuccess, end;

    if (gc->base.size == 1)
        return ST_OK;
    TRY(gpu_comm_begin(gc, "all-reduce", t));
    ncclGroupStart();
    for (int i = 0; i < n && (r == ncclSuccess || r == ncclInProgress); i++)
        r = ncclAllReduce(t[i].data, t[i].data, (size_t)tensor_count(&t[i]), gpu_comm_type(&t[i]),
                          ncclSum, gc->nccl, gc->stream);
    end = ncclGroupEnd();
    return gpu_comm_launched(gc, r == ncclSuccess || r == ncclInProgress ? end : r);
}

enum status gpu_all_gather_begin(struct comm *c, struct tensor *out, const struct tensor *in)
{
    struct gpu_comm *gc = gpu_comm_of(c);

    if (gc->base.size == 1)
        return alone(gc, out, in);
    TRY(gpu_comm_begin(gc, "all-gather", in));
    return gpu_comm_launched(gc, ncclAllGather(in->data, out->data, (size_t)tensor_count(in),
                                               gpu_comm_type(in), gc->nccl, gc->stream));
}

enum status gpu_reduce_scatter_begin(struct comm *c, struct tensor *out, const struct tensor *in)
{
    struct gpu_comm *gc = gpu_comm_of(c);

    if (gc->base.size == 1)
        return alone(gc, out, in);
    TRY(gpu_comm_begin(gc, "reduce-scatter", out));
    return gpu_comm_launched(gc,
                             ncclReduceScatter(in->data, out->data, (size_t)tensor_count(out),
                                               gpu_comm_type(in), ncclSum, gc->nccl, gc->stream));
}

enum status gpu_broadcast_begin(struct comm *c, struct tensor *t, int root)
{
    struct gpu_comm *gc = gpu_comm_of(c);

    if (gc->base.size == 1)
        return ST_OK;
    TRY(gpu_comm_begin(gc, "broadcast", t));
    return gpu_comm_launched(gc, ncclBroadcast(t->data, t->data, (size_t)tensor_count(t),
                                               gpu_comm_type(t), root, gc->nccl, gc->stream));
}

/* NCCL keeps its own staging; a first small sum makes it connect and load now, not in step 1. Sends
 * have connections of their own: where two ranks meet later in another order than the one that a
 * connection is made in (stages that send both ways), each would wait for the other. */
enum status gpu_comm_reserve(struct comm *c, size_t bytes)
{
    struct gpu_comm *gc = gpu_comm_of(c);
    struct tensor t, in, out;
    void *p;

    (void)bytes;
    if (gc->base.size == 1)
        return ST_OK;
    TRY(gpu_scratch(gc->dev, &p, 3072));
    CUDA_TRY(cudaMemsetAsync(p, 0, 3072, gc->dev->stream));
    t = tensor_view(p, DT_F32, 1, 256);
    TRY(gpu_all_reduce_begin(c, &t, 1));
    TRY(gpu_comm_wait(c));
    if (gc->base.size == 2) { /* a pair: one edge of a pipeline, or its two ends */
        out = tensor_view((char *)p + 1024, DT_F32, 1, 256);
        in = tensor_view((char *)p + 2048, DT_F32, 1, 256);
        TRY(gpu_send_begin(c, &out, 1 - c->rank));
        TRY(gpu_recv_begin(c, &in, 1 - c->rank));
        TRY(gpu_comm_wait(c));
    }
    return gpu_wait(gc->dev);
}

enum status gpu_comm_wait(struct comm *c)
{
    struct gpu_comm *gc = gpu_comm_of(c);

    TRY(gpu_comm_start(c));
    if (!gc->begun)
        return ST_OK;
    CUDA_TRY(cudaStreamWaitEvent(gc->dev->stream, gc->done, 0));
    gc->begun = 0;
    return ST_OK;
}
