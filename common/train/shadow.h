/* A running job held against the reference: now and then one micro-batch of its own data goes
 * forward and backward a second time through `ref`, on the same ranks and from the same weights,
 * and loss and gradients are compared tensor by tensor.
 *
 * It works over the seam: the backend of the run and the reference live side by side in a process,
 * each with a device, communicators and memory of its own; weights are copied through host memory.
 * Both sides run step_probe, so what differs is the backend. The run itself changes in no bit.
 */
#ifndef COMMON_TRAIN_SHADOW_H
#define COMMON_TRAIN_SHADOW_H

#include "common/train/place.h"

enum { SHADOW_NAME = 96 };

struct shadow {
    struct config cfg; /* of the reference: run.backend ref, one micro-batch a replica */
    struct place place;
    struct step step;
    void *live, *own;                /* host memory of the largest tensor, one for each side */
    double *sums;                    /* of squares, by parameter and rank                    */
    double loss_most, gradient_most; /* what a difference may reach                          */
    int64_t looks, missed;           /* so far                                               */
    double seconds;                  /* they took                                            */
};

/* One replay, the same on all ranks. */
struct shadow_result {
    double loss, gradient;    /* relative differences: |a - b| / |b|, ||a - b|| / ||b||, worst */
    char tensor[SHADOW_NAME]; /* whose gradient that is                                      */
    int64_t tensors, missed;  /* compared, and beyond the bound; the loss counts as one        */
    double seconds;           /* the slowest rank's                                           */
};

/* Opens the reference's side for a resolved, valid configuration; shadow.every must not be 0.
 * Collective over the job. Errors: those of place_open and step_open; ST_ENOMEM. */
enum status shadow_open(struct shadow *s, const struct config *cfg, struct host *job);
void shadow_close(struct shadow *s);

/* Replays the first micro-batch of tokens, targets and, with data.reset_documents, starts (NULL
 * else), [local samples, seq] on the host, with the weights of live. Nothing of it is kept but
 * gradients that the next step overwrites. Collective over the job; a difference is no error. */
enum status shadow_look(struct shadow *s, struct step *live, const int32_t *tokens,
                        const int32_t *targets, const int32_t *starts, struct shadow_result *r);

/* Nonzero when something of r was beyond its bound. */
int shadow_missed(const struct shadow_result *r);

#endif
