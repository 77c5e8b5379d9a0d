/* Requests from outside to stop: a step is finished, a checkpoint written, the program ends.
 *
 * SIGINT, SIGTERM and SIGUSR1 ask for an orderly stop (`narrows launch` turns Ctrl-C into SIGUSR1
 * for the ranks: mpirun passes that on and does nothing else). SIGINT or SIGTERM while a stop has
 * already been asked for ends the process at once, with status 130. */
#ifndef COMMON_CLI_INTERRUPT_H
#define COMMON_CLI_INTERRUPT_H

/* Handles these signals from now on; a write to a closed pipe is an error of the write (ST_EIO)
 * instead of the end of the process. Once, before threads start. Local. */
void interrupt_install(void);

/* Nonzero once a stop was asked for on this rank. Ranks learn of it at different times: agree
 * before acting on it. Local. */
int interrupt_requested(void);

#endif
