#include "gpu/glu.h"

#ifdef HAVE_HOPPER
#include "common/base/log.h"
#include "gpu/glu_finish.cuh"

#include <stdlib.h>

#ifdef HOPPER_CODE
/* acc (+)= one stage: rows of the tile's halves in acc[0] and acc[1]. */
template <int BACK, int N>
static __device__ __forceinline__ void glu_multiply(float (&acc)[2][N], uint32_t at, int keep)
{
    uint32_t b = at + GLU_A;

    products_begin();
#pragma unroll
    for (int k = 0; k < GLU_DEPTH / 16; k++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            uint64_t a = operand_rows(at + h * GLU_HALF + k * 32);

            if constexpr (BACK == 3)
                product_192(acc[h], a, operand_columns(b + k * 2048), keep || k);
            else if constexpr (BACK == 2)
                product_128<1>(acc[h], a, operand_columns(b + k * 2048), keep || k);
            else
                product_128<0>(acc[h], a, operand_rows(b + k * 32), keep || k);
        }
    products_commit();
}

/* All stages of tile n of this block, when the group's turn has come: a barrier tells one phase
 * from the next alone, so a group must not wait for stages while the other still waits for earlier
 * ones. */
template <int BACK, int N>
static __device__ __forceinline__ void glu_tile_product(float (&acc)[2][N],
                                                        const struct glu_args &p,
                                                        const struct glu_place<BACK> &place,
                                                        int group, int n)
{
    int s = n * p.depth % place.STAGES, parity = n * p.depth / place.STAGES & 1, before = s;
    int releases = threadIdx.x % 128 < GLU_CLUSTER; /* a product is one of all four warps */

    barrier_wait(place.turn(group), (n / 2 & 1) ^ (group == 0));
    for (int k = 0; k < p.depth; k++) {
        barrier_wait(place.full(s), parity);
        glu_multiply<BACK>(acc, place.stage(s), k);
        products_wait<1>();
        if (k > 0 && releases)
            barrier_arrive(place.empty(before), threadIdx.x % 128);
        before = s;
        if (++s == place.STAGES)
            s = 0, parity ^= 1;
    }
    if (threadIdx.x % 128 == 0)
        barrier_arrive_here(place.turn(1 - group));
    products_wait<0>();
    products_settled(acc[0]);
    products_settled(acc[1]);
    if (releases)
        barrier_arrive(place.empty(before), threadIdx.x % 128);
}

/* A group's tiles. */
template <int BACK>
static __device__ void glu_work(const struct glu_args &p, const struct glu_place<BACK> &place,
                                int group)
{
    constexpr int pieces = BACK ? BACK : 1; /* of half a tile */
    int first = blockIdx.x / GLU_CLUSTER, stride = gridDim.x / GLU_CLUSTER;
    float acc[2][glu_place<BACK>::SUMS];

    for (int n = group; first + n * stride < p.down * p.across; n += 2) {
        int row, col;

        glu_tile<BACK>(p, first + n * stride, &row, &col);
        glu_tile_product<BACK>(acc, p, place, group, n);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int m = (n / 2 * 2 + h) * pieces, y = row + h * 64;

            glu_finish<0>(acc[h], p, place, group, m, y, col);
            if constexpr (BACK >= 2)
                glu_finish<64>(acc[h], p, place, group, m + 1, y, col);
            if constexpr (BACK >= 3)
                glu_finish<128>(acc[h], p, place, group, m + 2, y, col);
        }
    }
}

/* One thread, before any other goes on. */
template <int BACK> static __device__ void glu_barriers(const struct glu_place<BACK> &place)
{
    for (int s = 0; s < place.STAGES; s++) {
        barrier_init(place.full(s), 1);
        barrier_init(place.empty(s), GLU_CLUSTER);
    }
    for (int s = 0; s < 2 * place.SLOTS; s++) {
        barrier_init(place.there(0, s), 1);
        barrier_init(place.free(0, s), 1);
    }
    barrier_init(place.turn(0), 1);
    barrier_init(place.turn(1), 1);
    barrier_init_done();
}
#endif

/* See above. Launched with GLU_THREADS threads, glu_place::BYTES of shared memory and clusters of
 * GLU_CLUSTER blocks, whole ones. Empty where HOPPER_CODE is not. */
template <int BACK>
__global__ void __launch_bounds__(GLU_THREADS, 1)
    glu_kernel(const __grid_constant__ struct glu_args p)
{
#ifdef HOPPER_CODE
    extern __shared__ char memory[];
    struct glu_place<BACK> place = {
        shared_address(memory) + 1023 & ~1023u
    };
    int group = threadIdx.x / 128, warp = threadIdx.x / 32, first = threadIdx.x % 32 == 0;

    if (threadIdx.x == 0)
        glu_barriers(place);
    cluster_meet();
    if (group == 2) {
        registers_give<40>();
        if (warp == 8 && first)
            glu_feed(p, place);
        if constexpr (BACK > 0)
            if (warp > 8 && warp < 11 && first)
                glu_feed_slots(p, place, warp - 9);
    } else {
        registers_take<232>();
        glu_work(p, place, group);
        if (!BACK && threadIdx.x % 128 == 0)
            tile_stores_read<0>();
    }
    __syncwarp();
    cluster_meet(); /* no block may be gone while another still sends to it */
#endif
}

/* Depth from which backward's wide tiles are the faster ones: they read less for each product, but
 * have fewer of the stages that hide the fetching (docs/performance.md). */
enum { WIDE_DEPTH = 1536 };

static_assert((int)GPU_GLU_ROWS == (int)GLU_ROWS, "less than a tile is not worth it");

struct gpu_glu {
    decltype(&cuTensorMapEncodeTiled) encode;
    unsigned blocks[4]; /* of glu_kernel<i> that the GPU holds at once */
};

template <int BACK> static cudaLaunchConfig_t config(cudaLaunchAttribute *cluster)
{
    cudaLaunchConfig_t c = {};

    cluster->id = cudaLaunchAttributeClusterDimension;
    cluster->val.clusterDim.x = GLU_CLUSTER;
    cluster->val.clusterDim.y = cluster->val.clusterDim.z = 1;
    c.gridDim = dim3(GLU_CLUSTER);
    c.blockDim = dim3(GLU_THREADS);
    c.dynamicSmemBytes = glu_place<BACK>::BYTES;
    c.attrs = cluster;
    c.numAttrs = 1;
    return c;
}

/* No blocks where it is refused, as in a part of a GPU that is too small for one. */
template <int BACK> static void prepare(struct gpu_glu *glu)
{
    cudaLaunchAttribute cluster = {};
    cudaLaunchConfig_t c = config<BACK>(&cluster);
    int clusters = 0;

    if (cudaFuncSetAttribute(glu_kernel<BACK>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             glu_place<BACK>::BYTES) != cudaSuccess ||
        cudaOccupancyMaxActiveClusters(&clusters, glu_kernel<BACK>, &c) != cudaSuccess) {
        cudaGetLastError();
        clusters = 0;
    }
    glu->blocks[BACK] = (unsigned)clusters * GLU_CLUSTER;
}

/* The driver's function that describes tensors to the hardware: the program is not linked to it.
 * NULL where the driver has none. */
static void find_encode(struct gpu_glu *glu)
{
    cudaDriverEntryPointQueryResult found;
    void *p = NULL;

    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &p, 12000, cudaEnableDefault,
                                         &found) != cudaSuccess)
        cudaGetLastError();
    else if (found == cudaDriverEntryPointSuccess)
        glu->encode = reinterpret_cast<decltype(glu->encode)>(p);
}

static bool usable(const struct gpu_glu *glu)
{
    return glu->encode && glu->blocks[0] && glu->blocks[2] && glu->blocks[3];
}

extern "C" enum status gpu_glu_open(struct gpu_glu **glu, const struct gpu_device *dev)
{
    int major, minor;

    *glu = NULL;
    CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, dev->ordinal));
    CUDA_TRY(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, dev->ordinal));
    if (major != 9 || minor != 0)
        return ST_OK;
    *glu = static_cast<struct gpu_glu *>(calloc(1, sizeof **glu));
    if (!*glu)
        return fail(ST_ENOMEM, "no host memory for the kernels of products with SwiGLU");
    find_encode(*glu);
    prepare<0>(*glu);
    prepare<2>(*glu);
    prepare<3>(*glu);
    if (!usable(*glu)) {
        log_info("GPU %d: SwiGLU is not done in its products: %s", dev->ordinal,
                 (*glu)->encode
                     ? "the GPU, or the part of it here, has no room for the kernel"
                     : "the driver cannot describe tensors to it (cuTensorMapEncodeTiled)");
        gpu_glu_close(*glu);
        *glu = NULL;
    }
    return ST_OK;
}

extern "C" void gpu_glu_close(struct gpu_glu *glu)
{
    free(glu);
}

/* t in boxes of cols by rows. */
static enum status describe(const struct gpu_glu *glu, CUtensorMap *map, const struct tensor *t,
                            unsigned cols, unsigned rows)
{
    cuuint64_t size[2] = {(cuuint64_t)t->cols, (cuuint64_t)t->rows};
    cuuint64_t stride[1] = {(cuuint64_t)t->stride * 2};
    cuuint32_t box[2] = {cols, rows}, step[2] = {1, 1};
    CUresult result =
        glu->encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, t->data, size, stride, box, step,
                    CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                    CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);

    if (result == CUDA_SUCCESS)
        return ST_OK;
    return fail(ST_EDEVICE, "cuTensorMapEncodeTiled of [%lld, %lld], stride %lld: error %d",
                (long long)t->rows, (long long)t->cols, (long long)t->stride, (int)result);
}

static int upwards(int64_t a, int64_t b)
{
    return (int)((a + b - 1) / b);
}

template <int BACK>
static enum status launch(struct gpu_device *dev, struct glu_args *p, const struct tensor *a,
                          int64_t cols)
{
    cudaLaunchAttribute cluster = {};
    cudaLaunchConfig_t c = config<BACK>(&cluster);
    unsigned need;

    p->depth = upwards(a->cols, GLU_DEPTH);
    p->down = upwards(upwards(a->rows, GLU_ROWS), GLU_CLUSTER);
    p->across = upwards(cols, glu_place<BACK>::COLS);
    need = (unsigned)(p->down * p->across) * GLU_CLUSTER;
    c.gridDim = dim3(need < dev->glu->blocks[BACK] ? need : dev->glu->blocks[BACK]);
    c.stream = dev->stream;
    CUDA_TRY(cudaLaunchKernelEx(&c, glu_kernel<BACK>, *p));
    return gpu_launched(dev, "gemm_swiglu");
}

extern "C" enum status gpu_glu_forward(struct gpu_device *dev, const struct gemm g[2],
                                       const struct tensor *f, enum swiglu_kind kind)
{
    struct glu_args p = {};

    p.kind = kind;
    TRY(describe(dev->glu, &p.a, &g[0].a, GLU_DEPTH, GLU_ROWS));
    TRY(describe(dev->glu, &p.b[0], &g[0].b, GLU_DEPTH, 64));
    TRY(describe(dev->glu, &p.b[1], &g[1].b, GLU_DEPTH, 64));
    TRY(describe(dev->glu, &p.g, &g[0].y, 64, 64));
    TRY(describe(dev->glu, &p.u, &g[1].y, 64, 64));
    TRY(describe(dev->glu, &p.out[0], f, 64, 64));
    return launch<0>(dev, &p, &g[0].a, f->cols);
}

extern "C" enum status gpu_glu_backward(struct gpu_device *dev, const struct gemm *g,
                                        const struct swiglu_grad *d, enum swiglu_kind kind)
{
    struct glu_args p = {};

    p.kind = kind;
    TRY(describe(dev->glu, &p.a, &g->a, GLU_DEPTH, GLU_ROWS));
    TRY(describe(dev->glu, &p.b[0], &g->b, 64, GLU_DEPTH / GLU_CLUSTER));
    TRY(describe(dev->glu, &p.g, &d->g, 64, 64));
    TRY(describe(dev->glu, &p.u, &d->u, 64, 64));
    TRY(describe(dev->glu, &p.out[0], &d->dg, 64, 64));
    TRY(describe(dev->glu, &p.out[1], &d->du, 64, 64));
    return g->a.cols < WIDE_DEPTH ? launch<2>(dev, &p, &g->a, d->dg.cols)
                                  : launch<3>(dev, &p, &g->a, d->dg.cols);
}
#else
/* Not called: gpu_glu_open leaves none behind. */
static enum status none(void)
{
    return fail(ST_EINTERNAL, "this build has no kernel of products with SwiGLU");
}

extern "C" enum status gpu_glu_open(struct gpu_glu **glu, const struct gpu_device *)
{
    *glu = NULL;
    return ST_OK;
}

extern "C" void gpu_glu_close(struct gpu_glu *)
{
}

extern "C" enum status gpu_glu_forward(struct gpu_device *, const struct gemm[2],
                                       const struct tensor *, enum swiglu_kind)
{
    return none();
}

extern "C" enum status gpu_glu_backward(struct gpu_device *, const struct gemm *,
                                        const struct swiglu_grad *, enum swiglu_kind)
{
    return none();
}
#endif
