/* A step as a list of instructions: what step.c runs, made by pure functions.
 *
 * parallel/ never calls the model: it says in which order things happen, train/step.c does them.
 */
#ifndef COMMON_PARALLEL_SCHEDULE_H
#define COMMON_PARALLEL_SCHEDULE_H

#include "common/base/status.h"

enum instruction_kind {
    INSTR_FORWARD,  /* micro-batch `micro`, activations kept          */
    INSTR_BACKWARD, /* its loss and gradients                         */
    INSTR_REDUCE,   /* gradients over the replicas                    */
    INSTR_UPDATE,   /* norm, clip, optimiser */
    INSTR_END       /* in no list: where a run that goes on to its end would stop */
};

struct instruction {
    enum instruction_kind kind;
    int micro;
};

struct schedule {
    struct instruction *list; /* owned */
    int n;
};

/* One stage: forward and backward of each micro-batch in turn, then reduce and update.
 * Errors: ST_ENOMEM. */
enum status schedule_open(struct schedule *s, int micro_batches);
void schedule_close(struct schedule *s);

#endif
