/* What kernels share: views of tensors, wide loads and stores, reductions in a fixed order, and
 * the choice of a kernel's form on the host.
 *
 * A memory-bound kernel is compiled in four forms: all tensors bf16, all f32, or mixed, eight
 * elements at a time (16-byte accesses); and mixed, one element at a time, for odd sizes, strides
 * and addresses. All forms compute in f32 and add in an order that depends on shapes alone.
 */
#ifndef GPU_KERNEL_CUH
#define GPU_KERNEL_CUH

#include "gpu/device.h"

#include <cuda_bf16.h>
#include <type_traits>

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

template <int FORM> static __device__ __forceinline__ bool view_is_bf16(const struct view &v)
{
    return FORM == FORM_MIXED ? v.bf16 != 0 : FORM == FORM_BF16;
}

static __device__ __forceinline__ float bf16_low(unsigned w)
{
    return __uint_as_float(w << 16);
}

static __device__ __forceinline__ float bf16_high(unsigned w)
{
    return __uint_as_float(w & 0xffff0000u);
}

static __device__ __forceinline__ unsigned bf16_pack(float low, float high)
{
    __nv_bfloat162 p = __floats2bfloat162_rn(low, high);

    return *reinterpret_cast<unsigned *>(&p);
}

/* f[0..V) = elements i .. i + V of v. */
template <int FORM, int V>
static __device__ __forceinline__ void load(float (&f)[V], const struct view &v, int64_t i)
{
    static_assert(V == 1 || V == 8, "one element or a 16-byte piece of bf16");
    if constexpr (V == 1) {
        f[0] = view_is_bf16<FORM>(v)
                   ? __bfloat162float(static_cast<const __nv_bfloat16 *>(v.data)[i])
                   : static_cast<const float *>(v.data)[i];
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

static __device__ __forceinline__ float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* d/dx of x sigmoid(x), s = sigmoid(x). */
static __device__ __forceinline__ float silu_slope(float x, float s)
{
    return s * (1.0f + x * (1.0f - s));
}

static __device__ __forceinline__ float inverse_rms(float sum, struct norm norm)
{
    return 1.0f / sqrtf(sum / (float)norm.width + (float)norm.eps);
}

/* ---- on the host ---- */

/* What a launch has learned of its tensors. */
struct fit {
    int bf16, f32, others; /* how many of each type */
    bool wide;             /* eight elements at a time will do */
    bool flat;             /* every row follows the one before */
    int64_t rows, cols;
    enum dtype odd; /* the last type that is neither */
};

static inline struct fit fit_start(int64_t rows, int64_t cols)
{
    return fit{0, 0, 0, cols % 8 == 0, true, rows, cols, DT_F32};
}

/* Adds a tensor of the op's shape (or one row of it, as a gain: broadcast). */
static inline struct view fit_view(struct fit *f, const struct tensor *t, bool broadcast = false)
{
    f->bf16 += t->dtype == DT_BF16;
    f->f32 += t->dtype == DT_F32;
    if (t->dtype != DT_BF16 && t->dtype != DT_F32) {
        f->others++;
        f->odd = t->dtype;
    }
    f->wide = f->wide && reinterpret_cast<uintptr_t>(t->data) % 16 == 0 &&
              (t->rows <= 1 || t->stride % 8 == 0);
    f->flat = f->flat && !broadcast && tensor_packed(t);
    return view{t->data, t->stride, t->dtype == DT_BF16, 0};
}

/* The f32 column of a statistic; other types are counted as odd. NULL gives an empty one. */
static inline struct column fit_column(struct fit *f, const struct tensor *t)
{
    if (!t)
        return column{nullptr, 0};
    if (t->dtype != DT_F32) {
        f->others++;
        f->odd = t->dtype;
    }
    return column{static_cast<float *>(t->data), t->stride};
}

static inline enum status fit_check(const struct fit *f, const char *op)
{
    if (!f->others)
        return ST_OK;
    return fail(ST_EDTYPE,
                "%s: a tensor of type %s; the gpu backend takes bf16 and f32 (precision "
                "fp64: run.backend=ref)",
                op, dtype_name(f->odd));
}

/* Treats everything as one long row when rows follow each other. */
static inline void fit_flatten(struct fit *f)
{
    if (!f->flat)
        return;
    f->cols *= f->rows;
    f->rows = 1;
}

/* The f32 column t of a statistic; an empty one for NULL. */
static inline enum status fit_column_alone(struct column *c, const struct tensor *t)
{
    struct fit f = fit_start(1, 1);

    *c = fit_column(&f, t);
    return fit_check(&f, "statistic of a norm");
}

template <int N> using constant = std::integral_constant<int, N>;

/* Calls launch(constant<FORM>, constant<V>) with the form that fits. */
template <class L> static inline void fit_launch(const struct fit *f, L &&launch)
{
    if (!f->wide)
        launch(constant<FORM_MIXED>(), constant<1>());
    else if (!f->f32)
        launch(constant<FORM_BF16>(), constant<8>());
    else if (!f->bf16)
        launch(constant<FORM_F32>(), constant<8>());
    else
        launch(constant<FORM_MIXED>(), constant<8>());
}

/* Threads for a row of cols elements, v at a time: whole warps, at most `most`. */
static inline unsigned row_threads(int64_t cols, int v, int most)
{
    int64_t want = (cols / v + 31) / 32 * 32;

    return (unsigned)(want < 32 ? 32 : want > most ? most : want);
}

/* Elementwise launches: a block does one piece of one row. */
struct grid {
    unsigned blocks, threads;
    unsigned pieces; /* of a row */
};

static inline struct grid grid_of(const struct fit *f, int v)
{
    unsigned threads = row_threads(f->cols, v, 256);
    int64_t span = (int64_t)threads * v, pieces = (f->cols + span - 1) / span;

    return grid{(unsigned)(f->rows * pieces), threads, (unsigned)pieces};
}

/* Row and first column of this thread in such a launch. */
template <int V>
static __device__ __forceinline__ void grid_place(int64_t *row, int64_t *col, unsigned pieces)
{
    unsigned r = blockIdx.x / pieces;

    *row = r;
    *col = ((int64_t)(blockIdx.x - r * pieces) * blockDim.x + threadIdx.x) * V;
}

#endif
