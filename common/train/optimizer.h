/* From gradients to the next weights: sum over replicas, global norm, clip, AdamW.
 *
 * The global norm is the root of a table of float64 sums of squares, one entry a (tensor, grain) of
 * the whole model, added in an order that no layout changes: grain-major over the cut tensors, then
 * the tensors that every rank holds whole, once. Who does not hold (or own) an entry leaves a zero,
 * so that adding tables over stages and replicas changes no bit. All of it stays on the device.
 *
 * Gradients are reduced in buckets of whole layers (grains.h), each as soon as the last micro-batch
 * has been through its layers. With ZeRO-1 a bucket's grains are packed by owner, reduce-scattered,
 * and, once their owners have updated them, gathered again. The sum over replicas is the same tree
 * either way.
 */
#ifndef COMMON_TRAIN_OPTIMIZER_H
#define COMMON_TRAIN_OPTIMIZER_H

#include "common/backend/comm.h"
#include "common/model/grains.h"
#include "common/model/model.h"

/* Consecutive entries of the table that this rank fills from piece[first ...]. */
struct optimizer_run {
    int64_t entry;
    int first, n;
};

/* Groups of this rank; borrowed. pp: the stages of its replica; NULL: there is one. ends: first
 * and last stage of its replica when a tied matrix stands on both; else NULL. */
struct optimizer_groups {
    struct comm *tp, *dp, *pp, *ends;
};

struct optimizer {
    struct model *model;
    struct grains *pieces;
    struct optimizer_groups on;
    struct tensor *piece;      /* gradients that this rank's runs are about              */
    struct optimizer_run *run; /* of the table                                           */
    struct adamw_item *item;   /* what this rank updates                                 */
    int runs, items;
    int64_t cut, whole;       /* entries of one TP rank; of what is whole                */
    struct tensor table;      /* [p * cut + whole, 1] f64                                */
    struct tensor mine;       /* [cut + whole, 1] f64: this rank's, zeros elsewhere      */
    struct tensor norm_scale; /* [2, 1] f64: norm, factor of clipping                    */
    void *packed;             /* sharded: [replicas, largest share] of gradients         */
    void *gathered;           /* sharded: the same of weights, and one share             */
    struct tensor *from, *to; /* sharded: [pieces], what one call packs or unpacks       */
    int *left;                /* layers of each bucket that backward has not finished    */
    char *begun;              /* [buckets]                                               */
    int exact;                /* layout_exact: both gradients of a tied matrix travel    */
};

/* Lists pieces and items; parameters, gradients and pieces must have been carved. Takes its small
 * tables from `state`, and with ZeRO what is packed from `grads`. Errors: ST_ENOMEM. */
enum status optimizer_open(struct optimizer *o, struct model *m, struct grains *pieces,
                           const struct optimizer_groups *on, struct arena *state,
                           struct arena *grads);
void optimizer_close(struct optimizer *o);

/* Joins the two gradients of a tied matrix. Call once, after the last micro-batch;
 * optimizer_reduce does it. */
enum status optimizer_join_tied(struct optimizer *o, struct device *dev);

/* A new step: no layer's gradient is complete. */
void optimizer_start(struct optimizer *o);

/* The gradients of a layer (as in struct param: -1, 0, ..., layers) are complete: begins the sums
 * over replicas of the buckets that are complete with it. */
enum status optimizer_layer_done(struct optimizer *o, struct device *dev, int layer);

/* Sums the gradients over the replicas: begins what has not begun, waits for all; joins those of a
 * tied matrix, over stages too. With layout_exact both of them travel, so that every layout adds in
 * one order. Collective over dp, and over `ends`. */
enum status optimizer_reduce(struct optimizer *o, struct device *dev);

/* norm_scale from the gradients. limit 0: no clipping. Collective over all groups. */
enum status optimizer_norm(struct optimizer *o, struct device *dev, double limit);

/* One AdamW update, number t = 1, 2, ...; with ZeRO every replica then gets the weights of the
 * others. Collective over dp. */
enum status optimizer_update(struct optimizer *o, struct device *dev, int64_t t, double lr);

#endif
