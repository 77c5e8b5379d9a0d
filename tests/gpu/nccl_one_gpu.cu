/* The functions of NCCL that gpu/ calls, between ranks that share one GPU of one node, which NCCL
 * itself refuses. For tests only: preloaded under every rank, it makes the code for several GPUs
 * run where there is one (tests/cli/gpu.sh). Right and repeatable before fast: sums run in the
 * order of ranks, in float for bf16, and are rounded once, so all ranks get the same bits.
 *
 * As with NCCL, calls put kernels on the given stream and return: they neither allocate nor wait,
 * and a stream that records them may replay them. Connecting waits for nobody. An abort ends the
 * kernels of its own rank; other ranks have to notice by themselves. Beyond NCCL, ranks whose calls
 * do not belong together get an error rather than wrong numbers.
 *
 * A communicator's memory stays pinned and mapped until the process ends: to give it back, CUDA may
 * wait for kernels that wait for a peer.
 */
#include "tests/gpu/collective.cuh"
#include "tests/gpu/pairs.cuh"

#include <errno.h>
#include <fcntl.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct ncclComm {
    struct place at;         /* as kernels see the segment */
    struct segment *segment; /* as the host does */
};

/* A call between ncclGroupStart and ncclGroupEnd. */
struct call {
    ncclComm_t comm;
    cudaStream_t stream;
    const void *kernel; /* NULL: a send or receive */
    struct exchange exchange;
    struct transfer transfer;
};

static thread_local struct {
    int depth, n;
    ncclResult_t failed;
    struct call call[CALLS_MAX];
} group;
static thread_local char reason[200];

static ncclResult_t failed(ncclResult_t r, const char *what, const char *why)
{
    snprintf(reason, sizeof reason, "one-GPU stand-in: %s: %s", what, why);
    return r;
}

static ncclResult_t cuda_failed(const char *what, cudaError_t err)
{
    return failed(ncclUnhandledCudaError, what, cudaGetErrorString(err));
}

/* ---- communicators ---- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "/narrows-one-gpu-%ld-%ld-%ld", (long)getpid(),
             (long)now.tv_sec, now.tv_nsec);
    return ncclSuccess;
}

/* The segment of that name, made by whoever comes first, zeros then; the last to come takes the
 * name away. */
static ncclResult_t segment_open(struct segment **segment, const char *name, int size)
{
    int fd = shm_open(name, O_CREAT | O_RDWR, 0600);
    void *p = MAP_FAILED;
    int why;

    if (fd < 0)
        return failed(ncclSystemError, "shm_open", strerror(errno));
    why = posix_fallocate(fd, 0, (off_t)segment_bytes(size));
    if (why == 0)
        p = mmap(NULL, segment_bytes(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (why == 0 && p == MAP_FAILED)
        why = errno;
    close(fd);
    if (p == MAP_FAILED) {
        shm_unlink(name);
        return failed(ncclSystemError, "shared memory", strerror(why));
    }
    *segment = (struct segment *)p;
    if (__atomic_add_fetch(&(*segment)->joined, 1, __ATOMIC_ACQ_REL) == (unsigned)size)
        shm_unlink(name);
    return ncclSuccess;
}

/* What each type's sum is done by. */
static const void *kernel_of(ncclDataType_t type)
{
    switch (type) {
    case ncclFloat32:
        return (const void *)exchange_kernel<float>;
    case ncclFloat64:
        return (const void *)exchange_kernel<double>;
    case ncclBfloat16:
        return (const void *)exchange_kernel<struct bf16>;
    case ncclInt32:
        return (const void *)exchange_kernel<int>;
    default:
        return NULL;
    }
}

static size_t type_bytes(ncclDataType_t type)
{
    return type == ncclFloat64 ? 8 : type == ncclBfloat16 ? 2 : 4;
}

/* Loads the kernels: a first launch that did may wait for what runs, and that for a peer. */
static ncclResult_t load(void)
{
    const void *kernels[] = {kernel_of(ncclFloat32), kernel_of(ncclFloat64),
                             kernel_of(ncclBfloat16), kernel_of(ncclInt32),
                             (const void *)pairs_kernel};

    for (const void *kernel : kernels) {
        struct cudaFuncAttributes known;
        cudaError_t err = cudaFuncGetAttributes(&known, kernel);

        if (err != cudaSuccess)
            return cuda_failed("loading kernels", err);
    }
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    struct ncclComm *made;
    void *seen;
    ncclResult_t r = load();
    cudaError_t err;

    (void)config;
    if (nranks < 1 || nranks > RANKS_MAX || rank < 0 || rank >= nranks)
        return failed(ncclInvalidArgument, "ncclCommInitRankConfig", "too many ranks, or no such");
    made = (struct ncclComm *)calloc(1, sizeof *made);
    if (!made)
        return failed(ncclSystemError, "ncclCommInitRankConfig", "no memory");
    if (r == ncclSuccess)
        r = segment_open(&made->segment, id.internal, nranks);
    if (r != ncclSuccess) {
        free(made);
        return r;
    }
    err = cudaHostRegister(made->segment, segment_bytes(nranks),
                           cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (err == cudaSuccess)
        err = cudaHostGetDevicePointer(&seen, made->segment, 0);
    if (err != cudaSuccess) {
        free(made);
        return cuda_failed("pinning the segment", err);
    }
    made->at.segment = (struct segment *)seen;
    made->at.rank = rank;
    made->at.size = nranks;
    *comm = made;
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    *state = ncclSuccess;
    if (comm->segment->stop[comm->at.rank].word == MISMATCHED)
        *state = failed(ncclInvalidUsage, "messages that do not belong together",
                        "ranks differ in operation, type, count or root");
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    comm->segment->stop[comm->at.rank].word = ABORTED;
    free(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    (void)comm;
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    free(comm);
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    switch (result) {
    case ncclSuccess:
        return "no error";
    case ncclUnhandledCudaError:
        return "a call of CUDA failed";
    case ncclSystemError:
        return "a call of the system failed";
    case ncclInvalidUsage:
        return "calls that do not belong together";
    default:
        return "an invalid argument";
    }
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return reason;
}

/* ---- calls ---- */

static ncclResult_t launch(const void *kernel, void *argument, cudaStream_t stream)
{
    cudaError_t err = cudaLaunchKernel(kernel, 1, THREADS, &argument, 0, stream);

    return err == cudaSuccess ? ncclSuccess : cuda_failed("launching a kernel", err);
}

/* All sends and receives of the group in one kernel: which of them comes first is the peers'
 * choice. */
static ncclResult_t launch_pairs(void)
{
    struct pairs p = {};
    cudaStream_t stream = NULL;

    for (int i = 0; i < group.n; i++) {
        const struct call *c = &group.call[i];

        if (c->kernel)
            continue;
        if (p.n > 0 && (p.at.segment != c->comm->at.segment || stream != c->stream))
            return failed(ncclInvalidUsage, "ncclGroupEnd", "sends on more than one communicator");
        p.at = c->comm->at;
        stream = c->stream;
        p.op[p.n++] = c->transfer;
    }
    return p.n > 0 ? launch((const void *)pairs_kernel, &p, stream) : ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    if (group.depth++ == 0) {
        group.n = 0;
        group.failed = ncclSuccess;
    }
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    ncclResult_t r = group.failed;

    if (group.depth == 0)
        return failed(ncclInvalidUsage, "ncclGroupEnd", "no group was begun");
    if (--group.depth > 0)
        return ncclSuccess;
    for (int i = 0; i < group.n && r == ncclSuccess; i++)
        if (group.call[i].kernel)
            r = launch(group.call[i].kernel, &group.call[i].exchange, group.call[i].stream);
    return r == ncclSuccess ? launch_pairs() : r;
}

/* A call joins the group, or is a group of its own. */
static ncclResult_t add(const struct call *c)
{
    ncclResult_t r = ncclSuccess;

    ncclGroupStart();
    if (group.n < CALLS_MAX)
        group.call[group.n++] = *c;
    else
        r = group.failed = failed(ncclInvalidUsage, "a group", "too many calls");
    return group.depth > 1 ? (group.depth--, r) : ncclGroupEnd();
}

/* Never 0; a peer's is the same when its call belongs to this one. */
static unsigned long long tag_of(int kind, ncclDataType_t type, int root, size_t count)
{
    return (((unsigned long long)count * 8 + kind) * 16 + type) * RANKS_MAX * 2 + root + 1;
}

static struct exchange exchange_of(enum exchange_kind kind, const void *in, void *out, size_t count)
{
    struct exchange e = {};

    e.kind = kind;
    e.in = in;
    e.out = out;
    e.count = count;
    return e;
}

static ncclResult_t collective(struct exchange e, ncclDataType_t type, ncclComm_t comm,
                               cudaStream_t stream)
{
    struct call c = {};

    if (!kernel_of(type))
        return group.failed = failed(ncclInvalidArgument, "a collective", "type not known here");
    e.at = comm->at;
    e.tag = tag_of(e.kind, type, e.root, e.count);
    c.comm = comm;
    c.stream = stream;
    c.kernel = kernel_of(type);
    c.exchange = e;
    return add(&c);
}

static ncclResult_t sum(struct exchange e, ncclRedOp_t op, ncclDataType_t type, ncclComm_t comm,
                        cudaStream_t stream)
{
    if (op != ncclSum)
        return group.failed = failed(ncclInvalidArgument, "a reduction", "only sums");
    return collective(e, type, comm, stream);
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return sum(exchange_of(ALL_REDUCE, in, out, count), op, type, comm, stream);
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return sum(exchange_of(REDUCE_SCATTER, in, out, count), op, type, comm, stream);
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    return collective(exchange_of(ALL_GATHER, in, out, count), type, comm, stream);
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream)
{
    struct exchange e = exchange_of(BROADCAST, in, out, count);

    e.root = root;
    return collective(e, type, comm, stream);
}

static ncclResult_t pair(void *data, size_t count, ncclDataType_t type, int peer, int send,
                         ncclComm_t comm, cudaStream_t stream)
{
    struct call c = {};

    if (!kernel_of(type) || peer < 0 || peer >= comm->at.size)
        return group.failed = failed(ncclInvalidArgument, "a send", "type or peer not known here");
    c.comm = comm;
    c.stream = stream;
    c.transfer.data = data;
    c.transfer.bytes = count * type_bytes(type);
    c.transfer.tag = tag_of(7, type, 0, count);
    c.transfer.peer = peer;
    c.transfer.send = send;
    return add(&c);
}

ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream)
{
    return pair((void *)data, count, type, peer, 1, comm, stream);
}

ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    return pair(data, count, type, peer, 0, comm, stream);
}
