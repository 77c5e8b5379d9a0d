#include "gpu/reduce.h"

#include "gpu/fit.cuh"
#include "gpu/gpu.h"
#include "gpu/items.h"

extern "C" enum status gpu_parts_of(struct gpu_parts *p, struct gpu_device *dev, int64_t rows,
                                    int64_t cols, int64_t blocks)
{
    int64_t fit = GPU_SCRATCH / (4 * cols);
    void *memory;

    if (fit < 1)
        return fail(ST_ESHAPE,
                    "a sum over tokens of %lld columns; the gpu backend has room for "
                    "%d",
                    (long long)cols, GPU_SCRATCH / 4);
    blocks = blocks < fit ? blocks : fit;
    p->per = (rows + blocks - 1) / blocks;
    p->parts = (rows + p->per - 1) / p->per;
    TRY(gpu_scratch(dev, &memory, (size_t)(p->parts * cols) * sizeof(float)));
    p->partial = static_cast<float *>(memory);
    return ST_OK;
}

/* 32 columns a block; each of 32 rows of threads adds every 32nd partial sum, then theirs are
 * added in order. */
__global__ void parts_kernel(float *sum, const float *partial, int64_t parts, int64_t cols,
                             int accumulate)
{
    __shared__ float part[32][33];
    int64_t col = (int64_t)blockIdx.x * 32 + threadIdx.x;
    float mine = 0.0f;

    if (col < cols)
        for (int64_t i = threadIdx.y; i < parts; i += 32)
            mine += partial[i * cols + col];
    part[threadIdx.y][threadIdx.x] = mine;
    __syncthreads();
    if (threadIdx.y > 0 || col >= cols)
        return;
    for (int i = 1; i < 32; i++)
        mine += part[i][threadIdx.x];
    sum[col] = accumulate ? sum[col] + mine : mine;
}

extern "C" enum status gpu_parts_join(struct gpu_device *dev, const struct tensor *sum,
                                      const struct gpu_parts *p, int accumulate)
{
    dim3 threads(32, 32);

    if (sum->dtype != DT_F32)
        return fail(ST_EDTYPE, "gradient of a gain: %s; the gpu backend takes f32",
                    dtype_name(sum->dtype));
    parts_kernel<<<(unsigned)((sum->cols + 31) / 32), threads, 0, dev->stream>>>(
        static_cast<float *>(sum->data), p->partial, p->parts, sum->cols, accumulate);
    return gpu_launched(dev, "sum over tokens");
}

/* Elements of a cell that one block squares. */
enum { SUMSQ_CHUNK = 16384 };

/* A grain of a tensor: one entry of the table. */
struct sumsq_cell {
    const void *data;
    int64_t cols, count, stride; /* count: rows * cols; one row where rows follow each other */
    int64_t first;               /* of the blocks of this cell */
    int32_t type, wide;
};

static __device__ double square_wide(const struct sumsq_cell &c, int64_t e)
{
    int64_t row = e / c.cols;
    struct view v = {const_cast<void *>(c.data), c.stride, c.type == DT_BF16, 0};
    float f[8];
    double sum = 0.0;

    load<FORM_MIXED, 8>(f, v, row * c.stride + (e - row * c.cols));
#pragma unroll
    for (int i = 0; i < 8; i++)
        sum += (double)f[i] * (double)f[i];
    return sum;
}

static __device__ double square_one(const struct sumsq_cell &c, int64_t e)
{
    int64_t row = e / c.cols, at = row * c.stride + (e - row * c.cols);
    double x = c.type == DT_F64
                   ? static_cast<const double *>(c.data)[at]
                   : (double)(c.type == DT_BF16
                                  ? __bfloat162float(static_cast<const __nv_bfloat16 *>(c.data)[at])
                                  : static_cast<const float *>(c.data)[at]);

    return x * x;
}

/* The cell that block b belongs to: the last whose first block is at most b. */
static __device__ int cell_of(const struct sumsq_cell *cell, int n, int64_t b)
{
    int low = 0, high = n - 1;

    while (low < high) {
        int mid = (low + high + 1) / 2;

        if (cell[mid].first <= b)
            low = mid;
        else
            high = mid - 1;
    }
    return low;
}

__global__ void sumsq_kernel(double *partial, const struct sumsq_cell *cells, int n)
{
    const struct sumsq_cell c = cells[cell_of(cells, n, blockIdx.x)];
    int64_t begin = (blockIdx.x - c.first) * SUMSQ_CHUNK;
    int64_t end = min(begin + SUMSQ_CHUNK, c.count);
    double sum = 0.0;

    if (c.wide)
        for (int64_t e = begin + threadIdx.x * 8; e < end; e += blockDim.x * 8)
            sum += square_wide(c, e);
    else
        for (int64_t e = begin + threadIdx.x; e < end; e += blockDim.x)
            sum += square_one(c, e);
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

/* One warp an entry. */
__global__ void sumsq_join_kernel(double *table, int64_t stride, const double *partial,
                                  const struct sumsq_cell *cells, int n, int64_t blocks)
{
    int i = (int)(blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
    double sum = 0.0;

    if (i >= n)
        return;
    for (int64_t b = cells[i].first + threadIdx.x % 32,
                 end = i + 1 < n ? cells[i + 1].first : blocks;
         b < end; b += 32)
        sum += partial[b];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        table[i * stride] = sum;
}

/* The cells of t from cell[0] on, their blocks counted from *blocks; returns how many cells. */
static int sumsq_cells(struct sumsq_cell *cell, const struct tensor *t, int64_t *blocks)
{
    int64_t rows = t->rows / t->row_grains, cols = t->cols / t->col_grains;
    int64_t size = (int64_t)dtype_size(t->dtype);
    int n = t->row_grains * t->col_grains;

    for (int i = 0; i < n; i++) {
        int64_t row = i / t->col_grains * rows, col = i % t->col_grains * cols;
        struct sumsq_cell *c = &cell[i];
        bool packed = rows == 1 || t->stride == cols;

        c->data = static_cast<char *>(t->data) + (row * t->stride + col) * size;
        c->count = rows * cols;
        c->cols = packed ? c->count : cols;
        c->stride = packed ? c->count : t->stride;
        c->type = t->dtype;
        c->wide = t->dtype != DT_F64 && c->cols % 8 == 0 && c->stride % 8 == 0 &&
                  (uintptr_t)c->data % 16 == 0;
        c->first = *blocks;
        *blocks += (c->count + SUMSQ_CHUNK - 1) / SUMSQ_CHUNK;
    }
    return n;
}

extern "C" enum status gpu_sumsq(struct device *dev, struct tensor *table, const struct tensor *t,
                                 int n)
{
    struct gpu_device *gpu = gpu_of(dev);
    int64_t cells = 0, blocks = 0;
    struct sumsq_cell *cell;
    const void *on_device;
    void *p;

    for (int i = 0; i < n; i++) {
        if (t[i].dtype == DT_I32)
            return fail(ST_EDTYPE, "sumsq: a tensor of type i32");
        cells += (int64_t)t[i].row_grains * t[i].col_grains;
    }
    if (table->dtype != DT_F64 || table->rows < cells)
        return fail(ST_ESHAPE, "sumsq: a table of %lld %s for %lld entries in f64",
                    (long long)table->rows, dtype_name(table->dtype), (long long)cells);
    if (cells == 0)
        return ST_OK;
    TRY(gpu_items_build(gpu->items, &p, (size_t)cells * sizeof *cell));
    cell = static_cast<struct sumsq_cell *>(p);
    for (int i = 0, at = 0; i < n; i++)
        at += sumsq_cells(cell + at, &t[i], &blocks);
    TRY(gpu_items_send(gpu, &on_device, (size_t)cells * sizeof *cell));
    cell = static_cast<struct sumsq_cell *>(const_cast<void *>(on_device));
    TRY(gpu_scratch(gpu, &p, (size_t)blocks * sizeof(double)));
    sumsq_kernel<<<(unsigned)blocks, 256, 0, gpu->stream>>>(static_cast<double *>(p), cell,
                                                            (int)cells);
    TRY(gpu_launched(gpu_of(dev), "sumsq"));
    sumsq_join_kernel<<<(unsigned)((cells + 7) / 8), 256, 0, gpu->stream>>>(
        static_cast<double *>(table->data), table->stride, static_cast<double *>(p), cell,
        (int)cells, blocks);
    return gpu_launched(gpu_of(dev), "sumsq");
}

/* One block; thread 0 adds what the others fetch, strictly in order. */
__global__ void clip_kernel(double *norm_scale, int64_t out_stride, const double *table,
                            int64_t entries, int64_t stride, double limit)
{
    __shared__ double piece[256];
    double sum = 0.0, norm, scale;

    for (int64_t begin = 0; begin < entries; begin += 256) {
        int64_t i = begin + threadIdx.x;

        piece[threadIdx.x] = i < entries ? table[i * stride] : 0.0;
        __syncthreads();
        if (threadIdx.x == 0)
            for (int64_t j = 0; j < 256 && begin + j < entries; j++)
                sum += piece[j];
        __syncthreads();
    }
    if (threadIdx.x > 0)
        return;
    norm = sqrt(sum);
    scale = limit > 0.0 ? fmin(1.0, limit / (norm + 1e-6)) : 1.0;
    norm_scale[0] = norm;
    norm_scale[out_stride] = isfinite(norm) ? scale : 0.0;
}

extern "C" enum status gpu_clip(struct device *dev, struct tensor *norm_scale,
                                const struct tensor *table, double limit)
{
    if (norm_scale->dtype != DT_F64 || table->dtype != DT_F64)
        return fail(ST_EDTYPE, "clip: tables of %s and %s; both are f64",
                    dtype_name(norm_scale->dtype), dtype_name(table->dtype));
    clip_kernel<<<1, 256, 0, gpu_of(dev)->stream>>>(
        static_cast<double *>(norm_scale->data), norm_scale->stride,
        static_cast<const double *>(table->data), table->rows, table->stride, limit);
    return gpu_launched(gpu_of(dev), "clip");
}
