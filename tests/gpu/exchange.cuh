/* How ranks that share one GPU exchange tensors, for nccl_one_gpu.cu: through a segment of pinned
 * host memory that all of them map.
 *
 * A flag for each sender and receiver says whether the sender's slot is full for this receiver: 0,
 * or a tag of the operation. A sender waits until it is 0, fills the slot and sets it; the receiver
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
/* Of a rank's slot for collectives, and of one from a rank to another for sends: small, so that a
 * sender waits for its receiver, as NCCL's does with large messages. */
enum { SLOT_BYTES = 1 << 20, PAIR_BYTES = 8 << 10 };

/* A rank's stop word. MISMATCHED: a peer's message is of another operation than its own. */
enum { RUNNING, ABORTED, MISMATCHED };

/* A word in a line of its own, written by one side at a time. */
struct alignas(64) flag {
    volatile unsigned long long word;
};

/* What stands at the head of the segment, all 0 when it is made; then a slot of SLOT_BYTES for each
 * rank, then one of PAIR_BYTES for each pair. */
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

/* Bytes of the segment of `size` ranks. */
static inline size_t segment_bytes(int size)
{
    return sizeof(struct segment) + (size_t)size * (SLOT_BYTES + size * PAIR_BYTES);
}

/* The slot of rank r for collectives. */
static __device__ __forceinline__ char *slot_of(const struct place &at, int r)
{
    return (char *)(at.segment + 1) + (size_t)r * SLOT_BYTES;
}

/* What another rank wrote or will read: past this multiprocessor's cache. */
template <class W> static __device__ __forceinline__ W fetch(const W *p)
{
    return *(const volatile W *)p;
}

#endif
