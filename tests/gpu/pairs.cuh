/* Sends and receives between ranks that share one GPU (exchange.cuh). */
#ifndef TESTS_GPU_PAIRS_CUH
#define TESTS_GPU_PAIRS_CUH

#include "tests/gpu/exchange.cuh"

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

/* The slot from one rank to another. */
static __device__ __forceinline__ char *pair_slot(const struct place &at, int from, int to)
{
    return slot_of(at, at.size) + (size_t)(from * at.size + to) * PAIR_BYTES;
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
    size_t left = op.bytes - done[i], n = left < PAIR_BYTES ? left : PAIR_BYTES;

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
static __global__ void __launch_bounds__(THREADS)
    pairs_kernel(const __grid_constant__ struct pairs p)
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
