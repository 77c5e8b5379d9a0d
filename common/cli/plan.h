/* The verbs of `narrows plan` that have files of their own. */
#ifndef COMMON_CLI_PLAN_H
#define COMMON_CLI_PLAN_H

#include "common/base/status.h"

/* `narrows plan memory`; argv: what follows the verb. */
enum status plan_memory(int argc, char **argv);

#endif
