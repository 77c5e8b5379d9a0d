/* Rows on their way to the backward of a norm, in shared memory. */
#ifndef GPU_RMS_RING_CUH
#define GPU_RMS_RING_CUH

#include "gpu/kernel.cuh"

#include <cuda_pipeline_primitives.h>

/* What the kernels of rmsnorm_backward.cu are given. */
struct rms_back_args {
    struct view dx, t, x, gain;
    struct column coef; /* alpha and beta of each row; or, with data NULL, from s */
    struct column s;
    struct norm norm;
    int64_t rows, cols, tile, per;
    float *partial; /* [parts, cols] */
};

/* Rows under way in rms_backward_piece_kernel, whatever a block is doing: each takes the bytes of a
 * thread's eight columns of t, x and dx. Both forms come to RMS_STAGED bytes of shared memory a
 * column. */
enum { RMS_STAGES = 4, RMS_STAGES_WIDE = 2, RMS_STAGED = 24 };

/* Fetches eight columns of v into a thread's own slot, past the registers. */
template <int FORM>
static __device__ __forceinline__ void stage_fetch(char *slot, const struct view &v, int64_t i)
{
    bool bf16 = view_is_bf16<FORM>(v);
    const char *from = static_cast<const char *>(v.data) + i * (bf16 ? 2 : 4);

    __pipeline_memcpy_async(slot, from, 16);
    if (!bf16)
        __pipeline_memcpy_async(slot + 16, from + 16, 16);
}

/* A thread's part of a ring of STAGES rows in shared memory: a slot for each of t, x and dx. It
 * fetches and reads its own slots alone, so that it needs no barrier to do so. */
template <int FORM> struct ring {
    static constexpr unsigned STAGES = FORM == FORM_BF16 ? RMS_STAGES : RMS_STAGES_WIDE;
    static constexpr unsigned SIZE = FORM == FORM_BF16 ? 16 : 32; /* of a slot */
    char *own;
    unsigned slot, stage;      /* bytes from one slot to the next, from one stage to the next */
    unsigned put, got;         /* of the stages that are fetched and read next */
    int64_t at_t, at_x, at_dx; /* of the row that is fetched next */

    __device__ __forceinline__ void turn(unsigned *offset) const
    {
        *offset += stage;
        if (*offset == STAGES * stage)
            *offset = 0;
    }

    /* Puts the next row on its way where it is live, and always closes a group: groups count. */
    __device__ __forceinline__ void fetch(const struct rms_back_args &a, bool live)
    {
        if (live) {
            stage_fetch<FORM>(own + put, a.t, at_t);
            stage_fetch<FORM>(own + put + slot, a.x, at_x);
            stage_fetch<FORM>(own + put + 2 * slot, a.dx, at_dx);
            at_t += a.t.stride, at_x += a.x.stride, at_dx += a.dx.stride;
            turn(&put);
        }
        __pipeline_commit();
    }

    /* Operand 0 (t), 1 (x) or 2 (dx) of the row at hand. */
    __device__ __forceinline__ void read(float (&f)[8], const struct view &v, int operand) const
    {
        load<FORM, 8>(f, view{own + got + operand * slot, 0, v.bf16, 0}, 0);
    }
};

/* At column col of row `row`, nothing fetched yet. */
template <int FORM>
static __device__ __forceinline__ void ring_start(struct ring<FORM> *r, float4 *memory,
                                                  const struct rms_back_args &a, int64_t row,
                                                  int64_t col)
{
    r->own = reinterpret_cast<char *>(memory) + threadIdx.x * r->SIZE;
    r->slot = blockDim.x * r->SIZE;
    r->stage = 3 * r->slot;
    r->put = r->got = 0;
    r->at_t = row * a.t.stride + col;
    r->at_x = row * a.x.stride + col;
    r->at_dx = row * a.dx.stride + col;
}

#endif
