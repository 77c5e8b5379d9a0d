/* What kernels share: views of tensors, wide loads and stores, reductions in a fixed order.
 *
 * A memory-bound kernel is compiled in four forms: all tensors bf16, all f32, or mixed, eight
 * elements at a time (16-byte accesses); and mixed, one element at a time, for odd sizes, strides
 * and addresses. All forms compute in f32 and add in an order that depends on shapes alone.
 */
#ifndef GPU_KERNEL_CUH
#define GPU_KERNEL_CUH

#include "gpu/device.h"

#include <cuda_bf16.h>

/* A tensor as kernels see it. Without padding: lists of tensors are compared byte by byte. */
struct view {
    void *data;
    int64_t stride;
    int bf16, spare;
};

/* A column of f32 statistics. */
struct column {
    float *data;
    int64_t stride;
};

enum form { FORM_F32, FORM_BF16, FORM_MIXED };

/* Whether v holds bf16: known when compiled, unless types are mixed. */
template <int FORM> static __device__ __forceinline__ bool view_is_bf16(const struct view &v)
{
    return FORM == FORM_MIXED ? v.bf16 != 0 : FORM == FORM_BF16;
}

/* The lower of two bf16 in a word, and the upper; exact. */
static __device__ __forceinline__ float bf16_low(unsigned w)
{
    return __uint_as_float(w << 16);
}

/* See bf16_low. */
static __device__ __forceinline__ float bf16_high(unsigned w)
{
    return __uint_as_float(w & 0xffff0000u);
}

/* Two floats as bf16 in a word, each rounded to nearest even. */
static __device__ __forceinline__ unsigned bf16_pack(float low, float high)
{
    __nv_bfloat162 p = __floats2bfloat162_rn(low, high);

    return *reinterpret_cast<unsigned *>(&p);
}

/* f[0..V) = elements i .. i + V of v. */
template <int FORM, int V>
static __device__ __forceinline__ void load(float (&f)[V], const struct view &v, int64_t i)
{
    static_assert(V == 1 || V == 4 || V == 8, "one element or a piece of 8 or 16 bytes of bf16");
    if constexpr (V == 1) {
        f[0] = view_is_bf16<FORM>(v)
                   ? __bfloat162float(static_cast<const __nv_bfloat16 *>(v.data)[i])
                   : static_cast<const float *>(v.data)[i];
    } else if constexpr (V == 4) {
        if (view_is_bf16<FORM>(v)) {
            uint2 w =
                *reinterpret_cast<const uint2 *>(static_cast<const __nv_bfloat16 *>(v.data) + i);

            f[0] = bf16_low(w.x), f[1] = bf16_high(w.x), f[2] = bf16_low(w.y);
            f[3] = bf16_high(w.y);
        } else {
            float4 a = *reinterpret_cast<const float4 *>(static_cast<const float *>(v.data) + i);

            f[0] = a.x, f[1] = a.y, f[2] = a.z, f[3] = a.w;
        }
    } else if (view_is_bf16<FORM>(v)) {
        uint4 w = *reinterpret_cast<const uint4 *>(static_cast<const __nv_bfloat16 *>(v.data) + i);

        f[0] = bf16_low(w.x), f[1] = bf16_high(w.x), f[2] = bf16_low(w.y), f[3] = bf16_high(w.y);
        f[4] = bf16_low(w.z), f[5] = bf16_high(w.z), f[6] = bf16_low(w.w), f[7] = bf16_high(w.w);
    } else {
        const float4 *p = reinterpret_cast<const float4 *>(static_cast<const float *>(v.data) + i);
        float4 a = p[0], b = p[1];

        f[0] = a.x, f[1] = a.y, f[2] = a.z, f[3] = a.w;
        f[4] = b.x, f[5] = b.y, f[6] = b.z, f[7] = b.w;
    }
}

/* Elements i .. i + V of v = f, rounded to nearest even where v is bf16. */
template <int FORM, int V>
static __device__ __forceinline__ void store(const struct view &v, int64_t i, const float (&f)[V])
{
    if constexpr (V == 1) {
        if (view_is_bf16<FORM>(v))
            static_cast<__nv_bfloat16 *>(v.data)[i] = __float2bfloat16_rn(f[0]);
        else
            static_cast<float *>(v.data)[i] = f[0];
    } else if constexpr (V == 4) {
        if (view_is_bf16<FORM>(v))
            *reinterpret_cast<uint2 *>(static_cast<__nv_bfloat16 *>(v.data) + i) =
                make_uint2(bf16_pack(f[0], f[1]), bf16_pack(f[2], f[3]));
        else
            *reinterpret_cast<float4 *>(static_cast<float *>(v.data) + i) =
                make_float4(f[0], f[1], f[2], f[3]);
    } else if (view_is_bf16<FORM>(v)) {
        *reinterpret_cast<uint4 *>(static_cast<__nv_bfloat16 *>(v.data) + i) =
            make_uint4(bf16_pack(f[0], f[1]), bf16_pack(f[2], f[3]), bf16_pack(f[4], f[5]),
                       bf16_pack(f[6], f[7]));
    } else {
        float4 *p = reinterpret_cast<float4 *>(static_cast<float *>(v.data) + i);

        p[0] = make_float4(f[0], f[1], f[2], f[3]);
        p[1] = make_float4(f[4], f[5], f[6], f[7]);
    }
}

/* Eight elements as they were fetched, not yet floats where they are bf16: half the registers while
 * they wait. */
template <int FORM> struct raw {
    float f[8];
};
template <> struct raw<FORM_BF16> {
    uint4 w;
};

/* r = elements i .. i + 8 of v. */
template <int FORM>
static __device__ __forceinline__ void raw_load(struct raw<FORM> *r, const struct view &v,
                                                int64_t i)
{
    if constexpr (FORM == FORM_BF16)
        r->w = *reinterpret_cast<const uint4 *>(static_cast<const __nv_bfloat16 *>(v.data) + i);
    else
        load<FORM, 8>(r->f, v, i);
}

/* Its element i, known when compiled. */
template <int FORM> static __device__ __forceinline__ float raw_at(const struct raw<FORM> &r, int i)
{
    if constexpr (FORM == FORM_BF16) {
        unsigned w = i / 2 == 0 ? r.w.x : i / 2 == 1 ? r.w.y : i / 2 == 2 ? r.w.z : r.w.w;

        return i % 2 ? bf16_high(w) : bf16_low(w);
    } else {
        return r.f[i];
    }
}

/* f as v would hold it. */
template <int FORM> static __device__ __forceinline__ float rounded(const struct view &v, float f)
{
    return view_is_bf16<FORM>(v) ? __bfloat162float(__float2bfloat16_rn(f)) : f;
}

/* Sum over the warp, the same bits in every lane. */
template <class T> static __device__ __forceinline__ T warp_sum(T x)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

/* Sum over the block, the same bits in every thread. All threads call it; whole warps only. */
template <class T> static __device__ __forceinline__ T block_sum(T x)
{
    __shared__ T part[32];
    int lane = threadIdx.x % 32, warps = blockDim.x / 32;

    x = warp_sum(x);
    __syncthreads(); /* an earlier sum may still be read */
    if (lane == 0)
        part[threadIdx.x / 32] = x;
    __syncthreads();
    return warp_sum(lane < warps ? part[lane] : T(0));
}

/* 1 / (1 + e^-x). coarse: where the result ends in bf16, a few units in float's last place do not
 * matter, and an exact division costs more than the memory that it waits for. */
static __device__ __forceinline__ float sigmoid(float x, bool coarse)
{
    return coarse ? __fdividef(1.0f, 1.0f + __expf(-x)) : 1.0f / (1.0f + expf(-x));
}

/* d/dx of x sigmoid(x), s = sigmoid(x). */
static __device__ __forceinline__ float silu_slope(float x, float s)
{
    return s * (1.0f + x * (1.0f - s));
}

/* 1 / rms of a row whose squares sum to `sum`. */
static __device__ __forceinline__ float inverse_rms(float sum, struct norm norm)
{
    return 1.0f / sqrtf(sum / (float)norm.width + (float)norm.eps);
}

/* A kernel that was launched by launch_behind (fit.cuh) may start from here on. */
static __device__ __forceinline__ void next_kernel_may_start()
{
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/* Waits, in a kernel that was launched by launch_behind, until the one before it is through and
 * what it wrote is there. */
static __device__ __forceinline__ void await_kernel_before()
{
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}

/* Row and first column of this thread in an elementwise launch (grid_of in fit.cuh). */
template <int V>
static __device__ __forceinline__ void grid_place(int64_t *row, int64_t *col, unsigned pieces)
{
    unsigned r = blockIdx.x / pieces;

    *row = r;
    *col = ((int64_t)(blockIdx.x - r * pieces) * blockDim.x + threadIdx.x) * V;
}

#endif
