/* Weight gradients that wait for a good moment.
 *
 * A backward pass needs input gradients at once and weight gradients some time: they are queued
 * and run while a collective flies, or at the latest when their operands' scratch is released.
 */
#ifndef COMMON_PARALLEL_WGRAD_H
#define COMMON_PARALLEL_WGRAD_H

#include "common/backend/op.h"

enum { WGRAD_MAX = 16 };

struct wgrad_queue {
    struct weight_grad item[WGRAD_MAX];
    int n;
};

/* Queues dw += dy' x; the operands must live until wgrad_run. Errors: ST_EINTERNAL when full. */
enum status wgrad_push(struct wgrad_queue *q, const struct tensor *dw, const struct tensor *dy,
                       const struct tensor *x);

/* Runs and empties the queue, joining by plan. */
enum status wgrad_run(struct wgrad_queue *q, struct device *dev, const struct sample_plan *plan);

#endif
