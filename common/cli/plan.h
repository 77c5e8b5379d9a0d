/* The verbs of `narrows plan` that have files of their own. */
#ifndef COMMON_CLI_PLAN_H
#define COMMON_CLI_PLAN_H

#include "common/backend/host.h"

/* `narrows plan memory`; argv: what follows the verb. */
enum status plan_memory(struct host *job, int argc, char **argv);

#endif
