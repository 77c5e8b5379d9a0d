#include "common/base/rng.h"

#include "common/base/elementary.h"

#include <Random123/philox.h>
#include <math.h>

struct rng_key rng_key(uint64_t seed, enum rng_purpose purpose, uint64_t stream)
{
    philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    philox4x32_ctr_t counter = {{(uint32_t)stream, (uint32_t)(stream >> 32), (uint32_t)purpose, 0}};
    philox4x32_ctr_t out = philox4x32_R(10, counter, key);

    return (struct rng_key){{out.v[0], out.v[1], out.v[2], out.v[3]}};
}

void rng_block(uint32_t out[4], const struct rng_key *key, uint64_t index, uint32_t lane)
{
    philox4x32_key_t k = {{key->word[0], key->word[1]}};
    philox4x32_ctr_t counter = {
        {(uint32_t)index, (uint32_t)(index >> 32), key->word[2], key->word[3] + lane}};
    philox4x32_ctr_t block = philox4x32_R(10, counter, k);

    for (int i = 0; i < 4; i++)
        out[i] = block.v[i];
}

static uint64_t pair64(const uint32_t *word)
{
    return (uint64_t)word[1] << 32 | word[0];
}

uint32_t rng_bits32(const struct rng_key *key, uint64_t index)
{
    uint32_t block[4];

    rng_block(block, key, index / 4, 0);
    return block[index % 4];
}

uint64_t rng_bits64(const struct rng_key *key, uint64_t index)
{
    uint32_t block[4];

    rng_block(block, key, index / 2, 0);
    return pair64(block + 2 * (index % 2));
}

double rng_uniform(const struct rng_key *key, uint64_t index)
{
    return (double)(rng_bits64(key, index) >> 11) * 0x1p-53;
}

float rng_uniform24(const struct rng_key *key, uint64_t index)
{
    return (float)(rng_bits32(key, index) >> 8) * 0x1p-24f;
}

uint64_t rng_below(const struct rng_key *key, uint64_t index, uint64_t n)
{
    /* 2^64 mod n: without the first so many values, each residue has equally many. */
    uint64_t surplus = (0 - n) % n;

    for (uint32_t lane = 0;; lane++) {
        uint32_t block[4];

        rng_block(block, key, index, lane);
        for (int i = 0; i < 4; i += 2)
            if (pair64(block + i) >= surplus)
                return pair64(block + i) % n;
    }
}

/* The normal values of indices 2 pair and 2 pair + 1. */
static void normal_pair(double out[2], const struct rng_key *key, uint64_t pair)
{
    uint32_t block[4];
    double u, v, radius, s, c;

    rng_block(block, key, pair, 0);
    u = (double)((pair64(block) >> 11) + 1) * 0x1p-53;
    v = (double)(pair64(block + 2) >> 11) * 0x1p-53;
    radius = sqrt(-2 * elementary_log(u));
    elementary_sincos_turns(&s, &c, v);
    out[0] = radius * c;
    out[1] = radius * s;
}

double rng_normal(const struct rng_key *key, uint64_t index)
{
    double pair[2];

    normal_pair(pair, key, index / 2);
    return pair[index % 2];
}

void rng_normal_fill(float *out, const struct rng_key *key, uint64_t first, size_t count,
                     double sigma)
{
    for (size_t i = 0; i < count;) {
        double pair[2];

        normal_pair(pair, key, (first + i) / 2);
        for (uint64_t j = (first + i) % 2; j < 2 && i < count; j++)
            out[i++] = (float)(sigma * pair[j]);
    }
}

void rng_normal_fill64(double *out, const struct rng_key *key, uint64_t first, size_t count,
                       double sigma)
{
    for (size_t i = 0; i < count;) {
        double pair[2];

        normal_pair(pair, key, (first + i) / 2);
        for (uint64_t j = (first + i) % 2; j < 2 && i < count; j++)
            out[i++] = sigma * pair[j];
    }
}

void rng_uniform_fill(float *out, const struct rng_key *key, uint64_t first, size_t count,
                      double low, double high)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (float)(low + (high - low) * rng_uniform(key, first + i));
}
