#include "gpu/elementwise.h"

#include "gpu/fit.cuh"
#include "gpu/gpu.h"
#include "gpu/tree.cuh"

template <int FORM, int V>
__global__ void add_kernel(struct view y, struct view a, struct view b, int64_t cols,
                           unsigned pieces)
{
    int64_t row, col;
    float p[V], q[V];

    grid_place<V>(&row, &col, pieces);
    if (col >= cols)
        return;
    load<FORM, V>(p, a, row * a.stride + col);
    load<FORM, V>(q, b, row * b.stride + col);
#pragma unroll
    for (int i = 0; i < V; i++)
        p[i] += q[i];
    store<FORM, V>(y, row * y.stride + col, p);
}

extern "C" enum status gpu_add(struct device *dev, struct tensor *y, const struct tensor *a,
                               const struct tensor *b)
{
    struct fit f = fit_start(y->rows, y->cols);
    struct view vy = fit_view(&f, y), va = fit_view(&f, a), vb = fit_view(&f, b);

    if (tensor_count(y) == 0)
        return ST_OK;
    TRY(fit_check(&f, "add"));
    fit_flatten(&f);
    fit_launch(&f, [&](auto form, auto v) {
        struct grid g = grid_of(&f, v);

        add_kernel<form, v>
            <<<g.blocks, g.threads, 0, gpu_of(dev)->stream>>>(vy, va, vb, f.cols, g.pieces);
    });
    return gpu_launched(gpu_of(dev), "add");
}

/* parts [p M, c] and wide [M, p c], in pieces of type T; c and strides count pieces. */
struct cols_shape {
    int64_t rows, cols, wide_stride, part_stride;
    int p, join;
};

template <class T>
__global__ void cols_kernel(T *wide, T *parts, struct cols_shape s, unsigned pieces)
{
    int64_t row, col, m, q;
    T *at, *part;

    grid_place<1>(&row, &col, pieces);
    if (col >= s.cols)
        return;
    q = row / s.rows;
    m = row - q * s.rows;
    at = wide + m * s.wide_stride + q * s.cols + col;
    part = parts + row * s.part_stride + col;
    if (s.join)
        *at = *part;
    else
        *part = *at;
}

template <class T>
static enum status cols_launch(struct device *dev, const struct tensor *wide,
                               const struct tensor *parts, int join)
{
    int64_t per = (int64_t)(sizeof(T) / dtype_size(wide->dtype));
    struct cols_shape s = {wide->rows,
                           parts->cols / per,
                           wide->stride / per,
                           parts->stride / per,
                           (int)(wide->cols / parts->cols),
                           join};
    struct fit f = fit_start(s.rows * s.p, s.cols);
    struct grid g = grid_of(&f, 1);

    cols_kernel<T><<<g.blocks, g.threads, 0, gpu_of(dev)->stream>>>(
        static_cast<T *>(wide->data), static_cast<T *>(parts->data), s, g.pieces);
    return gpu_launched(gpu_of(dev), join ? "cols_join" : "cols_split");
}

static enum status cols_move(struct device *dev, const struct tensor *wide,
                             const struct tensor *parts, int join)
{
    size_t size = dtype_size(wide->dtype);
    uintptr_t bits =
        (uintptr_t)wide->data | (uintptr_t)parts->data | (uintptr_t)((size_t)parts->cols * size) |
        (uintptr_t)((size_t)wide->stride * size) | (uintptr_t)((size_t)parts->stride * size);

    if (wide->dtype != parts->dtype)
        return fail(ST_EDTYPE, "cols_%s: %s and %s", join ? "join" : "split",
                    dtype_name(wide->dtype), dtype_name(parts->dtype));
    if (tensor_count(wide) == 0)
        return ST_OK;
    if (bits % 16 == 0)
        return cols_launch<uint4>(dev, wide, parts, join);
    if (size == 8)
        return cols_launch<uint2>(dev, wide, parts, join);
    if (size == 4)
        return cols_launch<unsigned>(dev, wide, parts, join);
    return cols_launch<unsigned short>(dev, wide, parts, join);
}

extern "C" enum status gpu_cols_join(struct device *dev, struct tensor *y,
                                     const struct tensor *parts)
{
    return cols_move(dev, y, parts, 1);
}

extern "C" enum status gpu_cols_split(struct device *dev, struct tensor *parts,
                                      const struct tensor *x)
{
    return cols_move(dev, x, parts, 0);
}

template <int V> struct sum_vector {
    float f[V];

    static __device__ __forceinline__ sum_vector join(const sum_vector &a, const sum_vector &b)
    {
        sum_vector s;

#pragma unroll
        for (int i = 0; i < V; i++)
            s.f[i] = a.f[i] + b.f[i];
        return s;
    }
};

template <int FORM, int V, int DEPTH>
__global__ void sum_tree_kernel(struct view s, struct view parts, int64_t rows, int64_t cols, int p,
                                unsigned pieces)
{
    int64_t row, col;

    grid_place<V>(&row, &col, pieces);
    if (col >= cols)
        return;
    auto leaf = [&](int i) {
        struct sum_vector<V> x;

        load<FORM, V>(x.f, parts, (i * rows + row) * parts.stride + col);
        return x;
    };
    struct sum_vector<V> sum = tree_join<struct sum_vector<V>, DEPTH>(leaf, 0, p);

    store<FORM, V>(s, row * s.stride + col, sum.f);
}

extern "C" enum status gpu_sum_tree(struct device *dev, struct tensor *s,
                                    const struct tensor *parts)
{
    struct fit f = fit_start(s->rows, s->cols);
    struct view vs = fit_view(&f, s), vp = fit_view(&f, parts);
    int p = s->rows ? (int)(parts->rows / s->rows) : 0;

    if (tensor_count(s) == 0)
        return ST_OK;
    TRY(fit_check(&f, "sum_tree"));
    if (p > 1 << TREE_LARGE)
        return fail(ST_ESHAPE, "sum_tree over %d parts; at most %d", p, 1 << TREE_LARGE);
    fit_launch(&f, [&](auto form, auto v) {
        struct grid g = grid_of(&f, v);
        auto kernel = p <= 1 << TREE_SMALL ? sum_tree_kernel<form, v, TREE_SMALL>
                                           : sum_tree_kernel<form, v, TREE_LARGE>;

        kernel<<<g.blocks, g.threads, 0, gpu_of(dev)->stream>>>(vs, vp, f.rows, f.cols, p,
                                                                g.pieces);
    });
    return gpu_launched(gpu_of(dev), "sum_tree");
}

template <int FORM, int V>
__global__ void convert_kernel(struct view y, struct view x, int64_t cols, unsigned pieces)
{
    int64_t row, col;
    float p[V];

    grid_place<V>(&row, &col, pieces);
    if (col >= cols)
        return;
    load<FORM, V>(p, x, row * x.stride + col);
    store<FORM, V>(y, row * y.stride + col, p);
}

static __device__ double load_any(const struct tensor &t, int64_t i)
{
    if (t.dtype == DT_F64)
        return static_cast<const double *>(t.data)[i];
    if (t.dtype == DT_BF16)
        return (double)__bfloat162float(static_cast<const __nv_bfloat16 *>(t.data)[i]);
    return (double)static_cast<const float *>(t.data)[i];
}

/* Where a table in f64 is involved. To bf16 by way of f32, as the host's dtype_store. */
__global__ void convert_any_kernel(struct tensor y, struct tensor x)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = i / y.cols;
    int64_t to = row * y.stride + i % y.cols;
    double v;

    if (row >= y.rows)
        return;
    v = load_any(x, row * x.stride + i % y.cols);
    if (y.dtype == DT_F64)
        static_cast<double *>(y.data)[to] = v;
    else if (y.dtype == DT_BF16)
        static_cast<__nv_bfloat16 *>(y.data)[to] = __float2bfloat16_rn((float)v);
    else
        static_cast<float *>(y.data)[to] = (float)v;
}

static enum status convert_alone(struct gpu_device *dev, const struct tensor *y,
                                 const struct tensor *x)
{
    struct fit f = fit_start(y->rows, y->cols);
    struct view vy = fit_view(&f, y), vx = fit_view(&f, x);

    if (tensor_count(y) == 0)
        return ST_OK;
    if (f.others && y->dtype != DT_I32 && x->dtype != DT_I32) {
        convert_any_kernel<<<(unsigned)((tensor_count(y) + 255) / 256), 256, 0, dev->stream>>>(*y,
                                                                                               *x);
        return gpu_launched(dev, "convert");
    }
    TRY(fit_check(&f, "convert"));
    fit_flatten(&f);
    fit_launch(&f, [&](auto form, auto v) {
        struct grid g = grid_of(&f, v);

        convert_kernel<form, v><<<g.blocks, g.threads, 0, dev->stream>>>(vy, vx, f.cols, g.pieces);
    });
    return gpu_launched(dev, "convert");
}

/* Pairs that one launch converts, and elements that one block does. */
enum { CONVERT_PAIRS = 64, CONVERT_CHUNK = 8192 };

struct convert_pair {
    void *y;
    const void *x;
    int64_t y_stride, x_stride;
    int64_t cols, count; /* one row where all rows follow each other */
    uint32_t first;      /* of the blocks of this pair */
    uint8_t y_bf16, x_bf16, wide, spare;
};

/* A list goes with the launch: it may be new at each call, and while a graph is recorded. */
struct convert_list {
    struct convert_pair pair[CONVERT_PAIRS];
    int n;
    uint32_t blocks;
};

static_assert(sizeof(struct convert_list) <= 4096, "what a kernel's arguments may take");

template <int V>
static __device__ __forceinline__ void convert_piece(const struct convert_pair &c, int64_t e)
{
    int64_t row = c.cols < c.count ? e / c.cols : 0, col = e - row * c.cols;
    struct view y = {c.y, c.y_stride, c.y_bf16, 0};
    struct view x = {const_cast<void *>(c.x), c.x_stride, c.x_bf16, 0};
    float p[V];

    load<FORM_MIXED, V>(p, x, row * x.stride + col);
    store<FORM_MIXED, V>(y, row * y.stride + col, p);
}

/* The pair of this block is the last whose first block is at most it. */
__global__ void convert_list_kernel(const __grid_constant__ struct convert_list list)
{
    int low = 0, high = list.n - 1;

    while (low < high) {
        int mid = (low + high + 1) / 2;

        if (list.pair[mid].first <= blockIdx.x)
            low = mid;
        else
            high = mid - 1;
    }
    const struct convert_pair c = list.pair[low];
    int64_t begin = (int64_t)(blockIdx.x - c.first) * CONVERT_CHUNK;
    int64_t end = min(begin + CONVERT_CHUNK, c.count);

    if (c.wide)
        for (int64_t e = begin + threadIdx.x * 8; e < end; e += blockDim.x * 8)
            convert_piece<8>(c, e);
    else
        for (int64_t e = begin + threadIdx.x; e < end; e += blockDim.x)
            convert_piece<1>(c, e);
}

static enum status convert_listed(struct gpu_device *dev, struct convert_list *list)
{
    if (list->n == 0)
        return ST_OK;
    convert_list_kernel<<<list->blocks, 256, 0, dev->stream>>>(*list);
    list->n = 0;
    list->blocks = 0;
    return gpu_launched(dev, "convert");
}

/* Puts a pair onto the list, or, where it holds neither bf16 nor f32, converts it alone. */
static enum status convert_add(struct gpu_device *dev, struct convert_list *list,
                               const struct tensor *y, const struct tensor *x)
{
    struct fit f = fit_start(y->rows, y->cols);
    struct view vy = fit_view(&f, y), vx = fit_view(&f, x);
    struct convert_pair *c = &list->pair[list->n];

    if (tensor_count(y) == 0)
        return ST_OK;
    if (f.others)
        return convert_alone(dev, y, x);
    fit_flatten(&f);
    *c = convert_pair{
        vy.data,      vx.data,          vy.stride,        vx.stride,       f.cols, f.rows * f.cols,
        list->blocks, (uint8_t)vy.bf16, (uint8_t)vx.bf16, (uint8_t)f.wide, 0};
    list->blocks += (uint32_t)((c->count + CONVERT_CHUNK - 1) / CONVERT_CHUNK);
    return ++list->n == CONVERT_PAIRS ? convert_listed(dev, list) : ST_OK;
}

extern "C" enum status gpu_convert(struct device *dev, struct tensor *y, const struct tensor *x,
                                   int n)
{
    struct convert_list list;

    if (n == 1)
        return convert_alone(gpu_of(dev), y, x);
    list.n = 0;
    list.blocks = 0;
    for (int i = 0; i < n; i++)
        TRY(convert_add(gpu_of(dev), &list, &y[i], &x[i]));
    return convert_listed(gpu_of(dev), &list);
}

template <int FORM, int V>
__global__ void scale_rows_kernel(struct view y, struct column s, struct view c, int64_t cols,
                                  unsigned pieces)
{
    int64_t row, col;
    float p[V], q[V], scale;

    grid_place<V>(&row, &col, pieces);
    if (col >= cols)
        return;
    scale = s.data[row * s.stride];
    load<FORM, V>(p, y, row * y.stride + col);
    if (c.data)
        load<FORM, V>(q, c, row * c.stride + col);
#pragma unroll
    for (int i = 0; i < V; i++)
        p[i] = p[i] * scale + (c.data ? q[i] : 0.0f);
    store<FORM, V>(y, row * y.stride + col, p);
}

extern "C" enum status gpu_scale_rows(struct gpu_device *dev, struct tensor *y,
                                      const struct tensor *s, const struct tensor *c)
{
    struct fit f = fit_start(y->rows, y->cols);
    struct view vy = fit_view(&f, y), vc = c ? fit_view(&f, c) : view{nullptr, 0, 0, 0};
    struct column vs = fit_column(&f, s);

    TRY(fit_check(&f, "gemm"));
    fit_launch(&f, [&](auto form, auto v) {
        struct grid g = grid_of(&f, v);

        scale_rows_kernel<form, v>
            <<<g.blocks, g.threads, 0, dev->stream>>>(vy, vs, vc, f.cols, g.pieces);
    });
    return gpu_launched(dev, "gemm, scale of rows");
}
