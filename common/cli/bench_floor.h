/* The calls of a step, as a rehearsal on the recording backend hears them: equal ones once. */
#ifndef COMMON_CLI_BENCH_FLOOR_H
#define COMMON_CLI_BENCH_FLOOR_H

#include "common/backend/record.h"
#include "common/cli/bench.h"

enum floor_kind {
    FLOOR_PRODUCT,
    FLOOR_GRADIENT,
    FLOOR_ATTENTION,
    FLOOR_ATTENTION_BACKWARD,
    FLOOR_MESSAGE
};

enum { FLOOR_GROUP = 16, FLOOR_MESSAGES = COMM_GROUP_MAX };

/* Between whom a message goes; sends between stages are not listened to. */
enum floor_comm { FLOOR_TP, FLOOR_SECOND, FLOOR_DP, FLOOR_PP, FLOOR_ENDS, FLOOR_COMMS };

/* One call of the seam. Its tensors' data are offsets into memory of `bytes`, where what was one
 * buffer is one still; one more than the offset, since NULL says that there is no tensor. */
struct floor_call {
    enum floor_kind kind;
    int64_t times; /* in a step */
    size_t bytes;
    int n; /* members */
    struct gemm gemm[FLOOR_GROUP];
    struct tensor beside[FLOOR_GROUP][2]; /* what gemm's c and k_scale point to */
    struct weight_grad grad[FLOOR_GROUP];
    struct sample_plan plan;
    struct attention at, dat;
    enum record_message message;
    enum floor_comm comm;
    struct tensor sent[FLOOR_MESSAGES];
};

struct floor_list {
    struct floor_call **call; /* [n], owned */
    int n, room;
    double moved; /* bytes of everything else */
};

/* Rehearses what a round of a bench does at c's place: a step, or with `blocks` the forward and
 * backward of the blocks alone. The caller closes l, also after an error. Local. */
enum status floor_list_fill(struct floor_list *l, const struct bench_case *c, int blocks);
void floor_list_close(struct floor_list *l);

/* Bytes of the largest call. */
size_t floor_list_largest(const struct floor_list *l);

/* Adds to every tensor's data, so that offsets become addresses in memory at `base`, or from there
 * offsets again (sign 1 or -1). */
void floor_call_move(struct floor_call *c, const void *base, int sign);

#endif
