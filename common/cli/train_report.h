/* What `narrows train` tells before and after the steps. */
#ifndef COMMON_CLI_TRAIN_REPORT_H
#define COMMON_CLI_TRAIN_REPORT_H

#include "common/train/trainer.h"

/* The table of resolved settings: model, layout, batch, data, memory, device, run folder. */
void train_settings(const struct trainer *t);

/* Text by the trained model, as section sample says; the first replica's ranks write it. Collective
 * over the job. */
enum status train_sample(struct trainer *t);

/* Time, loss, where the run is and what to try next. config: the file that was trained. */
void train_summary(const struct trainer *t, const char *config);

#endif
