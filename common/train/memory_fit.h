/* How many sequences a rank can process at once in a given memory, found by rehearsal.
 *
 * A micro-batch of n sequences means a global batch of n x (micro-batches of a step) x
 * parallel.dp; all else stays as the configuration says. A rehearsal (step_plan_at) tells what it
 * needs, so no device is opened and nothing large is allocated.
 */
#ifndef COMMON_TRAIN_MEMORY_FIT_H
#define COMMON_TRAIN_MEMORY_FIT_H

#include "common/train/step.h"

/* Device memory that a backend takes beside the arenas of a step. */
struct memory_beside {
    size_t products; /* workspace of matrix products                                          */
    size_t scratch;  /* of operations, attention's workspace included                         */
    size_t messages; /* buffers of the communication library                                  */
    size_t context;  /* of the driver, once a process                                         */
    size_t code;     /* kernels that libraries load at first use, once a process              */
};

struct memory_limit {
    size_t bytes; /* of a rank */
    /* What the backend of a resolved configuration takes beside; depends on train.micro_batch, and
     * is least for 1. */
    enum status (*beside)(struct memory_beside *beside, const struct config *cfg);
};

/* Nothing: the reference backend. */
enum status memory_beside_none(struct memory_beside *beside, const struct config *cfg);

/* What the fullest rank of a layout needs, of all stages and replicas. */
struct memory_use {
    int64_t micro_batch;
    struct step_memory step;
    struct memory_beside beside;
    size_t bytes; /* in all */
};

struct memory_fit {
    struct memory_use fits; /* micro_batch 0, and nothing else: not even one sequence does */
    struct memory_use over; /* with one sequence more: more than the limit. micro_batch 0 when the
                             * largest global batch that narrows takes fits                      */
};

/* Bytes of all of m, and of all of beside. */
size_t step_memory_bytes(const struct step_memory *m);
size_t memory_beside_bytes(const struct memory_beside *beside);

/* What micro-batches of n sequences need. cfg: resolved and valid. Local. */
enum status memory_use(struct memory_use *use, const struct config *cfg,
                       const struct memory_limit *limit, int64_t n);

/* The largest micro-batch within the limit. cfg: resolved and valid; its own micro-batch and batch
 * only say how many micro-batches a step has. Local. */
enum status memory_fit(struct memory_fit *fit, const struct config *cfg,
                       const struct memory_limit *limit);

#endif
