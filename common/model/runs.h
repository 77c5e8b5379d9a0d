/* How the blocks of a model are dealt to the runs of a pipeline (parallel/schedule.h). */
#ifndef COMMON_MODEL_RUNS_H
#define COMMON_MODEL_RUNS_H

#include "common/model/config.h"
#include "common/parallel/schedule.h"

enum { RUNS_MAX = 4096 };

/* The order that parallel.schedule names. */
enum schedule_order runs_order(const struct config *cfg);

/* What a run costs: of each block, and beside them, with the ends of the model where it has them.
 * flops: the products of one token forward (twice a weight, attention counted by half). bytes: on
 * a rank; weights, gradients, masters and moments, what the micro-batches that are live at once
 * leave in it, and logits. Other temporaries and messages are left out: no deal changes them. */
struct run_cost {
    double flops, flops_else;
    double bytes, bytes_else;
    int stage; /* whose time and memory it takes */
};

/* cost[runs] of a resolved configuration; runs = parallel.pp x parallel.virtual_stages. Errors:
 * ST_ENOMEM. */
enum status run_costs(struct run_cost *cost, const struct config *cfg, int runs);

/* layers[runs]: `blocks` blocks dealt so that no stage takes more than most_bytes (0: no limit);
 * of all such deals one whose longest run is shortest, and of those one whose largest stage is
 * smallest. One block or more each. Returns 0, or, where no deal keeps the limit, the number of
 * blocks that found no place. A function of its arguments; costs of blocks must be alike in flops.
 * room [stages]: is filled with the bytes of each stage. */
int64_t runs_balance(int *layers, double *room, const struct run_cost *cost, int runs, int stages,
                     int64_t blocks, double most_bytes);

/* first[0 .. runs]: run k holds blocks [first[k], first[k + 1]). parallel.stage_layers says how
 * many; "": runs_balance of run_costs, within parallel.stage_memory. Errors: ST_ECONFIG with
 * numbers and a way out when there are fewer blocks than runs, the list does not fit, or the
 * memory does not do; ST_ENOMEM. */
enum status runs_deal(int *first, const struct config *cfg, int runs);

#endif
