/* The folder of a run: config.yaml, metrics.jsonl, train.log, best/, final/, checkpoints/.
 *
 * A run never overwrites another one unasked. Rank 0 of the job writes; the others only agree.
 */
#ifndef COMMON_TRAIN_RUN_DIR_H
#define COMMON_TRAIN_RUN_DIR_H

#include "common/model/config.h"

#include <stdio.h>

struct run_dir {
    char path[CONFIG_TEXT + 16];
    FILE *metrics; /* NULL on ranks that do not write */
};

/* The folder that a configuration names: run.dir, or runs/<name>. */
void run_dir_path(char out[CONFIG_TEXT + 16], const struct config *cfg);

/* Makes the folder, writes config.yaml, opens metrics.jsonl and train.log (log_tee). Local: call
 * on the writing rank. Errors: ST_ECONFIG when a run is there and run.overwrite is off; ST_EIO
 * naming the path and the cause. */
enum status run_dir_open(struct run_dir *r, const struct config *cfg);

/* The same for a run that goes on in its folder after `step`: everything stays, but records of
 * later steps, which the run will write again, and (run.overwrite on) later checkpoints. Errors:
 * as above; ST_ECONFIG when later checkpoints are there and run.overwrite is off, unless they were
 * found to be damaged (skipped: nonzero). */
enum status run_dir_continue(struct run_dir *r, const struct config *cfg, int64_t step,
                             int skipped);

/* Nonzero when checkpoint folder `path` lies in the run folder that cfg names. */
int run_dir_holds(const struct config *cfg, const char *path);

/* Flushes and closes; reports what could not be written (a full disk). Errors: ST_EIO. */
enum status run_dir_close(struct run_dir *r);

#endif
