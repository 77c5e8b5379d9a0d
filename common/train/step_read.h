/* What steps found, on its way from the device to the host; private to step*.c. */
#ifndef COMMON_TRAIN_STEP_READ_H
#define COMMON_TRAIN_STEP_READ_H

#include "common/train/step.h"

/* Room for the results of step_slots(s) steps, on the device in s->batch where that is more than
 * one; s->loss must be there. Errors: ST_ENOMEM. */
enum status step_kept_open(struct step *s);
void step_kept_close(struct step *s);

/* Puts the result of the step that was just given to the device, with `valid` targets, into the
 * next slot. Local; does not wait. */
enum status step_keep(struct step *s, int64_t valid);

/* Summed loss of the global batch that was just run, samples added in their order; s->host_loss and
 * s->sample_loss then hold that of each token and sample. Waits. Collective over the job. */
enum status step_total_loss(struct step *s, double *sum);

#endif
