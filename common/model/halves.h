/* Forward of a run of blocks in two half-batches, so that the messages of one travel while the
 * other computes.
 *
 * The forward of a block is a list of four projections, each a begin, after which a message is
 * under way, and an end, which waits for it (model/block.h). A leg ends one projection and begins
 * the next. For blocks b .. e the two halves h and k take turns, leg by leg:
 *
 *     begin h0, begin k0, end h0 begin h1, end k0 begin k1, ..., end h, end k
 *
 * The message of h flies during a whole leg of k, and the other way round. The halves are rows of
 * the same activations: backward sees one micro-batch and computes each weight gradient once. Each
 * half has a communicator and scratch of its own. With rows cut into sequences (layout_exact) the
 * bits are those of forward in one piece.
 */
#ifndef COMMON_MODEL_HALVES_H
#define COMMON_MODEL_HALVES_H

#include "common/model/block.h"

/* What a stage has for it. */
struct halves {
    struct comm
        *second;  /* borrowed, the same ranks as env->tp.tp; NULL: forward in one piece      */
    size_t bytes; /* of scratch for each half; when that only plans: what a half has needed */
};

/* A run of blocks: n weights and as many activations, of a->x0.rows / seq sequences. */
struct halves_run {
    const struct block *block;
    struct block_acts *acts;
    int n;
    int64_t seq;
};

/* Nonzero when forward of so many sequences goes in halves: there are two, and ranks to send to. */
int halves_apply(const struct halves *h, const struct block_env *env, int64_t samples);

/* x2 of the last block from x0 of the first, as block_forward one after another. Takes the scratch
 * of both halves from env's. Collective over env->tp.tp and h->second. */
enum status halves_forward(struct halves *h, struct block_env *env, const struct halves_run *run);

#endif
