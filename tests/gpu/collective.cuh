/* Collectives among ranks that share one GPU (exchange.cuh). */
#ifndef TESTS_GPU_COLLECTIVE_CUH
#define TESTS_GPU_COLLECTIVE_CUH

#include "tests/gpu/exchange.cuh"

enum exchange_kind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST };

struct exchange {
    struct place at;
    enum exchange_kind kind;
    int root;
    const void *in;
    void *out;
    size_t count; /* elements that go to one rank */
    unsigned long long tag;
};

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

/* *out = the sum over ranks, in their order, of element `first` of this rank's input and elements
 * `from` of the others' slots. */
template <class W>
static __device__ __forceinline__ void sum(const struct exchange &e, W *out, size_t first,
                                           size_t from)
{
    const W *in = (const W *)e.in;
    auto total = widened(e.at.rank == 0 ? in[first] : fetch((const W *)slot_of(e.at, 0) + from));

    for (int r = 1; r < e.at.size; r++)
        total += widened(r == e.at.rank ? in[first] : fetch((const W *)slot_of(e.at, r) + from));
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
            out[done + i] =
                e.root == e.at.rank ? in[done + i] : fetch((const W *)slot_of(e.at, e.root) + i);
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

#endif
