#include "gpu/fit.cuh"
#include "gpu/gpu.h"
#include "gpu/items.h"

/* Elements that one block updates: 256 threads, 8 at a time, 16 times: finding the tensor costs a
 * few reads, one after the other. */
enum { ADAMW_CHUNK = 32768 };

/* One tensor. master.data NULL: w is the only copy. */
struct adamw_desc {
    struct view w, master, m, v, g;
    int64_t cols, count; /* one row where all rows follow each other */
    int64_t first;       /* of the blocks of this tensor */
    int32_t decay, wide;
};

struct adamw_scalars {
    float keep, beta1, rest1, beta2, rest2, eps; /* keep: 1 - lr wd */
    float rate, unbias2;                         /* lr / bias1, 1 / bias2 */
};

/* To a unit or two in float's last place, as the division below: exact ones would take longer than
 * the memory. */
static __device__ __forceinline__ float root(float x)
{
    float y;

    asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

static __device__ __forceinline__ float adamw_one(float w, float *m, float *v, float g,
                                                  const struct adamw_scalars &s, float keep)
{
    *m = s.beta1 * *m + s.rest1 * g;
    *v = s.beta2 * *v + s.rest2 * g * g;
    return w * keep - __fdividef(s.rate * *m, root(*v * s.unbias2) + s.eps);
}

/* Elements e .. e + V of tensor d. */
template <int V>
static __device__ void adamw_piece(const struct adamw_desc &d, int64_t e,
                                   const struct adamw_scalars &s, float scale)
{
    int64_t row = d.cols < d.count ? e / d.cols : 0, col = e - row * d.cols;
    struct view from = {d.master.data ? d.master.data : d.w.data,
                        d.master.data ? d.master.stride : d.w.stride,
                        d.master.data ? d.master.bf16 : d.w.bf16, 0};
    float w[V], m[V], v[V], g[V], keep = d.decay ? s.keep : 1.0f;

    load<FORM_MIXED, V>(g, d.g, row * d.g.stride + col);
    load<FORM_MIXED, V>(m, d.m, row * d.m.stride + col);
    load<FORM_MIXED, V>(v, d.v, row * d.v.stride + col);
    load<FORM_MIXED, V>(w, from, row * from.stride + col);
#pragma unroll
    for (int i = 0; i < V; i++)
        w[i] = adamw_one(w[i], &m[i], &v[i], g[i] * scale, s, keep);
    store<FORM_MIXED, V>(d.m, row * d.m.stride + col, m);
    store<FORM_MIXED, V>(d.v, row * d.v.stride + col, v);
    if (d.master.data)
        store<FORM_MIXED, V>(d.master, row * d.master.stride + col, w);
    store<FORM_MIXED, V>(d.w, row * d.w.stride + col, w);
}

/* The tensor that block b belongs to: the last whose first block is at most b. */
static __device__ int desc_of(const struct adamw_desc *desc, int n, int64_t b)
{
    int low = 0, high = n - 1;

    while (low < high) {
        int mid = (low + high + 1) / 2;

        if (desc[mid].first <= b)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

__global__ void adamw_kernel(const struct adamw_desc *desc, int n, struct adamw_scalars s,
                             const double *scale_at)
{
    const struct adamw_desc d = desc[desc_of(desc, n, blockIdx.x)];
    int64_t begin = (blockIdx.x - d.first) * ADAMW_CHUNK;
    int64_t end = min(begin + ADAMW_CHUNK, d.count);
    double scale = *scale_at;

    if (scale == 0.0)
        return;
    if (d.wide)
        for (int64_t e = begin + threadIdx.x * 8; e < end; e += blockDim.x * 8)
            adamw_piece<8>(d, e, s, (float)scale);
    else
        for (int64_t e = begin + threadIdx.x; e < end; e += blockDim.x)
            adamw_piece<1>(d, e, s, (float)scale);
}

static enum status adamw_describe(struct adamw_desc *d, const struct adamw_item *item,
                                  int64_t *blocks)
{
    struct fit f = fit_start(item->w.rows, item->w.cols);

    d->w = fit_view(&f, &item->w);
    if (item->master.data)
        d->master = fit_view(&f, &item->master);
    d->m = fit_view(&f, &item->m);
    d->v = fit_view(&f, &item->v);
    d->g = fit_view(&f, &item->g);
    TRY(fit_check(&f, "adamw"));
    d->count = tensor_count(&item->w);
    d->cols = f.flat ? d->count : item->w.cols;
    d->wide = f.wide;
    d->decay = item->decay;
    d->first = *blocks;
    *blocks += (d->count + ADAMW_CHUNK - 1) / ADAMW_CHUNK;
    return ST_OK;
}

extern "C" enum status gpu_adamw(struct device *dev, const struct adamw_item *item, int n,
                                 const struct adamw_step *step, const struct tensor *norm_scale)
{
    struct gpu_device *gpu = gpu_of(dev);
    struct adamw_scalars s;
    int64_t blocks = 0;
    const void *on_device;
    void *p;

    if (norm_scale->dtype != DT_F64)
        return fail(ST_EDTYPE, "adamw: norm and scale in %s; they are f64",
                    dtype_name(norm_scale->dtype));
    if (n == 0)
        return ST_OK;
    TRY(gpu_items_build(gpu->items, &p, (size_t)n * sizeof(struct adamw_desc)));
    for (int i = 0; i < n; i++)
        TRY(adamw_describe(static_cast<struct adamw_desc *>(p) + i, &item[i], &blocks));
    if (blocks == 0)
        return ST_OK;
    TRY(gpu_items_send(gpu, &on_device, (size_t)n * sizeof(struct adamw_desc)));
    s.keep = (float)(1.0 - step->lr * step->weight_decay);
    s.rate = (float)(step->lr / step->bias1);
    s.beta1 = (float)step->beta1;
    s.rest1 = (float)(1.0 - step->beta1);
    s.beta2 = (float)step->beta2;
    s.rest2 = (float)(1.0 - step->beta2);
    s.unbias2 = (float)(1.0 / step->bias2);
    s.eps = (float)step->eps;
    adamw_kernel<<<(unsigned)blocks, 256, 0, gpu->stream>>>(
        static_cast<const struct adamw_desc *>(on_device), n, s,
        static_cast<const double *>(norm_scale->data) + norm_scale->stride);
    return gpu_launched(gpu_of(dev), "adamw");
}
