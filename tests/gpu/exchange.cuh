/* How ranks that share one GPU exchange tensors, for nccl_one_gpu.cu: through a segment of pinned
 * host memory that all of them map.
 *
 * A flag for each (sender, receiver) says whether the sender's slot is full for this receiver: 0, or
 * a tag of the operation. A sender waits until it is 0, fills the slot and sets it; the receiver
 * waits until it is set, uses the slot and sets it to 0. All flags are 0 again after an operation,
 * so a graph that is replayed finds what it found before, and nothing is counted. Longer messages
 * go in pieces.
 *
 * Every kernel is one small block, which leaves the GPU to the arithmetic; kernels of different
 * ranks take turns on it, and waits last until it is the other's turn. They end when their own
 * rank's stop word is set, as an abort of NCCL ends the rank's own kernels and no other's.
 */
#ifndef TESTS_GPU_EXCHANGE_CUH
#define TESTS_GPU_EXCHANGE_CUH

#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

enum { RANKS_MAX = 16, CALLS_MAX = 64, THREADS = 256 };
/* Of a rank's slot for collectives, and of all slots between two ranks together. */
enum { SLOT_BYTES = 1 << 20, PAIRS_BYTES = 1 << 20 };

/* A rank's stop word. MISMATCHED: a peer's message is of another operation than its own. */
enum { RUNNING, ABORTED, MISMATCHED };

enum exchange_kind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST };

/* A word in a line of its own, written by one side at a time. */
struct flag {
    volatile unsigned long long word;
    char spare[56];
};

/* What stands at the head of the segment, all 0 when it is made; then a slot of SLOT_BYTES for each
 * rank, then PAIRS_BYTES. */
struct segment {
    unsigned joined; /* ranks that have mapped it */
    struct flag stop[RANKS_MAX];
    struct flag all[RANKS_MAX][RANKS_MAX];  /* [from][to], of collectives */
    struct flag pair[RANKS_MAX][RANKS_MAX]; /* [from][to], of sends */
};

/* A rank's view of it. */
struct place {
    struct segment *segment;
    int rank, size;
};

struct exchange {
    struct place at;
    enum exchange_kind kind;
    int root;
    const void *in;
    void *out;
    size_t count; /* elements that go to one rank */
    unsigned long long tag;
};

struct transfer {
    void *data;
    size_t bytes;
    unsigned long long tag;
    int peer, send; /* 0: a receive */
};

/* Sends and receives that go on together. */
struct pairs {
    struct place at;
    int n;
    struct transfer op[CALLS_MAX];
};

/* Bytes of the segment of `size` ranks, and the slots in it. */
static inline size_t segment_bytes(int size)
{
    return sizeof(struct segment) + (size_t)size * SLOT_BYTES + PAIRS_BYTES;
}

/* The slot of rank r for collectives. */
static __device__ __forceinline__ char *slot_of(const struct place &at, int r)
{
    return (char *)(at.segment + 1) + (size_t)r * SLOT_BYTES;
}

/* Bytes of the slot between two ranks; whole elements of any type. */
static __device__ __forceinline__ size_t pair_room(const struct place &at)
{
    return PAIRS_BYTES / (at.size * at.size) / 16 * 16;
}

/* The slot from one rank to another. */
static __device__ __forceinline__ char *pair_slot(const struct place &at, int from, int to)
{
    return slot_of(at, at.size) + (size_t)(from * at.size + to) * pair_room(at);
}

/* The types that are summed: as stored, and wide. bf16 is summed in float and rounded once. */
struct bf16 {
    unsigned short bits;
};

/* W as numbers are added. */
template <class W> static __device__ __forceinline__ W widened(W x)
{
    return x;
}

/* See the general one. */
static __device__ __forceinline__ float widened(struct bf16 x)
{
    return __uint_as_float((unsigned)x.bits << 16);
}

/* The sum as W is stored: to nearest, even where it is a tie. */
template <class W> static __device__ __forceinline__ void narrowed(W *y, W x)
{
    *y = x;
}

/* See the general one. */
static __device__ __forceinline__ void narrowed(struct bf16 *y, float x)
{
    unsigned u = __float_as_uint(x);

    y->bits = x != x ? 0x7fff : (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* What another rank wrote or will read: past this multiprocessor's cache. */
template <class W> static __device__ __forceinline__ W fetch(const W *p)
{
    return *(const volatile W *)p;
}

/* See the general one. */
static __device__ __forceinline__ struct bf16 fetch(const struct bf16 *p)
{
    return bf16{*(const volatile unsigned short *)&p->bits};
}

/* Whether rank r has something for the others. */
static __device__ __forceinline__ bool gives(const struct exchange &e, int r)
{
    return e.kind != BROADCAST || r == e.root;
}

/* Waits until the slots of others are full for this rank, or its own slot is empty for all others.
 * false: stop. All threads call it and get the same answer. */
static __device__ bool await(const struct exchange &e, bool full)
{
    volatile unsigned long long *stop = &e.at.segment->stop[e.at.rank].word;
    int bad = 0;

    for (int peer = threadIdx.x; peer < e.at.size; peer += blockDim.x) {
        int from = full ? peer : e.at.rank, to = full ? e.at.rank : peer;
        volatile unsigned long long *flag = &e.at.segment->all[from][to].word;
        unsigned long long now = 0;

        if (from == to || !gives(e, from))
            continue;
        while (!(bad |= *stop != RUNNING) && ((now = *flag) != 0) != full)
            __nanosleep(1000);
        if (!bad && full && now != e.tag) {
            *stop = MISMATCHED;
            bad = 1;
        }
    }
    __threadfence_system();
    return !__syncthreads_or(bad);
}

/* Says that this rank's slot is full for all others, or that it has used theirs. */
static __device__ void tell(const struct exchange &e, bool full)
{
    __threadfence_system();
    __syncthreads();
    for (int peer = threadIdx.x; peer < e.at.size; peer += blockDim.x) {
        int from = full ? e.at.rank : peer, to = full ? peer : e.at.rank;

        if (from != to && gives(e, from))
            e.at.segment->all[from][to].word = full ? e.tag : 0;
    }
}

/* Elements from `done` on, n of them, into this rank's slot; of a reduce-scatter n for each rank,
 * `room` apart. */
template <class W>
static __device__ void put(const struct exchange &e, size_t done, size_t n, size_t room)
{
    W *slot = (W *)slot_of(e.at, e.at.rank);
    const W *in = (const W *)e.in;
    int parts = e.kind == REDUCE_SCATTER ? e.at.size : 1;

    if (!gives(e, e.at.rank))
        return;
    for (int r = 0; r < parts; r++)
        for (size_t i = threadIdx.x; i < n; i += blockDim.x)
            slot[r * room + i] = in[r * e.count + done + i];
}

/* Element i of the n of a sum that begins at `first` in this rank's input and at `from` in slots. */
template <class W>
static __device__ __forceinline__ void sum(const struct exchange &e, W *out, size_t first,
                                           size_t from)
{
    const W *in = (const W *)e.in;
    auto total = widened(e.at.rank == 0 ? in[first] : fetch((const W *)slot_of(e.at, 0) + from));

    for (int r = 1; r < e.at.size; r++)
        total +=
            widened(r == e.at.rank ? in[first] : fetch((const W *)slot_of(e.at, r) + from));
    narrowed(out, total);
}

/* This rank's result: elements from `done` on, n of them, from its input and the others' slots. */
template <class W>
static __device__ void take(const struct exchange &e, size_t done, size_t n, size_t room)
{
    W *out = (W *)e.out;
    const W *in = (const W *)e.in;
    size_t mine = e.kind == REDUCE_SCATTER ? e.at.rank : 0;

    for (size_t i = threadIdx.x; i < n; i += blockDim.x) {
        if (e.kind == ALL_REDUCE || e.kind == REDUCE_SCATTER)
            sum<W>(e, &out[done + i], mine * e.count + done + i, mine * room + i);
        else if (e.kind == BROADCAST)
            out[done + i] = e.root == e.at.rank ? in[done + i]
                                                : fetch((const W *)slot_of(e.at, e.root) + i);
        else
            for (int r = 0; r < e.at.size; r++)
                out[r * e.count + done + i] =
                    r == e.at.rank ? in[done + i] : fetch((const W *)slot_of(e.at, r) + i);
    }
}

/* A collective, piece by piece. One block. */
template <class W> __global__ void __launch_bounds__(THREADS) exchange_kernel(struct exchange e)
{
    size_t room = SLOT_BYTES / sizeof(W) / (e.kind == REDUCE_SCATTER ? e.at.size : 1);

    for (size_t done = 0; done < e.count; done += room) {
        size_t n = e.count - done < room ? e.count - done : room;

        if (!await(e, false))
            return;
        put<W>(e, done, n, room);
        tell(e, true);
        if (!await(e, true))
            return;
        take<W>(e, done, n, room);
        tell(e, false);
    }
}

/* n bytes; `from` or `to` is a slot. Addresses are those of elements of at least two bytes. */
static __device__ void move(char *to, const char *from, size_t n)
{
    if (((uintptr_t)to | (uintptr_t)from | n) % 4 == 0)
        for (size_t i = threadIdx.x; i < n / 4; i += blockDim.x)
            ((unsigned *)to)[i] = fetch((const unsigned *)from + i);
    else
        for (size_t i = threadIdx.x; i < n / 2; i += blockDim.x)
            ((unsigned short *)to)[i] = fetch((const unsigned short *)from + i);
}

/* Whether op i may move a piece now: its flag says so, and what comes before it between the same
 * ranks in the same direction is over. -1: stop. */
static __device__ int ready(const struct pairs &p, const size_t *done, int i)
{
    const struct transfer &op = p.op[i];
    struct segment *s = p.at.segment;
    int me = p.at.rank;
    unsigned long long now = op.send ? s->pair[me][op.peer].word : s->pair[op.peer][me].word;

    if (s->stop[me].word != RUNNING)
        return -1;
    for (int j = 0; j < i; j++)
        if (p.op[j].peer == op.peer && p.op[j].send == op.send && done[j] < p.op[j].bytes)
            return 0;
    if (!op.send && now != 0 && now != op.tag) {
        s->stop[me].word = MISMATCHED;
        return -1;
    }
    return op.send ? now == 0 : now != 0;
}

/* Moves a piece of op i, if it can. What ready() said; the same in all threads. */
static __device__ int advance(const struct pairs &p, size_t *done, int i)
{
    __shared__ int may;
    const struct transfer &op = p.op[i];
    int me = p.at.rank, now;
    char *slot = op.send ? pair_slot(p.at, me, op.peer) : pair_slot(p.at, op.peer, me);
    char *data = (char *)op.data + done[i];
    size_t left = op.bytes - done[i], room = pair_room(p.at), n = left < room ? left : room;

    if (threadIdx.x == 0)
        may = ready(p, done, i);
    __threadfence_system();
    __syncthreads();
    now = may;
    if (now == 1) {
        move(op.send ? slot : data, op.send ? data : slot, n);
        __threadfence_system();
        __syncthreads();
        if (threadIdx.x == 0) {
            volatile unsigned long long *flag = op.send ? &p.at.segment->pair[me][op.peer].word
                                                        : &p.at.segment->pair[op.peer][me].word;
            done[i] += n;
            *flag = op.send ? op.tag : 0;
        }
    }
    __syncthreads();
    return now;
}

/* Sends and receives in whatever order their other sides come. One block. */
static __global__ void __launch_bounds__(THREADS) pairs_kernel(const __grid_constant__ struct pairs p)
{
    __shared__ size_t done[CALLS_MAX];
    int left = 1;

    for (int i = threadIdx.x; i < p.n; i += blockDim.x)
        done[i] = 0;
    __syncthreads();
    while (left > 0) {
        int moved = 0;

        left = 0;
        for (int i = 0; i < p.n; i++) {
            int now = done[i] < p.op[i].bytes ? advance(p, done, i) : 0;

            if (now < 0)
                return;
            moved += now;
            left += done[i] < p.op[i].bytes;
        }
        if (!moved)
            __nanosleep(1000);
    }
}

#endif
