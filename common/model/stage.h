/* The part of the model that one pipeline stage holds (so far: all of it), run on a micro-batch.
 *
 * Activations are carved anew for each micro-batch from an arena that was sized before step 1.
 * What is kept from forward to backward follows parallel.recompute:
 *   none        everything that backward reads
 *   block       the stream at the entrance of each block; the rest is computed again
 *   bottleneck  the same, the latents and the norms' statistics: computing again then needs
 *               neither the A products nor any communication (BTP)
 */
#ifndef COMMON_MODEL_STAGE_H
#define COMMON_MODEL_STAGE_H

#include "common/model/model.h"

struct stage {
    struct model *model;
    struct block_env env;
    struct arena *acts;
    struct tensor rope_table;
    struct block_acts *block; /* one a layer */
    struct tensor x_end;      /* the stream after the last block: [M, stream] */
    struct tensor dx;         /* its gradient on the way back */
};

/* One micro-batch. tokens, targets [M, 1] i32 of device memory; loss [M, 1] wide, out. */
struct micro_batch {
    int64_t samples, seq;
    struct tensor tokens, targets, loss;
    double scale; /* gradient of the summed loss: 1 / valid targets of the global batch */
};

/* Sets up s over m; env: dev, tp, ledger and scratch are taken from `from`. Takes the rotary table
 * from `state` (and fills it, unless that arena only plans). positions: longest sequence. */
enum status stage_open(struct stage *s, struct model *m, const struct tp_env *from,
                       struct arena *state, struct arena *acts, int64_t positions);
void stage_close(struct stage *s);

/* Forward of mb up to the stream before the head. keep: activations stay for stage_backward;
 * otherwise two blocks' worth of memory serve all layers. Collective over TP. */
enum status stage_forward(struct stage *s, const struct micro_batch *mb, int keep);

/* Loss, gradients of everything; must follow stage_forward(keep) of the same micro-batch. Weight
 * gradients join by plan. Collective over TP. */
enum status stage_backward(struct stage *s, const struct micro_batch *mb,
                           const struct sample_plan *plan);

/* The blocks alone, for benchmarks: forward from the embedding of mb's tokens (looked up when
 * `embed` is set; else the stream that an earlier call left is used again), and backward from a
 * gradient equal to the last stream. Collective over TP. */
enum status stage_blocks_forward(struct stage *s, const struct micro_batch *mb, int embed);
enum status stage_blocks_backward(struct stage *s, const struct sample_plan *plan);

/* Loss alone, after stage_forward. Collective over TP. */
enum status stage_loss(struct stage *s, const struct micro_batch *mb);

#endif
