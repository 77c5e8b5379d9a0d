/* A model on the reference backend in this process, ready to make steps and to be looked into. */
#ifndef VALIDATION_SESSION_H
#define VALIDATION_SESSION_H

#include "common/train/place.h"
#include "common/train/step.h"

struct session {
    struct config cfg;
    struct place place;
    struct step step;
    int32_t *tokens, *targets; /* [batch, seq] */
    int64_t valid;
    double *values; /* room for the largest parameter, in float64 */
};

/* Opens a session for words (case_config) with weights from train.seed and the batch of step 0
 * (case_batch). job: one rank. Errors: as of the steps it takes; nothing is then left open. */
enum status session_open(struct session *s, struct host *job, const char *words);
void session_close(struct session *s);

/* Mean loss over the valid targets of tokens and targets, by evaluation. */
enum status session_loss(struct session *s, double *loss);

/* Gradients into slot 0, and the mean loss. */
enum status session_gradients(struct session *s, double *loss);

/* out [rows * cols] = t of device memory, in float64. Packed tensors. */
enum status session_read(struct session *s, double *out, const struct tensor *t);

/* Sets a parameter from float64 values. */
enum status session_write(struct session *s, struct param *row, const double *values);

#endif
