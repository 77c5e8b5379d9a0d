/* The trainer's text and batches. */
#ifndef COMMON_TRAIN_TRAINER_DATA_H
#define COMMON_TRAIN_TRAINER_DATA_H

#include "common/train/trainer.h"

/* Opens training and validation data; each rank checks its share of the shards' ids, so that all
 * must agree on the result. Local. Errors: as dataset_open. */
enum status trainer_data_open(struct trainer *t);

/* Closes them, batches and the thread that reads ahead. */
void trainer_data_close(struct trainer *t);

/* What tells the texts from others: equal when a run may go on with them. */
void trainer_data_hashes(uint64_t *train, uint64_t *validation, const struct trainer *t);

/* Host memory for this rank's rows of a batch, and the thread that reads the next one; t->step must
 * be open. Errors: those of prefetch_open. */
enum status trainer_batch_open(struct trainer *t);

/* This rank's rows of the global batch of step t->done into t->batch; that of the step after it, if
 * there is one, is begun to be read. Local. Errors: those of the loader for this step. */
enum status trainer_training_batch(struct trainer *t);

/* This rank's rows of validation batch b into t->batch, rows beyond train.eval_sequences masked;
 * valid: targets of the whole batch that count, 0 past the end of the set. */
enum status trainer_validation_batch(struct trainer *t, int64_t b, int64_t *valid);

#endif
