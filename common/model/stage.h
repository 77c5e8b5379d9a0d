/* A run of the model's blocks (all of them, or what a pipeline's stage holds), on a micro-batch.
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

#include "common/model/halves.h"
#include "common/model/model.h"

/* Sees the activations of each block in turn while stage_forward runs. Errors end the forward. */
struct stage_sight {
    enum status (*see)(void *context, int64_t layer, const struct block_acts *a);
    void *context;
};

/* Where the activations of one micro-batch lie. */
struct stage_slot {
    struct arena *acts; /* carved anew for each micro-batch */
    struct arena own;   /* acts, of a stage that was given memory for slots */
    struct block_acts *block;
    struct wgrad_later later; /* weight gradients that were put off */
};

/* Told that all gradients of a layer (as in struct param) are complete. */
struct stage_watch {
    enum status (*layer_done)(void *context, int layer);
    void *context;
};

struct stage {
    struct model *model;
    struct block_env env;
    int begin, end;    /* its blocks                                                      */
    int embeds, heads; /* it looks tokens up; it has the final norm and the head          */
    struct stage_slot *slot;
    int slots;
    struct arena *acts;       /* of the slot in use                           */
    struct block_acts *block; /* of the slot in use: one a layer of the model */
    struct halves halves;     /* parallel.overlap: all                        */
    struct tensor rope_table;
    struct tensor x_end;             /* the stream after the last block: [M, stream] */
    struct tensor dx;                /* its gradient on the way back                 */
    void *dx_memory;                 /* where dx lies; NULL: in scratch              */
    const struct stage_watch *watch; /* NULL: nobody wants to know                   */
    const struct stage_sight *sight; /* NULL: nobody looks                            */
};

/* One micro-batch. tokens, targets [M, 1] i32 of device memory; loss [M, 1] wide, out. */
struct micro_batch {
    int64_t samples, seq;
    struct tensor tokens, targets, loss;
    struct tensor starts; /* struct attention; data NULL: a sequence is one document */
    int64_t head_chunk;   /* samples whose logits live at once; 0: all                 */
    const struct sample_plan *head_plan; /* how each chunk joins the gradients of the final norm and
                                          * the head; backward of a stage with the head only */
    double scale; /* gradient of the summed loss: 1 / valid targets of the global batch */
};

/* Sets up s over m; env: dev, tp, ledger and scratch are taken from `from`. Takes the rotary table
 * from `state` (and fills it, unless that arena only plans). positions: longest sequence. */
enum status stage_open(struct stage *s, struct model *m, const struct tp_env *from,
                       struct arena *state, struct arena *acts, int64_t positions);
void stage_close(struct stage *s);

/* What a stage of a pipeline is. */
struct stage_run {
    int chunk;                  /* of the model's part                                      */
    int slots;                  /* micro-batches whose activations live at once             */
    int put_off;                /* backward may be split: stage_backward_input              */
    const struct tensor *table; /* the rotary table; NULL: take one, as stage_open does     */
    struct arena *acts;         /* slots of slot_bytes each; not looked at when planning    */
    size_t slot_bytes;          /* 0: planning                                              */
    struct halves halves;
};

/* Sets up s over chunk run->chunk of m. Errors: ST_ENOMEM. */
enum status stage_open_run(struct stage *s, struct model *m, const struct tp_env *from,
                           struct arena *state, const struct stage_run *run, int64_t positions);

/* Most bytes that a slot has needed: of a planning stage. */
size_t stage_slot_peak(const struct stage *s);

/* The calls that follow are about this slot's micro-batch. */
void stage_use(struct stage *s, int slot);

/* Lays out the activations of mb in the slot in use; *x is the stream [M, stream] that the first
 * block reads: stage_forward of a stage that embeds nothing wants it filled. */
enum status stage_begin(struct stage *s, const struct micro_batch *mb, int keep, struct tensor **x);

/* Forward of mb up to the stream after the last block, x_end. A stage that embeds nothing wants
 * stage_begin first and its stream filled. keep: activations stay for stage_backward;
 * otherwise two blocks' worth of memory serve all layers. Collective over TP. */
enum status stage_forward(struct stage *s, const struct micro_batch *mb, int keep);

/* Gradients of everything; must follow stage_forward(keep) of the same micro-batch. A stage with
 * the head begins with the loss, another with the gradient of x_end in s->dx (stage_gradient);
 * afterwards s->dx is that of the first stream. Weight gradients join by plan, those of the
 * head by mb->head_plan. Collective over TP. */
enum status stage_backward(struct stage *s, const struct micro_batch *mb,
                           const struct sample_plan *plan);

/* The same but for the weight gradients of blocks, which stage_backward_weight does later: until
 * then the slot keeps their operands. Needs put_off; activations must have been kept whole. */
enum status stage_backward_input(struct stage *s, const struct micro_batch *mb,
                                 const struct sample_plan *plan);
enum status stage_backward_weight(struct stage *s, const struct sample_plan *plan);

/* Lays s->dx out like x_end, to be filled with its gradient; needs dx_memory. */
enum status stage_gradient(struct stage *s);

/* The blocks alone, for benchmarks: forward from the embedding of mb's tokens (looked up when
 * `embed` is set; else the stream that an earlier call left is used again), and backward from a
 * gradient equal to the last stream. Collective over TP. */
enum status stage_blocks_forward(struct stage *s, const struct micro_batch *mb, int embed);
enum status stage_blocks_backward(struct stage *s, const struct sample_plan *plan);

/* Loss alone, after stage_forward. Collective over TP. */
enum status stage_loss(struct stage *s, const struct micro_batch *mb);

#endif
