/* One training step: the place where model, data parallelism and optimiser meet.
 *
 * A step object owns the device memory of a run: weights and moments (state), gradients, kept
 * activations, scratch. All of it is sized by a rehearsal on the recording backend and taken once;
 * a step allocates nothing.
 */
#ifndef COMMON_TRAIN_STEP_H
#define COMMON_TRAIN_STEP_H

#include "common/backend/host.h"
#include "common/model/stage.h"
#include "common/parallel/mesh.h"
#include "common/parallel/pipe.h"
#include "common/parallel/schedule.h"
#include "common/train/optimizer.h"

/* Bytes of each arena. */
struct step_memory {
    size_t state, grads, acts, scratch, batch;
    size_t slot;                               /* of acts: of one micro-batch in one chunk      */
    size_t half;                               /* of scratch: of a half-batch (overlap: all)    */
    size_t tp_staging, dp_staging, pp_staging; /* payload under way at once: comm_reserve;
                                                * pp: the largest of a pipeline's groups        */
    size_t second_staging;                     /* of the second half-batch                      */
    size_t widened; /* ref, bf16: operands of one product in float32; taken when first needed     */
};

/* What a step is opened for. GRADIENTS: no moments and no update, step_probe alone. */
enum { STEP_EVALUATES, STEP_TRAINS, STEP_GRADIENTS };

/* Where a step runs. Groups and communicators are borrowed; groups may be NULL in a rehearsal.
 * Without a pipeline pp, ends, pp_host and the edges may be NULL. */
struct step_place {
    struct device *dev;
    struct comm *tp, *dp;
    struct comm *second;     /* the ranks of tp again, with overlap: all; NULL: forward is one    */
    struct comm *pp;         /* the stages of this replica                                    */
    struct comm *ends;       /* its first and last, when a tied matrix stands on both         */
    struct pipe_edges edges; /* to its neighbours                                             */
    struct host *tp_host, *dp_host, *pp_host;
    struct ledger *ledger;
};

/* Results of steps that the host has not read, oldest first. A single slot is what the step works
 * on itself; more are copies on the device. */
struct step_kept {
    void *loss, *norm;      /* [slots, local tokens] wide, [slots, 2] f64; NULL: one slot */
    double (*host_norm)[2]; /* [slots]: norm, factor of clipping                          */
    int64_t *valid;         /* [slots]                                                    */
    int n;                  /* slots in use                                               */
};

/* Forward, backward and reduction of a step, recorded once (step_graph.h). */
struct step_graph {
    void *recorded; /* the device's; NULL: nothing is                                */
    double scale;   /* of the loss's gradient in what is recorded                    */
    double last;    /* the same of the step before; 0: there was none               */
    struct ledger_row sent[LEDGER_COUNT]; /* by a replay                             */
};

enum { STEP_PIPELINE_COMMS = 2 + 2 * PIPE_DIRECTIONS };

/* A pipeline's communicators in an order that all its ranks share, so that one after another may be
 * connected or ended, which waits for the other ranks of it; returns how many. Local. */
int step_pipeline_comms(struct comm *out[STEP_PIPELINE_COMMS], const struct step_place *at);

struct step {
    const struct config *cfg;
    struct step_place at;
    struct model model;
    struct grains pieces;
    struct stage *chunk; /* [chunks]: this rank's runs of blocks; owned            */
    int chunks;
    struct pipe pipe;
    struct optimizer optimizer;
    struct schedule schedule, evaluation;
    struct schedule probe;         /* of a single micro-batch; empty where the order has no such */
    struct sample_plan *plan;      /* [micro-batches + 1]: how each joins the sum, and how a single
                               * one does; owned                                           */
    struct sample_plan *head_plan; /* [micro-batches + 1][head_chunks]: the same of the final norm
                                    * and the head; NULL where they have no gradient; owned */
    int64_t head_chunk;            /* samples whose logits live at once                     */
    int head_chunks;               /* of a micro-batch                                      */
    struct stage_watch watch;
    struct arena state, grads, acts, scratch, batch;
    struct step_memory memory;
    int64_t begin, end, micro; /* this rank's samples of a global batch; samples at once */
    int64_t positions;         /* longest sequence                                       */
    int micro_batches;
    struct tensor tokens, targets; /* [local samples * seq, 1] i32                           */
    struct tensor starts;          /* the same, with data.reset_documents                    */
    struct tensor loss;            /* [local samples * seq, 1] wide; of the last stage       */
    void *dx;                      /* a stream's gradient, in a pipeline                     */
    void *host_loss;               /* loss on the host, of as many batches as there are slots */
    struct step_kept kept;
    struct step_graph graph;
    double *sample_loss;   /* [batch]: summed loss of each sample of the global batch */
    int training, planned; /* training: STEP_...                                     */
    int reducing, probing; /* the step that runs sums over replicas; is a step_probe */
};

/* What one step found. */
struct step_result {
    double loss;      /* mean over the valid targets of the global batch */
    double grad_norm; /* before clipping                                 */
    double scale;     /* factor of clipping; 0: the update was skipped   */
    int64_t valid;    /* valid targets                                   */
};

/* Opens a step on `at`; training: STEP_.... memory: from step_plan; NULL rehearses:
 * arenas only count. Weights are not set: step_init, or param_set. Collective. */
enum status step_open(struct step *s, const struct config *cfg, const struct step_place *at,
                      const struct step_memory *memory, int training);
void step_close(struct step *s);

/* This replica's samples of a global batch; the most that a replica may have. */
int64_t step_samples(const struct step *s);
int64_t step_room(const struct step *s);

/* This rank's stage, and how many there are. */
int step_stage(const struct step *s);
int step_stages(const struct step *s);

/* Micro-batch `index` of this rank, the last perhaps a smaller one; scale: of the loss's gradient,
 * 0 in an evaluation. Tokens and targets are what s->tokens and s->targets hold. */
struct micro_batch step_micro_batch(const struct step *s, int index, double scale);

/* Nonzero on the last stage, which computes losses. */
int step_is_last(const struct step *s);

/* Steps whose results may wait for the host: train.read_every of a step that trains, else 1. */
int step_slots(const struct step *s);

/* Opens a step at a place on a recording device, whose arenas only count, and gives it to run:
 * what it is told to do is counted and may be listened to (record_listen). Local; allocates nothing
 * large. Errors: those of run. */
enum status step_rehearse(const struct config *cfg, const struct mesh *mesh, enum dtype wide,
                          int training, enum status (*run)(struct step *s, void *context),
                          void *context);

/* What a step needs at a place, by a rehearsal of one step (and one evaluation) on the recording
 * backend: memory, and, when given, the ledger of one training step and the floating point
 * operations of this rank's products and attention. Local; allocates nothing large. */
enum status step_plan_at(struct step_memory *memory, struct ledger *ledger, double *flops,
                         const struct config *cfg, const struct mesh *mesh, enum dtype wide,
                         int training);

/* The same of the first stage and the last replica, which has the largest share of an uneven
 * batch. */
enum status step_plan(struct step_memory *memory, struct ledger *ledger, double *flops,
                      const struct config *cfg, enum dtype wide, int training);

/* With data.reset_documents on: where the document of each token of the next batch begins in its
 * row, [local, seq] on the host (loader_starts). Before each batch. */
enum status step_documents(struct step *s, const int32_t *starts);

/* Start values from train.seed; then step_warm. */
enum status step_init(struct step *s);

/* In a pipeline, on a device that chooses and loads its kernels at first use: a pass over the first
 * micro-batches without neighbours. Choosing waits for the device, and a stage that waits while its
 * neighbour waits for it would wait for ever. Gradients are written, nothing else changes.
 * Collective over TP. */
enum status step_warm(struct step *s);

/* Forward and backward of this rank's samples (tokens, targets [local, seq] on the host), sum over
 * replicas, norm, update number t = 1, 2, ... with rate lr. valid: targets of the global batch
 * that count. The host does not wait for it: what the step found stays on the device until
 * step_read, which must come before more than step_slots are kept. Collective over the job. */
enum status step_issue(struct step *s, const int32_t *tokens, const int32_t *targets, int64_t valid,
                       int64_t t, double lr);

/* Waits for the steps issued and not yet read (s->kept.n of them), r [step_slots] in their order;
 * none is left. Every rank of the job must have issued the same. Collective over the job. */
enum status step_read(struct step *s, struct step_result *r);

/* Both: a step, and what it found. */
enum status step_train(struct step *s, const int32_t *tokens, const int32_t *targets, int64_t valid,
                       int64_t t, double lr, struct step_result *r);

/* The same without reduction and update: gradients of this rank stay in slot 0. Collective over
 * the replica. */
enum status step_gradients(struct step *s, const int32_t *tokens, const int32_t *targets,
                           int64_t valid, double *loss_sum);

/* Loss summed over the targets of this replica's first micro-batch, and its gradients, in slot 0,
 * as if it were alone; `valid` of its targets count. Nothing is reduced or updated. *loss_sum is 0
 * but on the last stage. Not with virtual stages. Collective over the replica. */
enum status step_probe(struct step *s, const int32_t *tokens, const int32_t *targets, int64_t valid,
                       double *loss_sum);

/* Summed loss of the whole global batch, samples added in their order; that of each sample is in
 * s->sample_loss. Collective over the job. */
enum status step_evaluate(struct step *s, const int32_t *tokens, const int32_t *targets,
                          double *sum);

#endif
