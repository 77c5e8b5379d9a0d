/* Counter-based random numbers: a number is a function of (seed, purpose, stream, index).
 *
 * There is no state to pass on, store or keep in step. Two ranks that ask for the same index get
 * the same bits; a shard of a tensor is drawn alone, by the global indices of its elements; a
 * resumed run continues by itself. The generator is Philox4x32-10 (docs/papers.md: Salmon2011).
 *
 * A key is made by one Philox block from seed, purpose and stream (128 bits), so that streams that
 * differ in any of the three are unrelated. Under a key, block (index, lane) is 128 random bits.
 */
#ifndef COMMON_BASE_RNG_H
#define COMMON_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* What a number is for. Values are part of what a seed means: never renumber, only append. */
enum rng_purpose {
    RNG_INIT = 1,     /* initial weights; stream: hash_text(name), index: element of the tensor */
    RNG_ORDER = 2,    /* order of samples; stream: epoch */
    RNG_SAMPLER = 3,  /* tokens of generated text; stream: sequence, index: position */
    RNG_ROUNDING = 4, /* stochastic rounding; stream: hash_text(name) or step, index: element */
    RNG_CODEC = 5,    /* compressed communication */
    RNG_FAULT = 6,    /* injected faults */
    RNG_TEST = 7      /* data made up by tests and benchmarks */
};

struct rng_key {
    uint32_t word[4]; /* words 0, 1: the Philox key; 2, 3: the upper half of its counter */
};

/* The key of a stream. */
struct rng_key rng_key(uint64_t seed, enum rng_purpose purpose, uint64_t stream);

/* 128 random bits: Philox of counter (index low, index high, word[2], word[3] + lane) under the
 * key (word[0], word[1]). Lane 0 is what the functions below use; others give more bits for the
 * same index. */
void rng_block(uint32_t out[4], const struct rng_key *key, uint64_t index, uint32_t lane);

/* 32 or 64 random bits for index: word index % 4 of block index / 4; words 2j and 2j + 1 (low
 * first) of block index / 2 with j = index % 2. */
uint32_t rng_bits32(const struct rng_key *key, uint64_t index);
uint64_t rng_bits64(const struct rng_key *key, uint64_t index);

/* Uniform in [0, 1): a multiple of 2^-53 from rng_bits64, of 2^-24 from rng_bits32. */
double rng_uniform(const struct rng_key *key, uint64_t index);
float rng_uniform24(const struct rng_key *key, uint64_t index);

/* Uniform integer in [0, n), every value exactly as likely (rejection, over lanes of block index).
 * n must not be 0. */
uint64_t rng_below(const struct rng_key *key, uint64_t index, uint64_t n);

/* Standard normal by Box-Muller in float64: block index / 2 gives u, v in (0, 1] and [0, 1);
 * sqrt(-2 log u) times cos(2 pi v) for even and sin(2 pi v) for odd indices. |value| <= 8.58. */
double rng_normal(const struct rng_key *key, uint64_t index);

/* out[i] = sigma * rng_normal(key, first + i), i < count, rounded once to the type of out. How a
 * range is split into calls does not change a bit. */
void rng_normal_fill(float *out, const struct rng_key *key, uint64_t first, size_t count,
                     double sigma);
void rng_normal_fill64(double *out, const struct rng_key *key, uint64_t first, size_t count,
                       double sigma);

/* out[i] = low + (high - low) * rng_uniform(key, first + i), rounded once to float; as float the
 * upper end can be reached. */
void rng_uniform_fill(float *out, const struct rng_key *key, uint64_t first, size_t count,
                      double low, double high);

#endif
