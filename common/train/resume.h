/* Going on from a checkpoint: which one, whether it is this run's, and putting it back.
 *
 * A run that is resumed keeps its model, data, seed and optimiser. Its layout, length and output
 * may change: layout changes no bit; another length changes the learning rate from here on, where
 * the schedule depends on it. What the run would compute with other bits is said.
 */
#ifndef COMMON_TRAIN_RESUME_H
#define COMMON_TRAIN_RESUME_H

#include "common/checkpoint/manifest.h"
#include "common/train/trainer.h"

/* Nothing when a run with the configuration `was` may go on as `is`; both resolved. Says
 * (log_info) what makes bits differ. Errors: ST_ECONFIG naming every key that may not change, with
 * both values. */
enum status resume_compare(const struct config *was, const struct config *is);

/* What t->resume asks for: sets the step's weights and moments and where the trainer stands, or
 * leaves all as it is when a run that is to go on has no checkpoint yet. Says what it skipped and
 * why. Collective. Errors: ST_ECONFIG for a configuration or texts that differ, ST_EIO or
 * ST_EFORMAT when no checkpoint is whole. */
enum status resume_run(struct trainer *t);

/* What a checkpoint of now says beside its tensors. */
struct manifest_state resume_state(const struct trainer *t);

#endif
