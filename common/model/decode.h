/* The model run on one growing sequence: a prefix at once, then token by token with a cache.
 *
 * The rows of q, k and v of all positions stay in one tensor for each layer, laid out as in
 * training. (Keys and values alone would take less; but so every strategy writes its projections
 * where it does in training, and attention reads them in place.)
 */
#ifndef COMMON_MODEL_DECODE_H
#define COMMON_MODEL_DECODE_H

#include "common/model/stage.h"

struct decode {
    struct stage stage;     /* environment, rotary table, activations of each layer             */
    struct block_acts rows; /* activations of `room` rows, which all layers share               */
    struct tensor x[2];     /* the stream before and after a layer: [room, d_l or d]            */
    struct tensor *cache;   /* of each layer: [room, (h_l + 2 k_l) head_dim], q | k | v         */
    struct tensor tokens;   /* [room, 1] i32                                                    */
    struct tensor logits_l; /* [1, V_l] wide, this rank's                                       */
    struct tensor logits;   /* [p, V_l] wide: rank after rank, which is [1, V]                  */
    int64_t room;           /* most positions                                                   */
};

/* Sets up d over the weights of m, which must stay; memory comes from `memory` (which may only
 * plan) and `from`'s scratch. from: dev, tp, ledger, scratch. Local. Errors: ST_ENOMEM. */
enum status decode_open(struct decode *d, struct model *m, const struct tp_env *from,
                        struct arena *memory, int64_t room);
void decode_close(struct decode *d);

/* Runs n tokens (on the host) at positions first .. first + n - 1 <= room - 1; those before must
 * have been run. Leaves the logits after the last one in d->logits on every rank. Collective over
 * TP: every rank passes the same tokens. */
enum status decode_run(struct decode *d, const int32_t *tokens, int64_t first, int64_t n);

#endif
