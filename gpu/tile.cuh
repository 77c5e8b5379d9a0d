/* What the own attention kernels do with tiles in shared memory. A block of 8 warps has TILE rows
 * of its own and walks over tiles of the others. Warp w owns rows 4 w .. 4 w + 3; lane j stands for
 * row j of the other tile, or for columns j, j + 32, ... of a result.
 */
#ifndef GPU_TILE_CUH
#define GPU_TILE_CUH

#include "gpu/kernel.cuh"

enum { TILE = 32, OWN = 4, THREADS = 256 };

/* dst [TILE, HD] = rows row .. row + TILE of v, those from `valid` on and columns from head_dim on
 * as zeros; col: first column of the head. */
template <int HD, int V>
static __device__ void tile_load(float *dst, int stride, const struct view &v, int64_t row,
                                 int valid, int64_t col, int head_dim)
{
    for (int i = threadIdx.x; i < TILE * HD / V; i += THREADS) {
        int r = i / (HD / V), d = i % (HD / V) * V;
        float x[V] = {};

        if (r < valid && d < head_dim)
            load<FORM_MIXED, V>(x, v, (row + r) * v.stride + col + d);
#pragma unroll
        for (int j = 0; j < V; j++)
            dst[r * stride + d + j] = x[j];
    }
}

/* s[r] = own row r of this warp times the other tile's row of this lane. */
template <int HD>
static __device__ __forceinline__ void tile_dot(float (&s)[OWN], const float *own,
                                                const float *other)
{
    const float *mine = other + threadIdx.x % 32 * (HD + 1);
    const float *rows = own + threadIdx.x / 32 * OWN * HD;

#pragma unroll
    for (int r = 0; r < OWN; r++)
        s[r] = 0.0f;
#pragma unroll 4
    for (int d = 0; d < HD; d += 4)
#pragma unroll
        for (int r = 0; r < OWN; r++) {
            float4 x = *reinterpret_cast<const float4 *>(rows + r * HD + d);

            s[r] += x.x * mine[d];
            s[r] += x.y * mine[d + 1];
            s[r] += x.z * mine[d + 2];
            s[r] += x.w * mine[d + 3];
        }
}

/* acc[r][c] += sum over rows j of the other tile of w[r] of lane j times its column 32 c + lane. */
template <int HD>
static __device__ __forceinline__ void tile_add(float (&acc)[OWN][HD / 32], const float (&w)[OWN],
                                                const float *other)
{
    const float *column = other + threadIdx.x % 32;

#pragma unroll 4
    for (int j = 0; j < TILE; j++) {
        float f[OWN];

#pragma unroll
        for (int r = 0; r < OWN; r++)
            f[r] = __shfl_sync(0xffffffffu, w[r], j);
#pragma unroll
        for (int c = 0; c < HD / 32; c++) {
            float x = column[j * (HD + 1) + 32 * c];

#pragma unroll
            for (int r = 0; r < OWN; r++)
                acc[r][c] += f[r] * x;
        }
    }
}

/* Rows first + OWN * warp + r of v = acc, as far as they are below `rows`. */
template <int HD>
static __device__ void tile_store(const struct view &v, int64_t base, int first, int rows,
                                  int64_t col, int head_dim, const float (&acc)[OWN][HD / 32])
{
#pragma unroll
    for (int r = 0; r < OWN; r++) {
        int row = first + threadIdx.x / 32 * OWN + r;

#pragma unroll
        for (int c = 0; c < HD / 32; c++) {
            int d = 32 * c + threadIdx.x % 32;
            float x[1] = {acc[r][c]};

            if (row < rows && d < head_dim)
                store<FORM_MIXED, 1>(v, (base + row) * v.stride + col + d, x);
        }
    }
}

/* Largest over the warp, the same in every lane. */
static __device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, step));
    return x;
}

/* Running softmax of a row: largest score, sum of exponentials. */
struct softmax {
    float most, sum;
};

/* s: a tile's scores become their weights; acc is scaled to the new largest score. A row that has
 * seen no key yet, as its document begins in a later tile, stays at sum 0. */
template <int HD>
static __device__ __forceinline__ void softmax_step(struct softmax (&m)[OWN], float (&s)[OWN],
                                                    float (&acc)[OWN][HD / 32])
{
#pragma unroll
    for (int r = 0; r < OWN; r++) {
        float most = fmaxf(m[r].most, warp_max(s[r])), base = most == -INFINITY ? 0.0f : most;
        float shrink = expf(m[r].most - base);

        s[r] = expf(s[r] - base);
        m[r].sum = m[r].sum * shrink + warp_sum(s[r]);
        m[r].most = most;
#pragma unroll
        for (int c = 0; c < HD / 32; c++)
            acc[r][c] *= shrink;
    }
}

#endif
