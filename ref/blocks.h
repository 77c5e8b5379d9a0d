/* A matrix cut into pieces (grains each way) and each piece into blocks that stay in cache. The
 * shape of a block depends on that of a piece alone, never on how many pieces there are. */
#ifndef REF_BLOCKS_H
#define REF_BLOCKS_H

#include <stdint.h>

/* One block in float is half a MiB, and three stay in a core's cache; one that is the only one in
 * use, or nearly so, may be twice as large: at 512 x 512 OpenBLAS reaches its full rate. */
enum { BLOCK_ELEMENTS = 131072, LONE_ELEMENTS = 262144 };

struct blocks {
    int64_t piece_rows, piece_cols, block_rows, block_cols;
    int64_t down, across;  /* blocks of a piece */
    int64_t pieces_across; /* pieces side by side */
    int64_t count;         /* blocks in all */
};

struct block {
    int64_t row, col, rows, cols;
};

/* a / b rounded up; both positive. */
static inline int64_t blocks_ceil(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* pieces of [rows, cols] each, down * across of them. A block is a piece whose longer side was
 * halved, in multiples of 32, until it has at most `limit` elements; limit 0: the piece itself. */
static inline struct blocks blocks_cut(int64_t rows, int64_t cols, int64_t down, int64_t across,
                                       int64_t limit)
{
    struct blocks b = {.piece_rows = rows, .piece_cols = cols, .pieces_across = across};
    int64_t r = rows, c = cols;

    while (limit > 0 && r * c > limit) {
        if (r >= c)
            r = blocks_ceil(blocks_ceil(r, 2), 32) * 32;
        else
            c = blocks_ceil(blocks_ceil(c, 2), 32) * 32;
    }
    b.block_rows = r;
    b.block_cols = c;
    b.down = blocks_ceil(rows, r);
    b.across = blocks_ceil(cols, c);
    b.count = down * across * b.down * b.across;
    return b;
}

/* Block i: all blocks of a piece before those of the next, pieces row by row. */
static inline struct block blocks_at(const struct blocks *b, int64_t i)
{
    int64_t across = i % b->across, down = i / b->across % b->down;
    int64_t piece = i / (b->across * b->down);
    int64_t row = down * b->block_rows, col = across * b->block_cols;
    struct block r;

    r.row = piece / b->pieces_across * b->piece_rows + row;
    r.col = piece % b->pieces_across * b->piece_cols + col;
    r.rows = b->piece_rows - row < b->block_rows ? b->piece_rows - row : b->block_rows;
    r.cols = b->piece_cols - col < b->block_cols ? b->piece_cols - col : b->block_cols;
    return r;
}

#endif
