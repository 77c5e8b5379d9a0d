/* The orders of passes behind schedule.h. Private to schedule*.c and their test. */
#ifndef COMMON_PARALLEL_SCHEDULE_ORDER_H
#define COMMON_PARALLEL_SCHEDULE_ORDER_H

#include "common/parallel/schedule.h"

enum pass_kind { PASS_FORWARD, PASS_BACKWARD, PASS_INPUT, PASS_WEIGHT };

struct pass {
    enum pass_kind kind;
    int micro, chunk;
};

/* Passes of a stage, at most 3 a micro-batch and chunk, into list; returns how many. */
int schedule_passes(struct pass *list, const struct schedule_shape *shape);

/* Pass number k of all forward (backward) passes of a stage. */
struct pass schedule_forward_pass(const struct schedule_shape *shape, int k);
struct pass schedule_backward_pass(const struct schedule_shape *shape, int k);

#endif
