/* Starting a job of several ranks on this machine: mpirun with the settings that narrows needs.
 *
 * Signals: the first SIGINT or SIGTERM asks all ranks for an orderly stop (they get SIGUSR1, see
 * interrupt.h; mpirun would kill them 0.9 s after a SIGINT of its own), the second ends the job.
 * When this process dies, the job ends. The ranks' standard input is empty.
 */
#ifndef COMMON_CLI_LAUNCH_H
#define COMMON_CLI_LAUNCH_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { LAUNCH_RANKS_MAX = 1024 };

struct launch {
    int ranks;           /* 1 to LAUNCH_RANKS_MAX */
    int threads;         /* of a rank; 0: OMP_NUM_THREADS when set, else cores / ranks */
    bool bind;           /* each rank to `threads` cores of its own */
    double timeout;      /* seconds after which the job is ended; 0: none */
    const char *program; /* path or name; NULL: this program */
};

struct launch_result {
    int exit_code; /* of the job: 0, a rank's own, 128 + signal, or 124 after the timeout */
    bool timed_out, interrupted;
    int signal, rank; /* the signal that a rank died from (0: none), and which */
    char node[64];    /* where it ran */
};

/* Runs a job to its end: program argv[0] argv[1] ... NULL on every rank. output NULL: what the
 * ranks print goes where this process prints; else both streams are collected in *output, a text
 * of at most `limit` bytes (more is dropped from the end) that the caller frees. mpirun's own
 * words about ranks that end badly are left out; launch_explain has them in short. Works from
 * within an MPI process of one rank. Errors: ST_EUSAGE when the ranks cannot be placed, ST_ECOMM
 * when there is no usable mpirun, ST_EIO, ST_ENOMEM; a job that fails is not an error here. */
enum status launch_run(struct launch_result *result, const struct launch *job, char *const *argv,
                       char **output, size_t limit);

/* Writes to text what is to be said about how a job ended beyond what its ranks said; "" when
 * that is nothing. */
void launch_explain(char *text, size_t size, const struct launch *job,
                    const struct launch_result *result);

/* Cores and processors (hardware threads) that this process may use. */
void launch_cores(int *cores, int *processors);

/* `narrows launch`: argv[0 .. argc) are the words after the command's name. Prints its own
 * messages. Returns the exit status of the job, or that of its own failure. */
int launch_command(int argc, char **argv);

#endif
