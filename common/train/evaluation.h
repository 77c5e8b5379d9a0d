/* A model's loss on a text or on token shards: nothing is trained.
 *
 * The data is cut into sequences of train.seq tokens as in training (loader.h); every token but the
 * first is a target once, and sees the tokens of its sequence before it. The loss is the sum over
 * samples, in their order, in float64: the same bits for any batch, micro-batch and, under
 * layout_exact, any number of ranks.
 */
#ifndef COMMON_TRAIN_EVALUATION_H
#define COMMON_TRAIN_EVALUATION_H

#include "common/data/loader.h"
#include "common/train/place.h"

struct evaluation {
    struct config cfg; /* resolved */
    struct host *job;  /* borrowed */
    struct tokenizer tokenizer;
    struct corpus corpus;
    struct loader loader;
    struct place place;
    struct step step;
    int32_t *tokens, *targets; /* [batch * seq]: this rank's part first, for counting all of it */
    int64_t limit;             /* sequences that are used; 0 = all */
};

struct evaluation_result {
    double loss;       /* summed over targets, nats */
    int64_t targets;   /* tokens that were predicted */
    int64_t bytes;     /* of text that they stand for; special tokens stand for none */
    int64_t sequences; /* samples */
    double seconds;
};

/* Opens the model in files at `weights` (weights_find) and, unless data is NULL, the data, for cfg
 * (its model section and tokenizer set; resolved here) on the ranks of the job. limit: the first so
 * many sequences, 0 = all. Release with evaluation_close; on failure nothing is left open.
 * Collective over the job; all ranks return the same status. */
enum status evaluation_open(struct evaluation *e, const struct config *cfg, struct host *job,
                            const char *weights, const char *data, int64_t limit);
void evaluation_close(struct evaluation *e);

/* The loss on all of the data. Collective over the job. */
enum status evaluation_run(struct evaluation *e, struct evaluation_result *r);

/* Losses of the rows that stand in e->tokens and e->targets (all `batch` of them on every rank; a
 * negative target does not count): sum[i] of row i. Collective over the job. */
enum status evaluation_rows(struct evaluation *e, double *sum);

#endif
