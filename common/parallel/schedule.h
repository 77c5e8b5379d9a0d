/* A step as a list of instructions: what step.c runs, made by pure functions of (stage, stages,
 * micro-batches).
 *
 * parallel/ never calls the model: it says in which order things happen, train/step.c does them.
 *
 * A pipeline of p stages cuts the blocks of the model into p (interleaved: p v) runs, in order; a
 * stage that holds several calls them chunks: chunk c of stage i is run c p + i. A micro-batch
 * goes forward through all runs and back. The four orders:
 *
 *   GPipe        all forward, then all backward: every micro-batch's activations live at once
 *   1F1B         p - 1 - i forward first, then one forward and one backward in turn
 *   interleaved  1F1B over p v shorter runs: the bubble shrinks by v, messages grow by v
 *   ZB-H1        1F1B with backward in two: input gradients at once, weight gradients later,
 *                where a stage would wait otherwise; no more activations than stage 0 of 1F1B has
 *
 * In every one the micro-batches of a chunk go forward, backward (and through their weight
 * gradients) in their own order, 0, 1, 2, ...: sums over samples need it (sample_plan.h).
 * Sources: docs/papers.md, GPipe, 1F1B, interleaved, zero bubble.
 */
#ifndef COMMON_PARALLEL_SCHEDULE_H
#define COMMON_PARALLEL_SCHEDULE_H

#include "common/base/status.h"

enum instruction_kind {
    INSTR_RECV_FORWARD,    /* the stream, from the run before                                   */
    INSTR_FORWARD,         /* micro-batch `micro` through chunk `chunk`, activations kept       */
    INSTR_SEND_FORWARD,    /* the stream, to the run after                                      */
    INSTR_RECV_BACKWARD,   /* the stream's gradient, from the run after                         */
    INSTR_BACKWARD,        /* loss (last run) and all gradients                                 */
    INSTR_BACKWARD_INPUT,  /* the same but for the products of weight gradients                 */
    INSTR_BACKWARD_WEIGHT, /* those                                                             */
    INSTR_SEND_BACKWARD,   /* the stream's gradient, to the run before                          */
    INSTR_REDUCE,          /* gradients over the replicas                                       */
    INSTR_UPDATE           /* norm, clip, optimiser                                             */
};

struct instruction {
    enum instruction_kind kind;
    int micro, chunk;
    int slot; /* of its chunk's activations: taken by the forward pass, free after the last */
};

enum schedule_order { ORDER_GPIPE, ORDER_1F1B, ORDER_INTERLEAVED, ORDER_ZB_H1 };

/* What an order is a function of. chunks: 1 unless interleaved; micro_batches: a multiple of
 * stages when interleaved. */
struct schedule_shape {
    enum schedule_order order;
    int stage, stages, chunks, micro_batches;
};

struct schedule {
    struct instruction *list; /* owned */
    int n;
    int *slots; /* [chunks] slots of activations that each chunk needs; owned */
};

/* The step of one stage. Errors: ST_ENOMEM; ST_EINTERNAL for a shape that cannot be. */
enum status schedule_open(struct schedule *s, const struct schedule_shape *shape);

/* The same without backward: what an evaluation runs. Every slot is 0: nothing is kept. */
enum status schedule_open_forward(struct schedule *s, const struct schedule_shape *shape);
void schedule_close(struct schedule *s);

/* Most micro-batches (of all chunks together) whose activations live at once on a stage: the
 * closed formula of docs/math.md. */
int schedule_peak(const struct schedule_shape *shape);

/* Nonzero when run (stage, chunk) is the first, or the last, of the model. */
int schedule_first(const struct schedule_shape *shape, int chunk);
int schedule_last(const struct schedule_shape *shape, int chunk);

#endif
