/* `narrows train --dry-run`: what a run would need and send, by rehearsal. */
#ifndef COMMON_CLI_DRY_RUN_H
#define COMMON_CLI_DRY_RUN_H

#include "common/backend/host.h"
#include "common/model/config.h"

/* Prints, on rank 0, parameters (whole and a rank), memory by kind and rank, collectives and bytes
 * of a step by purpose, and FLOPs a token, for cfg as if on `ranks` ranks (0: as cfg says, a
 * dp of 0 being 1). No device is opened and
 * nothing large is allocated. Errors: those of the configuration. */
enum status dry_run(struct host *job, struct config *cfg, int64_t ranks);

#endif
