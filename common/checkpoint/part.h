/* The state of a training run in parts: for each (tensor, grain) its weight, master and moments.
 *
 * The pair (tensor, grain) is the unit that layouts share: every rank holds whole grains of a
 * parameter, so that what one layout wrote is what another reads. A part is a rectangle of the
 * whole tensor; rows that pad the vocabulary are in no part.
 */
#ifndef COMMON_CHECKPOINT_PART_H
#define COMMON_CHECKPOINT_PART_H

#include "common/model/grains.h"

enum part_kind {
    PART_WEIGHT, /* what the model reads */
    PART_MASTER, /* its wide copy, where there is one */
    PART_M,      /* AdamW's first moment */
    PART_V,      /* and second */
    PART_KINDS
};

/* A rectangle of a whole tensor. */
struct part_area {
    int64_t row, col, rows, cols;
};

/* A part in this rank's memory. */
struct part {
    const struct param *param; /* borrowed */
    enum part_kind kind;
    int32_t grain;             /* its number in the whole tensor */
    struct tensor memory;      /* the part */
    const struct tensor *home; /* this rank's shard, which it is part of */
    struct part_area area;
};

struct parts {
    struct part *item;
    int n;
};

/* Where a rank stands among those that hold the same: its replica, of how many. */
struct part_owner {
    int replica, replicas;
};

/* "weight", "master", "m", "v". */
const char *part_kind_name(enum part_kind kind);

/* The kind of that name; PART_KINDS when there is none. */
enum part_kind part_kind_find(const char *name);

/* Nonzero when this run has that kind of a parameter, on this rank or, sharded, on another. */
int part_exists(const struct params *p, const struct param *row, enum part_kind kind);

/* The memory of a kind of a parameter; its data is NULL where this run has none, or has it in
 * shards (part_of_shard). */
const struct tensor *part_memory(const struct param *row, enum part_kind kind);

/* The area of a grain of a parameter (from 0, of this rank's), its real rows only: rows may be 0.
 */
struct part_area part_grain_area(const struct params *p, const struct param *row, int32_t grain);

/* The same of a (tensor, grain) that this rank's shard of ZeRO-1 has; data NULL: another has it. */
const struct tensor *part_of_shard(const struct grain *piece, enum part_kind kind);

/* Lists the parts that this rank owns: of what several ranks hold, each is owned by exactly one,
 * and the bytes are dealt evenly (with ZeRO-1 by model/grains.h). A tied matrix is the first
 * stage's. All kinds of a (tensor, grain) have the same owner. Memory of p must have been carved.
 * Local; every rank finds its own part. Errors: ST_ENOMEM. */
enum status parts_list(struct parts *out, const struct params *p, struct part_owner at);
void parts_free(struct parts *out);

#endif
