/* A schedule played without computing: all stages of a pipeline side by side, in model time.
 *
 * Messages take no time, but are as strict as the real ones: a stage that sends waits until the
 * message before on the same edge was received. So what comes to its end here, comes to its end.
 */
#ifndef COMMON_PARALLEL_SCHEDULE_PLAY_H
#define COMMON_PARALLEL_SCHEDULE_PLAY_H

#include "common/parallel/schedule.h"

#include <stdio.h>

/* Time units of one pass through a whole stage; a chunk of v takes the v-th part. */
struct schedule_cost {
    double forward, input, weight; /* backward in one: input + weight */
};

/* One pass that was run. */
struct schedule_span {
    enum instruction_kind kind;
    int micro, chunk;
    double begin, end;
};

struct schedule_played {
    int stages;
    struct schedule_span **span; /* [stages][spans[stage]], in order; owned */
    int *spans;                  /* owned */
    double end;                  /* when the last stage is done */
    double busy;                 /* sum over stages of the time spent in passes */
};

/* Plays `shape` (its stage is not looked at). Errors: ST_ENOMEM; ST_EINTERNAL naming the stage and
 * instruction when a message does not match its receive or the stages wait for each other. */
enum status schedule_play(struct schedule_played *out, const struct schedule_shape *shape,
                          struct schedule_cost cost);
void schedule_played_close(struct schedule_played *p);

/* The share of all stages' time in which nothing is computed. */
double schedule_bubble(const struct schedule_played *p);

/* A Gantt chart: a row a stage, a column for `unit` of time, F B W with the micro-batch's number
 * (and ".chunk" where there are several). */
void schedule_chart(const struct schedule_played *p, int chunks, double unit, FILE *out);

#endif
