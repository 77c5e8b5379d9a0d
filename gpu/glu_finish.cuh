/* The end of a tile of glu.cu's kernel: its sums, in registers, meet SwiGLU in shared memory on
 * their way out.
 */
#ifndef GPU_GLU_FINISH_CUH
#define GPU_GLU_FINISH_CUH

#include "gpu/glu.cuh"
#include "gpu/wgmma.cuh"

#ifdef HOPPER_CODE
/* f of g and u, each a word of two bf16. */
template <int KIND>
static __device__ __forceinline__ uint32_t glu_forward_pair(uint32_t g, uint32_t u)
{
    float g0 = bf16_low(g), g1 = bf16_high(g);

    if (KIND == SWIGLU_SILU)
        g0 *= sigmoid(g0, true), g1 *= sigmoid(g1, true);
    return bf16_pack(g0 * bf16_low(u), g1 * bf16_high(u));
}

/* g and u become dg and du. */
template <int KIND>
static __device__ __forceinline__ void glu_backward_pair(float d0, float d1, uint32_t *g,
                                                         uint32_t *u)
{
    float g0 = bf16_low(*g), g1 = bf16_high(*g), u0 = bf16_low(*u), u1 = bf16_high(*u);

    if (KIND == SWIGLU_SILU) {
        float s0 = sigmoid(g0, true), s1 = sigmoid(g1, true);

        *g = bf16_pack(d0 * u0 * silu_slope(g0, s0), d1 * u1 * silu_slope(g1, s1));
        *u = bf16_pack(d0 * g0 * s0, d1 * g1 * s1);
    } else {
        *g = bf16_pack(d0 * u0, d1 * u1);
        *u = bf16_pack(d0 * g0, d1 * g1);
    }
}

/* Half a tile of forward into a slot: g, u, f behind each other. */
template <int KIND>
static __device__ __forceinline__ void glu_half_forward(const float (&acc)[64], uint32_t at)
{
    int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16;

#pragma unroll
    for (int j = 0; j < 8; j += 2) {
        uint32_t to = matrices_at(at, row, j, lane), g[4], u[4], f[4];

#pragma unroll
        for (int i = 0; i < 4; i++) {
            g[i] = bf16_pack(acc[4 * j + 2 * i], acc[4 * j + 2 * i + 1]);
            u[i] = bf16_pack(acc[32 + 4 * j + 2 * i], acc[32 + 4 * j + 2 * i + 1]);
            f[i] = glu_forward_pair<KIND>(g[i], u[i]);
        }
        matrices_store(to, g);
        matrices_store(to + GLU_HALF, u);
        matrices_store(to + 2 * GLU_HALF, f);
    }
}

/* [64, 64] of a tile of backward, columns from C on, in its slot: g, u become dg, du. */
template <int KIND, int C, int N>
static __device__ __forceinline__ void glu_piece_backward(const float (&acc)[N], uint32_t at)
{
    int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16;

#pragma unroll
    for (int j = 0; j < 8; j += 2) {
        uint32_t to = matrices_at(at, row, j, lane), g[4], u[4];

        matrices_load(g, to);
        matrices_load(u, to + GLU_HALF);
#pragma unroll
        for (int i = 0; i < 4; i++) { /* df as its own tensor would hold it */
            uint32_t d = bf16_pack(acc[C / 2 + 4 * j + 2 * i], acc[C / 2 + 4 * j + 2 * i + 1]);

            glu_backward_pair<KIND>(bf16_low(d), bf16_high(d), &g[i], &u[i]);
        }
        matrices_store(to, g);
        matrices_store(to + GLU_HALF, u);
    }
}

/* One thread of a group: the half tile in slot `at` goes to memory. */
template <int BACK>
static __device__ __forceinline__ void glu_store(const struct glu_args &p, uint32_t at, int row,
                                                 int col)
{
    if (BACK) {
        tile_store(&p.out[0], at, col, row);
        tile_store(&p.out[1], at + GLU_HALF, col, row);
    } else {
        tile_store(&p.g, at, col, row);
        tile_store(&p.u, at + GLU_HALF, col, row);
        tile_store(&p.out[0], at + 2 * GLU_HALF, col, row);
    }
    tile_stores_commit();
}

/* Rows h * 64 on of a tile and its columns from C on, piece n of this group, through a slot. */
template <int C, int BACK, int N>
static __device__ __forceinline__ void glu_finish(const float (&acc)[N], const struct glu_args &p,
                                                  const struct glu_place<BACK> &place, int group,
                                                  int n, int row, int col)
{
    int s = n % place.SLOTS, leads = threadIdx.x % 128 == 0;
    uint32_t at = place.slot(group, s);

    if constexpr (BACK > 0) {
        barrier_wait(place.there(group, s), n / place.SLOTS & 1);
        if (p.kind == SWIGLU_SILU)
            glu_piece_backward<SWIGLU_SILU, C>(acc, at);
        else
            glu_piece_backward<SWIGLU_PRODUCT, C>(acc, at);
    } else {
        if (leads)
            tile_stores_read<glu_place<BACK>::SLOTS - 1>();
        group_meet(1 + group);
        if (p.kind == SWIGLU_SILU)
            glu_half_forward<SWIGLU_SILU>(acc, at);
        else
            glu_half_forward<SWIGLU_PRODUCT>(acc, at);
    }
    tile_fence();
    group_meet(1 + group);
    if (!leads)
        return;
    glu_store<BACK>(p, at, row, col + C);
    if (BACK) {
        tile_stores_read<0>();
        barrier_arrive_here(place.free(group, s));
    }
}
#endif

#endif
