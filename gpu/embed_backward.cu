/* Backward of the look-up: dw[row] = the sum of dy over the places of that row's token, in order.
 *
 * With the places listed by row (embed_order.h), embed_sum_kernel writes every row of dw once: its
 * sum, or zeros. Of a long row, which has more places than a chunk, each chunk is summed by a block
 * of its own, and whichever ends last adds the chunks up in their order. What is added to what
 * depends on tokens and shapes alone.
 */
#include "gpu/embed_order.h"
#include "gpu/fit.cuh"
#include "gpu/gpu.h"

/* Rows of dw a block; rows of dy that a thread fetches at once; places that a chunk has at least;
 * chunks that all places make at most; blocks of rows at most that follow each of a chunk. */
enum { SUM_ROWS = 4, SUM_AHEAD = 4, SUM_LEAST = 32, SUM_CHUNKS = 512, SUM_MIX = 3 };

struct embed_back_args {
    struct view dw, dy;
    struct embed_list list; /* its `zero` are counts [windows, pieces] of chunks that are summed, of
                             * the long row that begins in that window */
    int64_t cols;
    int accumulate;   /* a row's sum joins what dw holds, else rows without places get 0 */
    unsigned chunk;   /* places of a chunk */
    unsigned windows; /* of `chunk` places of the list */
    unsigned pieces;  /* of a row of dw: blocks that share it */
    unsigned mix;     /* blocks of rows that follow each of a chunk */
    float *part;      /* [windows, 2, cols]: of a long row from before; of the first of one */
};

/* V elements of dy as they were fetched, so that several can be under way. */
template <int FORM, int V> struct fetched {
    float f[V];
};
template <> struct fetched<FORM_BF16, 4> {
    uint2 w;
};

template <int FORM, int V>
static __device__ __forceinline__ void fetch(struct fetched<FORM, V> *x,
                                             const struct embed_back_args &a, unsigned place,
                                             int64_t col)
{
    int64_t at = place * a.dy.stride + col;

    if constexpr (FORM == FORM_BF16)
        x->w = *reinterpret_cast<const uint2 *>(static_cast<const __nv_bfloat16 *>(a.dy.data) + at);
    else
        load<FORM, V>(x->f, a.dy, at);
}

template <int FORM, int V>
static __device__ __forceinline__ void add(float (&sum)[V], const struct fetched<FORM, V> &x)
{
    if constexpr (FORM == FORM_BF16) {
        sum[0] += bf16_low(x.w.x), sum[1] += bf16_high(x.w.x);
        sum[2] += bf16_low(x.w.y), sum[3] += bf16_high(x.w.y);
    } else {
#pragma unroll
        for (int k = 0; k < V; k++)
            sum[k] += x.f[k];
    }
}

/* sum += dy at places [begin, end) of the list, one after the other, SUM_AHEAD under way. All lanes
 * of a warp call it with the same range; those whose columns are not `live` fetch nothing. */
template <int FORM, int V>
static __device__ void embed_run(float (&sum)[V], const struct embed_back_args &a, unsigned begin,
                                 unsigned end, int64_t col, bool live)
{
    for (; begin < end; begin += 32) {
        unsigned lane = threadIdx.x % 32, n = min(end - begin, 32u);
        unsigned place = lane < n ? a.list.place[begin + lane] : 0;

        for (unsigned i = 0; i < n; i += SUM_AHEAD) {
            fetched<FORM, V> x[SUM_AHEAD] = {};

#pragma unroll
            for (unsigned j = 0; j < SUM_AHEAD; j++) {
                unsigned from = __shfl_sync(0xffffffffu, place, i + j);

                if (live && i + j < n)
                    fetch<FORM, V>(&x[j], a, from, col);
            }
#pragma unroll
            for (unsigned j = 0; j < SUM_AHEAD; j++)
                if (i + j < n)
                    add<FORM, V>(sum, x[j]);
        }
    }
}

/* dw[row] = sum, or joins it. */
template <int V>
static __device__ __forceinline__ void embed_put(const struct embed_back_args &a, int64_t row,
                                                 int64_t col, const float (&sum)[V])
{
    float old[V] = {};

    if (a.accumulate)
        load<FORM_MIXED, V>(old, a.dw, row * a.dw.stride + col);
#pragma unroll
    for (int k = 0; k < V; k++)
        old[k] += sum[k];
    store<FORM_MIXED, V>(a.dw, row * a.dw.stride + col, old);
}

/* Rows [row, row + SUM_ROWS) of dw, but for long ones. Rows without places, which are most, wait
 * for nothing; the first places of the others are under way at once. */
template <int FORM, int V>
static __device__ void embed_rows(const struct embed_back_args &a, int64_t row, int64_t col)
{
    unsigned start[SUM_ROWS + 1], place[SUM_ROWS] = {};
    fetched<FORM, V> x[SUM_ROWS] = {};
    const float none[V] = {};
    bool live = col < a.cols;

#pragma unroll
    for (int j = 0; j <= SUM_ROWS; j++)
        start[j] = a.list.start[min(row + j, a.list.rows)];
#pragma unroll
    for (int j = 0; j < SUM_ROWS; j++)
        if (start[j] < start[j + 1])
            place[j] = a.list.place[start[j]];
#pragma unroll
    for (int j = 0; j < SUM_ROWS; j++)
        if (start[j] == start[j + 1] && live && row + j < a.list.rows && !a.accumulate)
            embed_put<V>(a, row + j, col, none);
#pragma unroll
    for (int j = 0; j < SUM_ROWS; j++)
        if (start[j] < start[j + 1] && live)
            fetch<FORM, V>(&x[j], a, place[j], col);
#pragma unroll
    for (int j = 0; j < SUM_ROWS; j++) {
        float sum[V] = {};

        if (start[j] == start[j + 1] || start[j + 1] - start[j] > a.chunk)
            continue;
        add<FORM, V>(sum, x[j]);
        embed_run<FORM, V>(sum, a, start[j] + 1, start[j + 1], col, live);
        if (live)
            embed_put<V>(a, row + j, col, sum);
    }
}

/* A chunk: places [begin, end) of the list, of a long row that begins in window `home`. */
struct embed_chunk {
    unsigned row, begin, end, home, chunks;
};

/* Window w has up to two: the one that begins in it of a long row from before (which 0), and the
 * first one of a long row that begins in it (1). False where there is none. */
static __device__ bool embed_chunk_of(struct embed_chunk *c, const struct embed_back_args &a,
                                      unsigned w, int which)
{
    unsigned at = w * a.chunk, edge = which ? at + a.chunk - 1 : at, first, last;

    if (edge >= a.list.start[a.list.rows])
        return false;
    c->row = a.list.row[edge];
    first = a.list.start[c->row];
    last = a.list.start[c->row + 1];
    if (last - first <= a.chunk || (first >= at) != (which != 0))
        return false;
    c->home = first / a.chunk;
    c->begin = first + (w - c->home) * a.chunk;
    c->end = min(c->begin + a.chunk, last);
    c->chunks = (last - first + a.chunk - 1) / a.chunk;
    return c->begin < last;
}

/* True, in all threads of one block alone: the one that has summed the last of the row's chunks. */
static __device__ bool embed_last(const struct embed_back_args &a, const struct embed_chunk &c)
{
    __shared__ bool last;

    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        last = atomicAdd(&a.list.zero[c.home * a.pieces + blockIdx.y], 1u) + 1 == c.chunks;
    __syncthreads();
    __threadfence();
    return last;
}

/* Sums the chunk of window w into its place in `part`; the last block of a row joins them. */
template <int FORM, int V>
static __device__ void embed_long(const struct embed_back_args &a, unsigned w, int which,
                                  int64_t col)
{
    float *part = a.part + (2 * (int64_t)w + which) * a.cols + col, sum[V] = {};
    struct embed_chunk c;

    if (!embed_chunk_of(&c, a, w, which))
        return;
    embed_run<FORM, V>(sum, a, c.begin, c.end, col, col < a.cols);
    if (col < a.cols)
#pragma unroll
        for (int k = 0; k < V; k++)
            __stcg(part + k, sum[k]);
    if (!embed_last(a, c) || col >= a.cols)
        return;
    part = a.part + (2 * (int64_t)c.home + 1) * a.cols + col;
#pragma unroll
    for (int k = 0; k < V; k++)
        sum[k] = __ldcg(part + k);
    part = a.part + 2 * ((int64_t)c.home + 1) * a.cols + col;
#pragma unroll 8
    for (unsigned i = 1; i < c.chunks; i++, part += 2 * a.cols)
#pragma unroll
        for (int k = 0; k < V; k++)
            sum[k] += __ldcg(part + k);
    embed_put<V>(a, c.row, col, sum);
}

/* Chunks of long rows early, as they take longest; `mix` blocks of other rows behind each, as most
 * chunks are not there, which it takes three fetches in turn to find out. */
template <int FORM, int V>
__global__ void __launch_bounds__(256, 8) embed_sum_kernel(struct embed_back_args a)
{
    int64_t col = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V;
    unsigned b = blockIdx.x, group = b / (a.mix + 1), at = b % (a.mix + 1), rows;

    await_kernel_before();
    if (group < 2 * a.windows && at == 0) {
        embed_long<FORM, V>(a, group / 2, (int)(group % 2), col);
        return;
    }
    rows = group < 2 * a.windows ? group * a.mix + at - 1 : b - 2 * a.windows;
    embed_rows<FORM, V>(a, (int64_t)rows * SUM_ROWS, col);
}

/* Partial sums and lists in scratch; the sums first, which want to be aligned. */
static enum status embed_scratch(struct embed_back_args *a, struct gpu_device *dev)
{
    struct embed_list *l = &a->list;
    unsigned chunk = (l->places + SUM_CHUNKS - 1) / SUM_CHUNKS;
    size_t parts, words;
    void *p;

    a->chunk = chunk < SUM_LEAST ? (unsigned)SUM_LEAST : chunk;
    a->windows = (l->places + a->chunk - 1) / a->chunk;
    l->zeros = a->windows * a->pieces;
    parts = 2 * (size_t)a->windows * (size_t)a->cols;
    words = 2 * (size_t)l->places + l->zeros + (size_t)l->rows + 1;
    TRY(gpu_scratch(dev, &p, 4 * (parts + words)));
    a->part = static_cast<float *>(p);
    l->place = reinterpret_cast<unsigned *>(a->part + parts);
    l->row = l->place + l->places;
    l->zero = l->row + l->places;
    l->start = l->zero + l->zeros;
    return ST_OK;
}

template <int FORM, int V>
static enum status embed_backward_launch(struct gpu_device *dev, struct embed_back_args a)
{
    unsigned threads = row_threads(a.cols, V, 256);
    int64_t span = (int64_t)threads * V, rows = (a.list.rows + SUM_ROWS - 1) / SUM_ROWS;
    int64_t chunks;

    a.pieces = (unsigned)((a.cols + span - 1) / span);
    TRY(embed_scratch(&a, dev));
    TRY(gpu_embed_order(dev, &a.list));
    chunks = 2 * (int64_t)a.windows;
    a.mix = chunks ? (unsigned)min(rows / chunks, (int64_t)SUM_MIX) : 0;
    TRY(launch_behind(dev, embed_sum_kernel<FORM, V>, dim3((unsigned)(chunks + rows), a.pieces),
                      threads, a));
    return gpu_launched(dev, "embed_backward");
}

extern "C" enum status gpu_embed_backward(struct device *dev, struct tensor *dw,
                                          const struct tensor *dy, const struct tensor *tokens,
                                          int64_t row0, const struct sample_plan *plan)
{
    struct fit f = fit_start(dw->rows, dw->cols);
    struct embed_back_args a = {};

    a.dw = fit_view(&f, dw);
    a.dy = fit_view(&f, dy);
    a.list.tokens = static_cast<const int32_t *>(tokens->data);
    a.list.token_stride = tokens->stride;
    a.list.row0 = row0;
    a.list.rows = dw->rows;
    a.list.places = (unsigned)dy->rows;
    a.cols = dw->cols;
    TRY(gpu_plan(&a.accumulate, plan));
    if (tokens->dtype != DT_I32)
        return fail(ST_EDTYPE, "tokens of type %s; they are i32", dtype_name(tokens->dtype));
    TRY(fit_check(&f, "embed"));
    if (tensor_count(dw) == 0)
        return ST_OK;
    if (!f.wide)
        return embed_backward_launch<FORM_MIXED, 1>(gpu_of(dev), a);
    if (a.dy.bf16)
        return embed_backward_launch<FORM_BF16, 4>(gpu_of(dev), a);
    return embed_backward_launch<FORM_F32, 4>(gpu_of(dev), a);
}
