/* Multiple-choice questions: which answer the model finds likeliest after the context. */
#ifndef COMMON_TRAIN_SCORING_H
#define COMMON_TRAIN_SCORING_H

#include "common/data/choices.h"
#include "common/train/evaluation.h"

struct scoring {
    int64_t questions, answers, tokens; /* scored; tokens of all their answers */
    int64_t right_mean;                 /* the least loss a token is that of the right answer */
    int64_t right_sum;                  /* the least loss of the whole answer is */
    double loss_right;                  /* summed over the tokens of the right answers, nats */
    int64_t tokens_right;
};

/* Scores the first `limit` questions (0: all). Each answer is a row of its own behind its context;
 * of equal losses the first wins. e: opened without data, train.seq at least c->longest - 1.
 * Collective over the job. Errors: ST_EFORMAT for a token outside the model's vocabulary. */
enum status scoring_run(struct scoring *s, struct evaluation *e, const struct choices *c,
                        int64_t limit);

#endif
