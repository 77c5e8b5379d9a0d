/* What the linear layers of a full-rank model read while it reads a text: the second moments
 * C = mean of x x' of their inputs x, in float64.
 *
 * The text's first CALIBRATE_TOKENS tokens are read in sequences of train.seq (at most
 * CALIBRATE_SEQ). As many layers are watched at once as CALIBRATE_BYTES hold; a model with more is
 * run over the text several times. One rank.
 */
#ifndef COMMON_TRAIN_CALIBRATE_H
#define COMMON_TRAIN_CALIBRATE_H

#include "common/train/evaluation.h"

enum { CALIBRATE_TOKENS = 1 << 17, CALIBRATE_SEQ = 512, CALIBRATE_BYTES = 1 << 30 };

/* The four inputs of a block. */
enum calibrate_input {
    CALIBRATE_QKV,
    CALIBRATE_O,
    CALIBRATE_GATE_UP,
    CALIBRATE_DOWN,
    CALIBRATE_INPUTS
};

struct calibrate {
    struct evaluation e;
    struct evaluation_result result; /* the model's loss on the text */
    struct stage_sight sight;
    struct device *products; /* float64 on the CPU */
    struct sample_plan plan;
    int64_t first, layers; /* watched: [first, first + layers) */
    int64_t most;          /* layers that memory has room for */
    double *moment;        /* [most] times the four matrices */
    void *raw;             /* an input as it lies on the device, and in float64 */
    double *x, *gain;
};

/* Opens the full-rank model at `weights` over a text, with cfg's model section and tokenizer.
 * Release with calibrate_close; on failure nothing is left open. Errors: those of evaluation_open;
 * ST_EFORMAT for a text of less than a sequence. */
enum status calibrate_open(struct calibrate *c, const struct config *cfg, struct host *job,
                           const char *weights, const char *text);
void calibrate_close(struct calibrate *c);

/* *moment = C [n, n] of an input of a layer, n its width; valid until the next call, which may
 * ask for the same or a later layer. Runs the text where needed. */
enum status calibrate_moment(const double **moment, struct calibrate *c, int64_t layer,
                             enum calibrate_input input);

/* Width of an input. */
int64_t calibrate_width(const struct calibrate *c, enum calibrate_input input);

#endif
