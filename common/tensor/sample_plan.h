/* How one micro-batch's share of a sum over samples joins the sum of the whole global batch.
 *
 * A gradient is a sum over the samples of the global batch. So that its bits do not depend on how
 * samples are dealt to ranks and micro-batches, it is summed over a fixed tree: the sum of samples
 * [lo, hi) is that of [lo, mid) plus that of [mid, hi), mid = lo + (hi - lo) / 2. The samples of a
 * micro-batch form one or more whole nodes of that tree. A finished node waits in a slot (a plane
 * of the gradient arena) until its sibling arrives.
 *
 * The plan of a micro-batch is the same for every parameter and is made once (sample_plan_next);
 * a backend carries it out for each gradient: for each node, sum its samples (recursive halving),
 * add the waiting slots named in `merge`, store into `slot`.
 */
#ifndef COMMON_TENSOR_SAMPLE_PLAN_H
#define COMMON_TENSOR_SAMPLE_PLAN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SAMPLE_PLAN_NODES = 64, SAMPLE_PLAN_DEPTH = 48 };

struct sample_node {
    int32_t first, count;             /* samples of the micro-batch: [first, first + count)      */
    int32_t merges;                   /* waiting slots to add, innermost sibling first           */
    int32_t merge[SAMPLE_PLAN_DEPTH]; /* their numbers                                           */
    int32_t slot;                     /* where the sum goes; may be one of those merged          */
};

struct sample_plan {
    int32_t samples; /* in this micro-batch                                                  */
    int32_t exact;   /* 0: sum the micro-batch as one block of rows (layout_exact: off)      */
    int64_t plane;   /* bytes from slot j of a gradient to slot j + 1; may be negative       */
    int32_t nodes;
    struct sample_node node[SAMPLE_PLAN_NODES];
};

/* The state between micro-batches: which tree nodes wait in which slots. */
struct sample_tree {
    int64_t begin, end; /* this rank's samples of the global batch */
    int64_t next;       /* the first that has not come yet */
    int32_t exact, waiting;
    struct {
        int64_t begin, end;
        int32_t slot;
    } node[SAMPLE_PLAN_DEPTH];
};

/* Samples [*begin, *end) of a global batch of n that rank `rank` of `ranks` holds: node `rank` at
 * depth log2(ranks) of the tree. For ranks that are no power of two the same halving is applied to
 * the ranks; the result is then not a node and exact sums are not to be had. Needs ranks <= n. */
void sample_share(int64_t n, int64_t rank, int64_t ranks, int64_t *begin, int64_t *end);

/* Starts the tree for the samples [begin, end) of this rank. */
void sample_tree_start(struct sample_tree *t, int64_t begin, int64_t end, int exact);

/* The plan for the next `samples` samples of t, in order. Fills all but plane. When the last one
 * has come, the whole sum stands in slot 0. */
void sample_plan_next(struct sample_plan *plan, struct sample_tree *t, int64_t samples);

/* Slots that n plans name: the highest number and one; 0 when there is none. */
int32_t sample_plan_slots(const struct sample_plan *plan, int64_t n);

/* Slots that a run over [begin, end) in micro-batches of `micro` needs at most (1 or more). */
int32_t sample_slots(int64_t begin, int64_t end, int64_t micro, int exact);

#ifdef __cplusplus
}
#endif
#endif
