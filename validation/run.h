/* One run of `narrows train` in a job of its own, and what it printed. */
#ifndef VALIDATION_RUN_H
#define VALIDATION_RUN_H

#include "validation/check.h"

enum { RUN_LINE = 128, RUN_LOG = 2048 };

struct run {
    char (*line)[RUN_LINE]; /* of each step: "hash  loss  norm", as printed */
    int steps;
    char hash[20];     /* of the last step; "-" when there is none */
    double validation; /* loss after the last step; NaN when there is none */
    int failed;        /* the job ended with another status than 0 */
    char log[RUN_LOG]; /* then: the end of what it printed */
};

/* Runs o->config, or the tiny model on made-up documents of uneven length, with further words for
 * o->steps steps; run.hash is on, nothing is saved. A job that fails is no error: see failed.
 * Errors: ST_EIO when nothing could be started. */
enum status run_open(struct run *run, const struct check_options *o, const char *words, ...)
    __attribute__((format(printf, 3, 4)));
void run_close(struct run *run);

/* The first step (from 1) at which two runs differ; 0 when they agree in every step and both have
 * at least one. */
int run_differs(const struct run *a, const struct run *b);

/* What a run printed of a step (from 1); "(nothing)" when it has none. */
const char *run_line(const struct run *run, int step);

#endif
