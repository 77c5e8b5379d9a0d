/* What a kernel for GPUs of compute capability 9.0 is made of, one function an instruction of PTX:
 * barriers in shared memory, bulk copies of tiles between memory and shared memory (TMA), clusters;
 * products are in wgmma.cuh. Compiles to nothing usable for other targets: who includes it guards
 * its kernel by HOPPER_CODE.
 *
 * Tiles in shared memory are [rows, 64] bf16, 128 bytes a row, in which the hardware swaps pieces
 * of 16 bytes ("128-byte swizzle"): piece p of row i lies where piece p ^ (i mod 8) would. A tile
 * begins at a multiple of 1024 bytes. Source: PTX ISA, mbarrier and
 * cp.async.bulk.tensor.
 */
#ifndef GPU_HOPPER_CUH
#define GPU_HOPPER_CUH

#include <cuda.h>
#include <stdint.h>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HOPPER_CODE 1

/* p as the address that instructions on shared memory take. */
static __device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* A barrier that a phase of `arrivals` arrivals, and of the bytes that they announce, completes. */
static __device__ __forceinline__ void barrier_init(uint32_t bar, unsigned arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals));
}

/* Makes barriers that were just set up known to bulk copies, and to the cluster. */
static __device__ __forceinline__ void barrier_init_done()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* Arrives, and announces that `bytes` will be copied in. */
static __device__ __forceinline__ void barrier_expect(uint32_t bar, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                 : "memory");
}

/* Arrives. */
static __device__ __forceinline__ void barrier_arrive_here(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

/* Arrives at the barrier in the same place of another block of the cluster. */
static __device__ __forceinline__ void barrier_arrive(uint32_t bar, unsigned block)
{
    asm volatile("{\n\t.reg .b32 far;\n\t"
                 "mapa.shared::cluster.u32 far, %0, %1;\n\t"
                 "mbarrier.arrive.shared::cluster.b64 _, [far];\n\t}" ::"r"(bar),
                 "r"(block)
                 : "memory");
}

/* Waits until the phase of this parity is complete. A new barrier is in phase 0; the one before
 * it, of parity 1, counts as complete. */
static __device__ __forceinline__ void barrier_wait(uint32_t bar, unsigned parity)
{
    asm volatile("{\n\t.reg .pred done;\n\t"
                 "again:\n\t"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n\t"
                 "@done bra over;\n\t"
                 "bra again;\n\t"
                 "over:\n\t}" ::"r"(bar),
                 "r"(parity)
                 : "memory");
}

/* The tile whose first element is column x of row y, into shared memory; outside the tensor it is
 * zeros. Completes its bytes at bar. */
static __device__ __forceinline__ void tile_fetch(uint32_t to, const CUtensorMap *map, uint32_t bar,
                                                  int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                 "l"(map), "r"(bar), "r"(x), "r"(y)
                 : "memory");
}

/* The same into the same place of every block of the cluster in mask, at the barrier there. */
static __device__ __forceinline__ void tile_fetch_all(uint32_t to, const CUtensorMap *map,
                                                      uint32_t bar, int x, int y, uint16_t mask)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
                 "l"(map), "r"(bar), "r"(x), "r"(y), "h"(mask)
                 : "memory");
}

/* A tile from shared memory; what is outside the tensor is left out. Joins the thread's group. */
static __device__ __forceinline__ void tile_store(const CUtensorMap *map, uint32_t from, int x,
                                                  int y)
{
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
        "r"(from), "r"(x), "r"(y)
        : "memory");
}

/* Closes the thread's group of stores; the next store begins a new one. */
static __device__ __forceinline__ void tile_stores_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Waits until all of this thread's stores but the last N groups have read shared memory. */
template <int N> static __device__ __forceinline__ void tile_stores_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

/* Before a tile is stored, or fetched anew, after threads wrote or read it: each of them. */
static __device__ __forceinline__ void tile_fence()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* A warp group gives registers back for others: N are left to each thread. */
template <int N> static __device__ __forceinline__ void registers_give()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* Waits until it can have N for each thread. */
template <int N> static __device__ __forceinline__ void registers_take()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

/* The 128 threads of a warp group wait for each other; id 1 to 15. */
static __device__ __forceinline__ void group_meet(int id)
{
    asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory");
}

/* All threads of all blocks of the cluster wait for each other. */
static __device__ __forceinline__ void cluster_meet()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n\t"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

/* Which block of its cluster this is. */
static __device__ __forceinline__ unsigned cluster_rank()
{
    unsigned r;

    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
#endif

#endif
