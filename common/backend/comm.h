/* Collectives on tensors, with begin and wait.
 *
 * begin starts a collective whose tensors must not be touched until wait; wait ends all that were
 * begun on that communicator, in order. Every rank of the group calls the same ones in the same
 * order with the same shapes. Sums over ranks run over a balanced binary tree in rank order, with
 * the same bits on every rank: sum of ranks [lo, hi) = [lo, mid) + [mid, hi), mid = lo+(hi-lo)/2.
 * bf16 tensors are summed in float and rounded once. The ref backend fills tensors with NaN
 * between begin and wait, so that a missing or early read cannot pass. Groups of one rank return
 * at once. Errors: ST_ECOMM (with the collective, its shape, and who did not come), ST_EPEER.
 */
#ifndef COMMON_BACKEND_COMM_H
#define COMMON_BACKEND_COMM_H

#include "common/backend/backend.h"
#include "common/backend/ledger.h"

enum { COMM_GROUP_MAX = 8 }; /* tensors in one call */

/* A communicator over the ranks of group (collective), which the caller may free as soon as this
 * returns: a backend that needs one keeps a group of its own. ledger may be NULL. */
enum status comm_create(struct comm **c, struct device *dev, struct host *group,
                        struct ledger *ledger);
void comm_destroy(struct comm *c);

/* Prepares staging for at most `bytes` in flight between two waits (whole tensors: of an
 * all-gather and a reduce-scatter the full side); before step 1, with nothing in flight. */
enum status comm_reserve(struct comm *c, size_t bytes);

/* t[0..n) each become their sum over the ranks; one call. Packed tensors. */
enum status comm_all_reduce_begin(struct comm *c, struct tensor *t, int n);

/* out [p*rows, cols] = every rank's in [rows, cols], rank after rank. Packed. */
enum status comm_all_gather_begin(struct comm *c, struct tensor *out, const struct tensor *in);

/* out [rows, cols] = this rank's part of the sum of in [p*rows, cols]. Packed. */
enum status comm_reduce_scatter_begin(struct comm *c, struct tensor *out, const struct tensor *in);

/* t = t of rank root; t counts as in flight on the root as well. Packed. */
enum status comm_broadcast_begin(struct comm *c, struct tensor *t, int root);

/* To and from another rank of the group. Sends and receives begun one after another, with no
 * other collective in between, run side by side: two ranks may both send first. */
enum status comm_send_begin(struct comm *c, const struct tensor *t, int to);
enum status comm_recv_begin(struct comm *c, struct tensor *t, int from);

/* Sends and receives begun on c are under way from here on, without waiting for them; elsewhere
 * they may start as late as the wait. Nothing but sends and receives may have been begun. */
enum status comm_start(struct comm *c);

/* Ends everything begun on c. After an error c is of no use any more: every call returns
 * ST_EPEER, and tensors that were in flight keep their NaN. */
enum status comm_wait(struct comm *c);

/* begin and wait in one. */
enum status comm_all_reduce(struct comm *c, struct tensor *t, int n);
enum status comm_all_gather(struct comm *c, struct tensor *out, const struct tensor *in);
enum status comm_reduce_scatter(struct comm *c, struct tensor *out, const struct tensor *in);

#endif
