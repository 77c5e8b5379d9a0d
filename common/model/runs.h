/* How the blocks of a model are dealt to the runs of a pipeline (parallel/schedule.h). */
#ifndef COMMON_MODEL_RUNS_H
#define COMMON_MODEL_RUNS_H

#include "common/model/config.h"

enum { RUNS_MAX = 4096 };

/* What a run of blocks costs: the products of one token forward (twice a weight, attention counted
 * by half), and the weights that it holds. The embedding costs memory alone. */
struct run_cost {
    double flops, weights;
};

/* Blocks [first, first + layers) of a resolved configuration, with the ends where the run is the
 * first or last of the model. */
struct run_cost run_cost(const struct config *cfg, int64_t layers, int is_first, int is_last);

/* first[0 .. runs]: run k holds blocks [first[k], first[k + 1]). parallel.stage_layers says how
 * many; "": one block each, and every further one to the run that is cheapest so far, by
 * operations, then by weights, then by number: no other deal has a cheaper dearest run. Errors:
 * ST_ECONFIG with numbers and a way out when there are fewer blocks than runs or the list does not
 * fit. */
enum status runs_deal(int *first, const struct config *cfg, int runs);

#endif
