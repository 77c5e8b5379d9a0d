/* Weight gradients that wait for a good moment.
 *
 * A backward pass needs input gradients at once and weight gradients some time: they are queued
 * and run while a collective flies, or at the latest when their operands' scratch is released. One
 * whose operands live longer may be held back for a later, longer collective. A
 * pipeline that splits backward puts them off further, to a list of the micro-batch's own; their
 * operands then lie in memory that is not released (arena: keeps).
 */
#ifndef COMMON_PARALLEL_WGRAD_H
#define COMMON_PARALLEL_WGRAD_H

#include "common/backend/op.h"

enum { WGRAD_MAX = 16 };

struct wgrad_later {
    struct weight_grad *item; /* owned */
    int n, room;
    int next; /* the first that has not run */
};

struct wgrad_queue {
    struct weight_grad item[WGRAD_MAX];
    int n;
    struct weight_grad held[WGRAD_MAX]; /* runs only once it is let go */
    int holds;
    struct wgrad_later *later; /* NULL: nothing is put off */
};

/* Queues dw += dy' x; the operands must live until wgrad_run. Errors: ST_EINTERNAL when full. */
enum status wgrad_push(struct wgrad_queue *q, const struct tensor *dw, const struct tensor *dy,
                       const struct tensor *x);

/* The same for one that waits for wgrad_let_go, which puts all that are held into the queue. */
enum status wgrad_hold(struct wgrad_queue *q, const struct tensor *dw, const struct tensor *dy,
                       const struct tensor *x);
enum status wgrad_let_go(struct wgrad_queue *q);

/* Empties the queue, but not what is held: runs what is in it, joining by plan, or puts it off. */
enum status wgrad_run(struct wgrad_queue *q, struct device *dev, const struct sample_plan *plan);

/* Room for n products. Errors: ST_ENOMEM. */
enum status wgrad_later_open(struct wgrad_later *l, int n);
void wgrad_later_close(struct wgrad_later *l);

/* Runs the next n of the list, in their order, joining by plan; with the last of them it is empty.
 * Errors: ST_EINTERNAL when there are fewer; those of the device. */
enum status wgrad_later_run(struct wgrad_later *l, struct device *dev,
                            const struct sample_plan *plan, int n);

#endif
