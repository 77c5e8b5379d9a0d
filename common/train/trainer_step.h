/* One step of a run, and what is told about it once the host has read what it found. */
#ifndef COMMON_TRAIN_TRAINER_STEP_H
#define COMMON_TRAIN_TRAINER_STEP_H

#include "common/train/trainer.h"

/* Room for the steps that the host has not read; t->step must be open. Errors: ST_ENOMEM. */
enum status trainer_steps_open(struct trainer *t);
void trainer_steps_close(struct trainer *t);

/* Step t->done + 1: its batch, a replay where one is due, the step itself; then reads, where
 * train.read_every says so, what it and those before it found. The caller counts t->done up and
 * lets the ranks agree. Collective. Errors: those of trainer_read, of the loader and the step. */
enum status trainer_step(struct trainer *t);

/* Reads what the steps found that have not been read, oldest first: skipped updates are counted,
 * records and lines written, t->loss and the last norm set. Nothing is left. Collective.
 * Errors: ST_ENUMERIC after TRAINER_MAX_SKIPS skipped updates in a row; ST_EIO. */
enum status trainer_read(struct trainer *t);

/* The same between steps, with the ranks' agreement; returns at once when nothing is left to read.
 * Before everything that shows or keeps the state of the run. */
enum status trainer_catch_up(struct trainer *t);

#endif
