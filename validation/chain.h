/* Runs of `narrows train` that go on from each other in one folder, also after being killed. */
#ifndef VALIDATION_CHAIN_H
#define VALIDATION_CHAIN_H

#include "validation/check.h"
#include "validation/run.h"
#include "validation/tempdir.h"

#include <signal.h>

struct chain {
    const struct check_options *o; /* borrowed */
    char folder[TEMPDIR_PATH];     /* texts and configuration */
    char dir[TEMPDIR_PATH + 32];   /* of the run */
    const char *words;             /* of the model; borrowed */
    int steps;                     /* of a whole run */
};

/* What a run of the chain did. */
struct link {
    char hash[20]; /* of the last step it made; "-" for none */
    int64_t step;  /* which that was; 0 */
    int failed;    /* another exit status than 0 */
    char *output;  /* all that it printed; owned */
};

/* A signal to one rank, some way into the time between two checkpoints of the run, which every run
 * measures for itself: 0 is when one is complete, 1000 when the next one will be. */
struct fault {
    int signal, rank, permille;
};

/* Makes the folder, the texts and the configuration of the tiny model. Errors: ST_EIO. */
enum status chain_open(struct chain *c, const struct check_options *o, const char *words,
                       int steps);
void chain_close(struct chain *c);

/* Starts the run over, in run folder `name` below the chain's. */
void chain_run_folder(struct chain *c, const char *name);

/* Runs train --resume on tp x dp ranks, as the further words say (the last word for a key wins).
 * fault: NULL for none. Errors: when nothing could be started. */
enum status chain_go(struct link *l, struct chain *c, const struct fault *fault, const char *fmt,
                     ...) __attribute__((format(printf, 4, 5)));
void link_close(struct link *l);

/* Looks at every checkpoint of the run: *newest: step of the newest, -1 for none; *bad: how many
 * have something wrong with them; *unfinished: folders of saves that were cut short. */
enum status chain_look(const struct chain *c, int64_t *newest, int *bad, int *unfinished);

/* The other side: trains as argv says (CONFIG and words), with the fault that a text
 * SIGNAL,RANK,PERMILLE describes. Collective over job. */
enum status chain_fault_main(struct host *job, const char *fault, int argc, char **argv);

#endif
