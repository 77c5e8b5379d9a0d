/* The folder of a run: config.yaml, metrics.jsonl, train.log, best/, final/.
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

/* Flushes and closes; reports what could not be written (a full disk). Errors: ST_EIO. */
enum status run_dir_close(struct run_dir *r);

#endif
