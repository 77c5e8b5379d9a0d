/* The state of a training run in pieces: for each (tensor, grain) its weight, master and moments.
 *
 * The pair (tensor, grain) is the unit that layouts share: every rank holds whole grains of a
 * parameter, so that what one layout wrote is what another reads. A piece is a rectangle of the
 * whole tensor; rows that pad the vocabulary are in no piece.
 */
#ifndef COMMON_CHECKPOINT_PIECE_H
#define COMMON_CHECKPOINT_PIECE_H

#include "common/model/params.h"

enum piece_kind {
    PIECE_WEIGHT, /* what the model reads */
    PIECE_MASTER, /* its wide copy, where there is one */
    PIECE_M,      /* AdamW's first moment */
    PIECE_V,      /* and second */
    PIECE_KINDS
};

/* A rectangle of a whole tensor. */
struct piece_area {
    int64_t row, col, rows, cols;
};

/* A piece in this rank's memory. */
struct piece {
    const struct param *param; /* borrowed */
    enum piece_kind kind;
    int32_t grain;             /* its number in the whole tensor */
    struct tensor memory;      /* the piece */
    const struct tensor *home; /* this rank's shard, which it is part of */
    struct piece_area area;
};

struct pieces {
    struct piece *item;
    int n;
};

/* Where a rank stands among those that hold the same: its replica, of how many. */
struct piece_owner {
    int replica, replicas;
};

/* "weight", "master", "m", "v". */
const char *piece_kind_name(enum piece_kind kind);

/* The kind of that name; PIECE_KINDS when there is none. */
enum piece_kind piece_kind_find(const char *name);

/* The memory of a kind of a parameter; its data is NULL where this run has none. */
const struct tensor *piece_memory(const struct param *row, enum piece_kind kind);

/* The area of a grain of a parameter (from 0, of this rank's), its real rows only: rows may be 0.
 */
struct piece_area piece_grain_area(const struct params *p, const struct param *row, int32_t grain);

/* Lists the pieces that this rank owns: of what several ranks hold, each is owned by exactly one,
 * and the bytes are dealt evenly. All kinds of a (tensor, grain) have the same owner. Memory of p
 * must have been carved. Local; every rank finds its own part. Errors: ST_ENOMEM. */
enum status pieces_list(struct pieces *out, const struct params *p, struct piece_owner at);
void pieces_free(struct pieces *out);

#endif
