/* `narrows bench`: how fast, against what the machine can do, in one run. */
#ifndef COMMON_CLI_BENCH_H
#define COMMON_CLI_BENCH_H

#include "common/train/memory_fit.h"
#include "common/train/place.h"

#include <stdbool.h>

enum { BENCH_CASES = 8, BENCH_ROUNDS = 200, BENCH_PROFILES = 3 };

/* Seconds of the collectives of a rank, as its device saw them. */
struct bench_traffic {
    double tp, dp, pp;                /* from begin to end: between TP ranks, replicas, stages */
    double tp_wait, dp_wait, pp_wait; /* its work stood still for them: what is exposed */
};
enum { BENCH_TRAFFIC = sizeof(struct bench_traffic) / sizeof(double) };

/* Seconds of the parts of a step, or of a pass through its blocks, each launched alone. */
struct bench_floor {
    double products, attention;
    double moves;    /* bytes of all else over rate */
    double messages; /* collectives of more than one rank */
    double rate;     /* of a copy: bytes read and written a second */
};

/* One configuration under test: its place stays open, its step while it has a turn. */
struct bench_case {
    const char *name; /* what differs from the first case */
    struct config cfg;
    struct place place;
    struct step_memory memory; /* of its step */
    struct step step;          /* cfg NULL: not open */
    int32_t *tokens, *targets;
    int64_t micro; /* samples at once    */
    double flops;  /* of a token, by the formula */
    double seconds[BENCH_ROUNDS];
    double forward[BENCH_ROUNDS];    /* layer: its forward part */
    int stacks;                      /* layer: run since the step was opened */
    struct ledger ledger;            /* of the last round */
    struct bench_traffic traffic[2]; /* layer: of forward and backward; step: of all, first */
    struct bench_floor floor;
};

struct bench {
    struct host *job;
    int cases, rounds;
    bool floor;              /* layer, step: floors are asked for */
    int turns;               /* 0: all cases stay open; else how often each is opened alone */
    size_t memory;           /* bytes of a rank that were named; 0: what it has */
    struct bench_case *item; /* BENCH_CASES of them */
};

/* What bench_in_turn does with an open case: once after it was opened; in each round; once at the
 * end of its last turn. Collective. */
struct bench_work {
    enum status (*warm)(struct bench *b, struct bench_case *c);
    enum status (*round)(struct bench *b, struct bench_case *c, int round);
    enum status (*last)(struct bench *b, struct bench_case *c);
};

/* Plans b->item[b->cases] for cfg (resolved here), opens its place and counts it. Collective. */
enum status bench_add(struct bench *b, const char *name, const struct config *cfg);
void bench_close(struct bench *b);

/* The step of a case, with start values and random tokens. Opening is collective. */
enum status bench_case_open(struct bench *b, struct bench_case *c);
void bench_case_close(struct bench_case *c);

/* All rounds of all cases, which take turns from round to round. Cases whose memory does not fit
 * together are opened and warmed one after another instead, in up to three turns of several rounds,
 * and a line says so. All are closed at the end. Collective. Errors: ST_ENOMEM when one case alone
 * does not fit. */
enum status bench_in_turn(struct bench *b, const struct bench_work *w);

/* Profiles run(c): the time of its collectives and of waits for them, of the slowest rank. In a
 * profile each call leaves moments on the device, so its whole time is not what is measured
 * elsewhere. Collective. */
enum status bench_profile(struct bench *b, struct bench_case *c,
                          enum status (*run)(struct bench_case *c), struct bench_traffic *traffic);

/* Medians, field by field, of n profiles, 1 to BENCH_PROFILES. */
void bench_traffic_median(struct bench_traffic *median, const struct bench_traffic *of, int n);

/* Measures c->floor, of a step or with `blocks` of forward and backward of the blocks, at c's place
 * while no step is open: the calls are those of a rehearsal, equal ones timed once and counted as
 * often as they come; the best of b->rounds. Collective. Errors: ST_ENOMEM, those of the calls. */
enum status bench_floor(struct bench *b, struct bench_case *c, int blocks);

/* All parts one after another; the same with all messages hidden behind work, or work behind them
 * where they take longer. */
double bench_floor_all(const struct bench_floor *f);
double bench_floor_hidden(const struct bench_floor *f);

/* Measures the floors of all cases and prints them beside the medians of c->seconds. Collective. */
enum status bench_floors(struct bench *b, int blocks);

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
