/* From gradients to the next weights: sum over replicas, global norm, clip, AdamW.
 *
 * The global norm is the root of a table of float64 sums of squares, one entry a (tensor, grain),
 * added in an order that no layout changes: grain-major over the cut tensors, then the tensors
 * that every rank holds whole, once. All of it stays on the device.
 */
#ifndef COMMON_TRAIN_OPTIMIZER_H
#define COMMON_TRAIN_OPTIMIZER_H

#include "common/model/model.h"

struct optimizer {
    struct model *model;
    struct tensor *piece;     /* grains of the cut gradients, grain-major, then the whole ones */
    struct adamw_item *item;  /* one a parameter                                               */
    int cut, whole;           /* entries of each kind on this rank                             */
    struct tensor table;      /* [p * cut + whole, 1] f64                                      */
    struct tensor mine;       /* [cut, 1] f64: this rank's                                     */
    struct tensor norm_scale; /* [2, 1] f64: norm, factor of clipping                          */
    struct tensor flat;       /* slot 0 of all gradients that travel, as one row               */
    int exact;                /* layout_exact: both gradients of a tied matrix travel          */
};

/* Lists pieces and items; parameters and gradients must have been carved. Takes its small tables
 * from `state`. Errors: ST_ENOMEM. */
enum status optimizer_open(struct optimizer *o, struct model *m, struct arena *state);
void optimizer_close(struct optimizer *o);

/* Joins the two gradients of a tied matrix. Call once, after the last micro-batch;
 * optimizer_reduce does it. */
enum status optimizer_join_tied(struct optimizer *o, struct device *dev);

/* Sums slot 0 of the gradients over the replicas: one all-reduce of all of them; joins those of a
 * tied matrix. With layout_exact both of them travel, so that every layout adds in one order.
 * Collective. */
enum status optimizer_reduce(struct optimizer *o, struct device *dev, struct comm *dp);

/* norm_scale from the gradients. limit 0: no clipping. Collective over tp. */
enum status optimizer_norm(struct optimizer *o, struct device *dev, struct comm *tp, double limit);

/* One AdamW update, number t = 1, 2, ... */
enum status optimizer_update(struct optimizer *o, struct device *dev, int64_t t, double lr);

#endif
