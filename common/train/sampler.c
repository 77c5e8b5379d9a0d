#include "common/train/sampler.h"

#include "common/base/elementary.h"
#include "common/base/rng.h"

#include <math.h>
#include <string.h>

enum status sampler_check(const struct sampler *s)
{
    if (!isfinite(s->temperature) || s->temperature < 0)
        return fail(ST_ECONFIG, "sample.temperature is %g; it must be a number of at least 0",
                    s->temperature);
    if (s->top_k < 0)
        return fail(ST_ECONFIG, "sample.top_k is %d; it must be at least 0 (0 = all tokens)",
                    (int)s->top_k);
    return ST_OK;
}

/* Finds the highest logit, the first of equals. */
static enum status find_highest(int32_t *highest, const float *logits, int32_t vocab)
{
    *highest = 0;
    for (int32_t i = 0; i < vocab; i++) {
        if (isnan(logits[i]) || logits[i] == INFINITY)
            return fail(ST_ENUMERIC,
                        "the logit of token %d of %d is %g; the model's parameters or inputs are "
                        "damaged",
                        (int)i, (int)vocab, (double)logits[i]);
        if (logits[i] > logits[*highest])
            *highest = i;
    }
    if (logits[*highest] == -INFINITY)
        return fail(ST_ENUMERIC, "all %d logits are -inf: no token can be chosen", (int)vocab);
    return ST_OK;
}

/* A number that orders as the float does; both zeros give the same. */
static uint32_t ordered_bits(float x)
{
    float zero_joined = x + 0.0f;
    uint32_t bits;

    memcpy(&bits, &zero_joined, sizeof bits);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* The tokens that may be chosen: those above `threshold`, and the first `ties` equal to it. */
struct allowed {
    uint32_t threshold;
    int32_t ties;
};

/* The k-th highest logit, found a byte at a time from the top, without sorting or memory: each
 * pass counts the next byte of those logits that agree with the bytes found so far. */
static struct allowed find_allowed(const float *logits, int32_t vocab, int32_t k)
{
    uint32_t prefix = 0, mask = 0;

    if (k == 0 || k >= vocab)
        return (struct allowed){0, vocab};
    for (int shift = 24; shift >= 0; shift -= 8) {
        int32_t count[256] = {0};
        uint32_t byte = 255;

        for (int32_t i = 0; i < vocab; i++) {
            uint32_t bits = ordered_bits(logits[i]);

            if ((bits & mask) == prefix)
                count[bits >> shift & 255]++;
        }
        while (count[byte] < k)
            k -= count[byte--];
        prefix |= byte << shift;
        mask |= 255u << shift;
    }
    return (struct allowed){prefix, k};
}

/* Walks the allowed tokens in order of id, summing their weights exp((logit - highest) / T), until
 * the sum exceeds `stop`; returns that token, or the last one with a weight. *sum: the sum so far.
 */
static int32_t walk(double *sum, const struct sampler *s, const float *logits, int32_t vocab,
                    struct allowed allowed, double highest, double stop)
{
    int32_t last = 0;

    *sum = 0;
    for (int32_t i = 0; i < vocab; i++) {
        uint32_t bits = ordered_bits(logits[i]);
        double weight;

        if (bits < allowed.threshold || (bits == allowed.threshold && allowed.ties-- <= 0))
            continue;
        weight = elementary_exp(((double)logits[i] - highest) / s->temperature);
        if (!(weight > 0))
            continue;
        last = i;
        *sum += weight;
        if (*sum > stop)
            break;
    }
    return last;
}

enum status sampler_pick(int32_t *token, const struct sampler *s, const float *logits,
                         int32_t vocab, uint64_t sequence, int64_t position)
{
    struct rng_key key = rng_key(s->seed, RNG_SAMPLER, sequence);
    struct allowed allowed;
    double total, reached;
    int32_t highest;

    FAIL_IF(vocab < 1, ST_EINTERNAL);
    TRY(sampler_check(s));
    TRY(find_highest(&highest, logits, vocab));
    *token = highest;
    if (s->temperature == 0)
        return ST_OK;
    allowed = find_allowed(logits, vocab, s->top_k);
    walk(&total, s, logits, vocab, allowed, logits[highest], INFINITY);
    *token = walk(&reached, s, logits, vocab, allowed, logits[highest],
                  total * rng_uniform(&key, (uint64_t)position));
    return ST_OK;
}
