/* The weights of a checkpoint as a folder of whole tensors. */
#ifndef COMMON_CLI_CHECKPOINT_EXPORT_H
#define COMMON_CLI_CHECKPOINT_EXPORT_H

#include "common/backend/host.h"

/* Writes to `output` what weights_save writes, from the checkpoint in folder `from`: exact values
 * (masters where there are any), in F32, or F64 of a fp64 run. job: one rank. Errors: ST_EIO,
 * ST_EFORMAT naming file and tensor, ST_ENOMEM. */
enum status checkpoint_export(struct host *job, const char *output, const char *from);

#endif
