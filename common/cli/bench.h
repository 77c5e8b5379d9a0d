/* `narrows bench`: how fast, against what the machine can do, in one run. */
#ifndef COMMON_CLI_BENCH_H
#define COMMON_CLI_BENCH_H

#include "common/train/place.h"

enum { BENCH_CASES = 8, BENCH_ROUNDS = 200 };

/* One configuration under test, open on its place. */
struct bench_case {
    const char *name; /* what differs from the first case: "" there */
    struct config cfg;
    struct place place;
    struct step step;
    int32_t *tokens, *targets;
    double seconds[BENCH_ROUNDS];
    double forward[BENCH_ROUNDS]; /* layer: its forward part */
    int rounds;
    struct ledger ledger; /* of the last round */
};

struct bench {
    struct host *job;
    int cases, rounds;
    struct bench_case *item; /* BENCH_CASES of them */
};

/* Opens b->item[b->cases] for cfg (resolved here) and counts it. Collective. */
enum status bench_add(struct bench *b, const char *name, const struct config *cfg);
void bench_close(struct bench *b);

/* Whole training steps on random tokens: forward, backward, norm, update. One table. */
enum status bench_steps(struct bench *b);

/* The blocks alone, forward and backward, with the time of their collectives. */
enum status bench_layers(struct bench *b);

/* The first case's matrix products, one by one: forward, input gradient, weight gradient. */
enum status bench_products(struct bench *b);

/* The first case's attention, forward and backward. */
enum status bench_attention(struct bench *b);

/* The first case's operations that move memory, one by one, beside a copy. */
enum status bench_kernels(struct bench *b);

/* The first case's checkpoints beside plain writes and reads of the same bytes, in a folder
 * run.dir with ".bench" behind it, which is removed; the stall of a save beside a step. */
enum status bench_checkpoint(struct bench *b);

/* Median of n values; sorts them. */
double bench_median(double *values, int n);

/* Seconds on a clock that only goes forward. */
double bench_now(void);

#endif
