/* Products of tiles in shared memory (hopper.cuh) by a warp group, and their results between
 * registers and tiles. Source: PTX ISA, wgmma.mma_async, ldmatrix and stmatrix.
 */
#ifndef GPU_WGMMA_CUH
#define GPU_WGMMA_CUH

#include "gpu/hopper.cuh"

#ifdef HOPPER_CODE
/* Where lane `lane` of a warp points for four 8 x 8 matrices: rows `row` to row + 15, columns 8 p
 * to 8 p + 15 of a tile. */
static __device__ __forceinline__ uint32_t matrices_at(uint32_t tile, int row, int p, int lane)
{
    int i = row + lane % 16, piece = p + lane / 16;

    return tile + (uint32_t)(i * 128 + ((piece ^ (i % 8)) * 16));
}

/* Four matrices, as products leave them in registers (row, row + 8; then eight columns on). */
static __device__ __forceinline__ void matrices_load(uint32_t (&r)[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* See matrices_load. */
static __device__ __forceinline__ void matrices_store(uint32_t at, const uint32_t (&r)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

/* Describes an operand whose summed index runs along the rows of its tile (K innermost): groups of
 * eight rows are 1024 bytes apart. 16 further values of K: + 32 bytes. */
static __device__ __forceinline__ uint64_t operand_rows(uint32_t tile)
{
    return (uint64_t)(tile >> 4 & 0x3fff) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

/* Describes an operand whose summed index runs down its tiles [K, 64] of 64 rows: the next 64
 * columns are a tile on. 16 further values of K: + 2048 bytes. */
static __device__ __forceinline__ uint64_t operand_columns(uint32_t tile)
{
    return (uint64_t)(tile >> 4 & 0x3fff) | (uint64_t)(8192 >> 4) << 16 |
           (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

/* Before the first of a thread's products, which may read what was written until here. */
static __device__ __forceinline__ void products_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Closes the group of products begun since the last one. */
static __device__ __forceinline__ void products_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* d is read from here on: nothing else tells the compiler that products write it later than the
 * instruction that asked for them. */
template <int N> static __device__ __forceinline__ void products_settled(float (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
}

/* Waits until at most N committed groups of products are still running. */
template <int N> static __device__ __forceinline__ void products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

#define ACC4(d, i)  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define ACC16(d, i) ACC4(d, i), ACC4(d, i + 4), ACC4(d, i + 8), ACC4(d, i + 12)
#define ACC32(d, i) ACC16(d, i), ACC16(d, i + 16)

/* d [64, 128] (+)= a [64, 16] b [16, 128]; keep 0: what d held does not count. TURNED: b is
 * described by operand_columns. */
template <int TURNED>
static __device__ __forceinline__ void product_128(float (&d)[64], uint64_t a, uint64_t b, int keep)
{
    asm volatile("{\n\t.reg .pred keep;\n\t"
                 "setp.ne.b32 keep, %66, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
                 "%64, %65, keep, 1, 1, 0, %67;\n\t}"
                 : ACC32(d, 0), ACC32(d, 32)
                 : "l"(a), "l"(b), "r"(keep), "n"(TURNED));
}

/* The same with d [64, 192] and b [16, 192], described by operand_columns. */
static __device__ __forceinline__ void product_192(float (&d)[96], uint64_t a, uint64_t b, int keep)
{
    asm volatile("{\n\t.reg .pred keep;\n\t"
                 "setp.ne.b32 keep, %98, 0;\n\t"
                 "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
                 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
                 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95}, "
                 "%96, %97, keep, 1, 1, 0, 1;\n\t}"
                 : ACC32(d, 0), ACC32(d, 32), ACC32(d, 64)
                 : "l"(a), "l"(b), "r"(keep));
}

#undef ACC4
#undef ACC16
#undef ACC32
#endif

#endif
