#include "gpu/embed_order.h"

#include "gpu/fit.cuh"

/* Rows of a block; its warps; tokens that a thread fetches at once, and a warp. */
enum { ORDER_ROWS = 256, ORDER_WARPS = 32, ORDER_AHEAD = 16, ORDER_STEP = 32 * ORDER_AHEAD };

/* Rows of places i, i + 32, ...; from `end` on a number that is no row's. */
static __device__ __forceinline__ void order_fetch(unsigned (&row)[ORDER_AHEAD],
                                                   const struct embed_list &a, unsigned i,
                                                   unsigned end)
{
    const int32_t *from = a.tokens + i * a.token_stride;
    int32_t token[ORDER_AHEAD];

#pragma unroll
    for (int k = 0; k < ORDER_AHEAD; k++, from += 32 * a.token_stride)
        token[k] = i + 32 * k < end ? *from : 0;
#pragma unroll
    for (int k = 0; k < ORDER_AHEAD; k++)
        row[k] = i + 32 * k < end ? (unsigned)token[k] - (unsigned)a.row0 : ~0u;
}

/* The block's first row, and how many rows it has. They are unsigned: below the table is above. */
static __device__ __forceinline__ unsigned order_first()
{
    return blockIdx.x * ORDER_ROWS;
}

static __device__ __forceinline__ unsigned order_rows(const struct embed_list &a)
{
    return (unsigned)min((int64_t)ORDER_ROWS, a.rows - order_first());
}

/* The places of a warp: [begin, end), in steps. */
struct order_span {
    unsigned begin, end, steps;
};

static __device__ __forceinline__ struct order_span order_span_of(const struct embed_list &a,
                                                                  unsigned warp)
{
    unsigned length = (a.places + 32 * ORDER_WARPS - 1) / (32 * ORDER_WARPS) * 32;
    unsigned begin = min(warp * length, a.places), end = min(begin + length, a.places);

    return order_span{begin, end, (end - begin + ORDER_STEP - 1) / ORDER_STEP};
}

/* Counts of a warp's places by row; returns this thread's share of the places of lower rows. It
 * goes through the steps from the last to the first and leaves the first one's rows in `row`, so
 * that they need not be fetched again: of 16384 places a warp has no others. */
static __device__ __forceinline__ unsigned order_count(unsigned (&row)[ORDER_AHEAD],
                                                       unsigned *count, const struct embed_list &a,
                                                       const struct order_span &span)
{
    unsigned below = 0, first = order_first(), rows = order_rows(a), lane = threadIdx.x % 32;

    for (unsigned r = lane; r < ORDER_ROWS; r += 32)
        count[r] = 0;
    __syncwarp();
    for (unsigned s = span.steps; s-- > 0;) {
        order_fetch(row, a, span.begin + s * ORDER_STEP + lane, span.end);
#pragma unroll
        for (int k = 0; k < ORDER_AHEAD; k++) {
            below += row[k] < first;
            if (row[k] - first < rows)
                atomicAdd(&count[row[k] - first], 1u);
        }
    }
    return below;
}

/* Lists 32 places of a warp, in their order: next[r] is where the next one of row r goes. */
static __device__ __forceinline__ void order_list(unsigned *next, const struct embed_list &a,
                                                  unsigned at, unsigned row, unsigned rows)
{
    unsigned mine = row - order_first(), same, before, to;
    bool in = mine < rows;

    if (!__any_sync(0xffffffffu, in))
        return;
    same = __match_any_sync(0xffffffffu, row);
    before = __popc(same & ((1u << threadIdx.x % 32) - 1));
    if (in) {
        to = next[mine] + before;
        a.place[to] = at;
        a.row[to] = row;
    }
    __syncwarp();
    if (in && before == 0)
        next[mine] += __popc(same);
    __syncwarp();
}

/* Turns counts into positions of the list: count[w][r] becomes that of warp w's first place of row
 * r. Called by all; begin: where the block's rows begin. */
static __device__ void order_positions(unsigned (*count)[ORDER_ROWS], const struct embed_list &a,
                                       unsigned begin)
{
    __shared__ unsigned ends[ORDER_ROWS / 32];
    unsigned r = threadIdx.x, lane = r % 32, all = 0, sum, n;
    int64_t row = (int64_t)blockIdx.x * ORDER_ROWS + r;

    if (r < ORDER_ROWS)
#pragma unroll
        for (int w = 0; w < ORDER_WARPS; w++)
            all += count[w][r];
    sum = all;
#pragma unroll
    for (unsigned step = 1; step < 32; step *= 2) {
        n = __shfl_up_sync(0xffffffffu, sum, step);
        sum += lane >= step ? n : 0;
    }
    if (r < ORDER_ROWS && lane == 31)
        ends[r / 32] = sum;
    __syncthreads();
    if (r >= ORDER_ROWS)
        return;
    sum += begin - all;
#pragma unroll
    for (unsigned w = 0; w < ORDER_ROWS / 32; w++)
        sum += w < r / 32 ? ends[w] : 0;
    if (row < a.rows)
        a.start[row] = sum;
    if (row == a.rows - 1)
        a.start[a.rows] = sum + all;
#pragma unroll 8
    for (int w = 0; w < ORDER_WARPS; w++) {
        n = count[w][r];
        count[w][r] = sum;
        sum += n;
    }
}

/* Block b lists the places of rows [b ORDER_ROWS, (b + 1) ORDER_ROWS); its warps share the places,
 * each a span of them. It looks at all tokens, so that it knows where its part of the list begins
 * without waiting for another block; each block begins with others, as all at once are after the
 * same lines of memory. */
__global__ void __launch_bounds__(32 * ORDER_WARPS) embed_order_kernel(struct embed_list a)
{
    __shared__ unsigned count[ORDER_WARPS][ORDER_ROWS];
    unsigned warp = (threadIdx.x / 32 + blockIdx.x) % ORDER_WARPS, lane = threadIdx.x % 32;
    unsigned rows = order_rows(a), row[ORDER_AHEAD], below;
    struct order_span span = order_span_of(a, warp);

    next_kernel_may_start();
    await_kernel_before();
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < a.zeros;
         i += gridDim.x * blockDim.x)
        a.zero[i] = 0;
    below = order_count(row, count[warp], a, span);
    order_positions(count, a, block_sum(below)); /* whose barriers the counts need, too */
    __syncthreads();
    for (unsigned s = 0; s < span.steps; s++) {
        unsigned at = span.begin + s * ORDER_STEP + lane;

        if (s > 0)
            order_fetch(row, a, at, span.end);
#pragma unroll
        for (int k = 0; k < ORDER_AHEAD; k++)
            order_list(count[warp], a, at + 32 * k, row[k], rows);
    }
}

extern "C" enum status gpu_embed_order(struct gpu_device *dev, const struct embed_list *list)
{
    unsigned blocks = (unsigned)((list->rows + ORDER_ROWS - 1) / ORDER_ROWS);

    TRY(launch_behind(dev, embed_order_kernel, dim3(blocks), 32 * ORDER_WARPS, *list));
    return gpu_launched(dev, "embed_backward, order");
}
