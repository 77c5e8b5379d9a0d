/* A backend under test against the reference, whole steps and whole runs, in one process.
 *
 * o->backend names it (run.backend: ref or gpu). Under ref the reference stands in for it, to try
 * the checks where there is no other: comparisons of a thing with itself are then left out. job:
 * this process alone. layout_exact is off on both sides, as it is where speed counts. Errors: as of
 * place_open where the backend was not built or has no device; missed bounds are none. */
#ifndef VALIDATION_AGREE_H
#define VALIDATION_AGREE_H

#include "validation/check.h"

/* Loss and every parameter's gradient from the same weights and batch, for each layer, strategy,
 * recomputation and precision: ||g_test - g_ref|| / ||g_ref||, worst tensor. fp32 against ref64
 * with the very same weights; bf16 against ref, which rounds at the same places, and against ref64
 * with the weights that bf16 reads. */
enum status agree_step(const struct check_options *o, struct report *r, struct host *job);

/* o->steps training steps twice from scratch on the backend under test: the same bits of weights,
 * losses and gradient norms. */
enum status agree_repeat(const struct check_options *o, struct report *r, struct host *job);

/* o->steps training steps on the text o->data from the same seed: the reference in fp32, the
 * backend in fp32 and bf16, side by side; the largest difference of the smoothed losses. */
enum status agree_train(const struct check_options *o, struct report *r, struct host *job);

#endif
