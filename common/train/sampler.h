/* One token from a row of logits.
 *
 * The choice is a function of (logits, options, sequence, position): no state, so that generated
 * text is the same however it is batched or resumed. Arithmetic is float64 in order of token ids,
 * with the project's own exp: the same bits on every machine.
 */
#ifndef COMMON_TRAIN_SAMPLER_H
#define COMMON_TRAIN_SAMPLER_H

#include "common/base/status.h"

#include <stdint.h>

struct sampler {
    double temperature; /* 0: the highest logit, ties to the lowest id; else softmax of logit / T */
    int32_t top_k;      /* only the k highest logits (ties to lower ids); 0: all */
    uint64_t seed;
};

/* Errors: ST_ECONFIG for a temperature that is negative or not finite, or a negative top_k. */
enum status sampler_check(const struct sampler *s);

/* Chooses *token in [0, vocab) from logits[0 .. vocab); columns that pad the vocabulary lie beyond
 * and are not looked at. -inf excludes a token. No memory is needed. Local.
 * Errors: ST_ENUMERIC for NaN or +inf (with its column) or when every logit is -inf. */
enum status sampler_pick(int32_t *token, const struct sampler *s, const float *logits,
                         int32_t vocab, uint64_t sequence, int64_t position);

#endif
