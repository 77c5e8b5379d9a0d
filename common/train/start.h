/* How long it takes from the beginning of a process to the end of its first step, and where. */
#ifndef COMMON_TRAIN_START_H
#define COMMON_TRAIN_START_H

#include <stddef.h>

/* In the order in which they come. */
enum start_part {
    START_PROGRAM, /* loading it, MPI, the configuration */
    START_DATA,    /* tokenizer and texts */
    START_DEVICE,  /* device, groups of ranks, their communicators */
    START_MODEL,   /* rate of large products, rehearsal, memory, start values, shadow */
    START_STATE,   /* checkpoint or weights to begin with, run folder */
    START_STEP,    /* the first step */
    START_PARTS
};

struct start {
    double seconds[START_PARTS];
    double since; /* on a clock */
};

/* The first part ends here: it began with the process, as far as the system tells. */
void start_begin(struct start *s);

/* A part ends here. Called again for the same part, it adds. */
void start_lap(struct start *s, enum start_part part);

/* All parts, seconds. */
double start_seconds(const struct start *s);

/* out [size] = the parts in words, "program and MPI 0.61, data 0.20, ...". */
void start_text(char *out, size_t size, const struct start *s);

#endif
