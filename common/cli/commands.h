/* The commands of narrows: one file each, one table in commands.c. */
#ifndef COMMON_CLI_COMMANDS_H
#define COMMON_CLI_COMMANDS_H

#include "common/backend/host.h"

struct command {
    const char *name;
    const char *summary; /* for `narrows help`; NULL: for this program's own use */
    int job;             /* runs as an MPI job: `job` is started before, ended after */
    enum status (*run)(struct host *job, int argc, char **argv); /* what follows the name */
    int (*program)(int argc,
                   char **argv); /* instead of run: starts a job, returns its exit status */
};

/* The table; ends with name NULL. */
const struct command *commands(void);

/* Each command; argv[0 .. argc) are the words after its name. job: NULL unless struct command says
 * so. Collective over the job where there is one. */
enum status command_train(struct host *job, int argc, char **argv);
enum status command_import(struct host *job, int argc, char **argv);
enum status command_export(struct host *job, int argc, char **argv);
enum status command_eval(struct host *job, int argc, char **argv);
enum status command_generate(struct host *job, int argc, char **argv);
enum status command_data(struct host *job, int argc, char **argv);
enum status command_tokenize(struct host *job, int argc, char **argv);
enum status command_checkpoint(struct host *job, int argc, char **argv);
enum status command_bench(struct host *job, int argc, char **argv);
enum status command_validate(struct host *job, int argc, char **argv);
enum status command_validate_job(struct host *job, int argc, char **argv);
enum status command_plan(struct host *job, int argc, char **argv);
enum status command_presets(struct host *job, int argc, char **argv);
enum status command_config(struct host *job, int argc, char **argv);

#endif
