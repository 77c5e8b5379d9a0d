/* The kernel of glu.cu, its shape and how it is fed: a product of bf16 matrices whose results meet
 * SwiGLU on their way to memory.
 *
 *   BACK 0, forward        g = a b0', u = a b1', f = silu(g) u, all three written; tiles of 128
 *                          rows and 64 units.
 *   BACK 2 or 3, backward  df = a b0 stays in registers; dg and du from it, g and u; tiles of 128
 *                          rows and BACK times 64 columns.
 *
 * A block stays on its multiprocessor and does tile after tile. One warp group fetches operands
 * into a ring of pieces 64 deep along K; the two others do a tile each in turn, so that one
 * finishes its tile, in a slot, while the other multiplies. The two blocks of a cluster do tiles
 * one above the other, of one operand b, of which each fetches a half for both.
 *
 * Barriers: a stage is `full`, or `empty` in all blocks; what a slot wants of memory is `there`, or
 * the slot is `free`; it is a group's `turn` to multiply.
 *
 * Sums run over K in one order, whatever the number of rows: the same bits in every micro-batch.
 */
#ifndef GPU_GLU_CUH
#define GPU_GLU_CUH

#include "gpu/hopper.cuh"
#include "gpu/kernel.cuh"

enum {
    GLU_ROWS = 128,         /* of a tile */
    GLU_DEPTH = 64,         /* along K in a stage */
    GLU_HALF = 64 * 64 * 2, /* bytes of a [64, 64] tile */
    GLU_A = 2 * GLU_HALF,   /* bytes of a [128, 64] tile of a */
    GLU_CLUSTER = 2,        /* blocks */
    GLU_THREADS = 3 * 128,
    GLU_BAND = 8 /* clusters of rows that share their columns of b in the cache */
};

/* Boxes of the maps, columns by rows: a [64, 128]; forward's b [64, 64], backward's [64, 32]; the
 * others [64, 64]. */
struct glu_args {
    CUtensorMap a, b[2]; /* backward: b[0] alone */
    CUtensorMap g, u;    /* forward: out; backward: in */
    CUtensorMap out[2];  /* forward: f; backward: dg, du */
    int depth;           /* stages of a tile: K / GLU_DEPTH, rounded up */
    int down, across;    /* tiles, of clusters */
    enum swiglu_kind kind;
};

/* A tile, and shared memory: stages, then for each of the two groups SLOTS places for a piece of
 * its results, then barriers. */
template <int BACK> struct glu_place {
    enum {
        STAGES = BACK == 3 ? 4 : 5,
        SLOTS = BACK ? 2 : 1,
        B_TILES = BACK ? BACK : 2,
        COLS = BACK ? BACK * 64 : 64,
        SUMS = B_TILES * 32, /* of half a tile in a thread */
        STAGE = GLU_A + B_TILES * GLU_HALF,
        SLOT = (BACK ? 2 : 3) * GLU_HALF,
        BARRIERS = STAGES * STAGE + 2 * SLOTS * SLOT,
        BYTES = BARRIERS + (2 * STAGES + 4 * SLOTS + 2) * 8 + 1024 /* to align the whole */
    };
    uint32_t base;

    __device__ uint32_t stage(int s) const
    {
        return base + s * STAGE;
    }
    __device__ uint32_t slot(int group, int s) const
    {
        return base + STAGES * STAGE + (group * SLOTS + s) * SLOT;
    }
    __device__ uint32_t full(int s) const
    {
        return base + BARRIERS + s * 8;
    }
    __device__ uint32_t empty(int s) const
    {
        return full(STAGES + s);
    }
    __device__ uint32_t there(int group, int s) const
    {
        return full(2 * STAGES + group * SLOTS + s);
    }
    __device__ uint32_t free(int group, int s) const
    {
        return there(group, 2 * SLOTS + s);
    }
    __device__ uint32_t turn(int group) const
    {
        return full(2 * STAGES + 4 * SLOTS + group);
    }
};

#ifdef HOPPER_CODE
/* Where a block's tile begins. Tiles go down a band of rows, then on to the next columns. */
template <int BACK>
static __device__ __forceinline__ void glu_tile(const struct glu_args &p, int i, int *row, int *col)
{
    int band = i / (GLU_BAND * p.across), inside = i % (GLU_BAND * p.across);
    int high = min(GLU_BAND, p.down - band * GLU_BAND);

    *row = ((band * GLU_BAND + inside % high) * GLU_CLUSTER + cluster_rank()) * GLU_ROWS;
    *col = inside / high * glu_place<BACK>::COLS;
}

/* Fetches what a stage holds: K from k on. */
template <int BACK>
static __device__ __forceinline__ void glu_fetch(const struct glu_args &p, uint32_t at,
                                                 uint32_t bar, int row, int col, int k)
{
    constexpr uint16_t all = (1 << GLU_CLUSTER) - 1;
    unsigned rank = cluster_rank();
    uint32_t b = at + GLU_A;

    tile_fetch(at, &p.a, bar, k, row);
    if constexpr (BACK == 0) /* one of the two tiles a block */
        tile_fetch_all(b + rank * GLU_HALF, &p.b[rank], bar, k, col, all);
    else
        for (int i = 0; i < BACK; i++) /* half of the rows a block */
            tile_fetch_all(b + i * GLU_HALF + rank * (GLU_HALF / 2), &p.b[0], bar, col + i * 64,
                           k + rank * (GLU_DEPTH / 2), all);
}

/* One thread: operands of all tiles of this block. */
template <int BACK>
static __device__ void glu_feed(const struct glu_args &p, const struct glu_place<BACK> &place)
{
    int s = 0, parity = 1;

    for (int i = blockIdx.x / GLU_CLUSTER; i < p.down * p.across; i += gridDim.x / GLU_CLUSTER) {
        int row, col;

        glu_tile<BACK>(p, i, &row, &col);
        for (int k = 0; k < p.depth; k++) {
            barrier_wait(place.empty(s), parity);
            barrier_expect(place.full(s), place.STAGE);
            glu_fetch<BACK>(p, place.stage(s), place.full(s), row, col, k * GLU_DEPTH);
            if (++s == place.STAGES)
                s = 0, parity ^= 1;
        }
    }
}

/* One thread for each group, backward: g and u of its tiles, [64, 64] at a time. */
template <int BACK>
static __device__ void glu_feed_slots(const struct glu_args &p, const struct glu_place<BACK> &place,
                                      int group)
{
    int stride = gridDim.x / GLU_CLUSTER, s = 0, parity = 1;

    for (int i = blockIdx.x / GLU_CLUSTER + group * stride; i < p.down * p.across;
         i += 2 * stride) {
        int row, col;

        glu_tile<BACK>(p, i, &row, &col);
        for (int h = 0; h < 2 * BACK; h++) {
            uint32_t at = place.slot(group, s), bar = place.there(group, s);

            barrier_wait(place.free(group, s), parity);
            barrier_expect(bar, place.SLOT);
            tile_fetch(at, &p.g, bar, col + h % BACK * 64, row + h / BACK * 64);
            tile_fetch(at + GLU_HALF, &p.u, bar, col + h % BACK * 64, row + h / BACK * 64);
            if (++s == place.SLOTS)
                s = 0, parity ^= 1;
        }
    }
}
#endif

#endif
