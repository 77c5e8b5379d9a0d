/* Commands that have verbs: `narrows data prepare ...`, `narrows data inspect ...`. */
#ifndef COMMON_CLI_VERBS_H
#define COMMON_CLI_VERBS_H

#include "common/backend/host.h"

struct verb {
    const char *name;
    const char *summary; /* beginning with a verb, no full stop */
    enum status (*run)(struct host *job, int argc, char **argv); /* what follows the name */
};

/* Runs the verb that argv[0] names, or prints the list of verbs for --help; the table ends with
 * name NULL. about: what the command is for, a few lines. Errors: ST_EUSAGE for no verb or an
 * unknown one, with the nearest; those of the verb. */
enum status verbs_run(struct host *job, const char *command, const char *about,
                      const struct verb *verbs, int argc, char **argv);

#endif
