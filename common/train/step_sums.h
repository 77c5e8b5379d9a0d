/* How a step's micro-batches, and the head's chunks of them, join the sums over samples
 * (common/tensor/sample_plan.h). */
#ifndef COMMON_TRAIN_STEP_SUMS_H
#define COMMON_TRAIN_STEP_SUMS_H

#include "common/train/step.h"

/* Plans for all micro-batches and, on the last stage of a step that trains, for their chunks; all
 * but the planes. Sets s->head_chunk and s->head_chunks. Errors: ST_ENOMEM. */
enum status step_sums_open(struct step *s);
void step_sums_close(struct step *s);

/* Slots that the plans name. */
struct grad_slots step_sums_slots(const struct step *s);

/* The planes, once gradients have been carved. */
void step_sums_place(struct step *s);

#endif
