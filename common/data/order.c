#include "common/data/order.h"

#include "common/base/rng.h"

/* Bits of a round's pairs come from lanes that rng_below does not reach for the round's K. */
enum { BIT_LANE = 1 << 30 };

static int rounds_for(uint64_t n)
{
    int bits = 0;

    while (n > 1) {
        n = (n + 1) / 2;
        bits++;
    }
    return 24 + 6 * bits;
}

/* One round; its own inverse. */
static uint64_t swap_or_not(uint64_t x, const struct rng_key *key, uint64_t n, int round)
{
    uint64_t k = rng_below(key, (uint64_t)round, n);
    uint64_t partner = k >= x ? k - x : n - (x - k);
    uint32_t block[4];

    rng_block(block, key, x > partner ? x : partner, (uint32_t)(BIT_LANE + round));
    return block[0] & 1 ? partner : x;
}

int64_t order_sample(uint64_t seed, int64_t epoch, int64_t n, int64_t i)
{
    struct rng_key key = rng_key(seed, RNG_ORDER, (uint64_t)epoch);
    uint64_t x = (uint64_t)i;
    int rounds = rounds_for((uint64_t)n);

    for (int round = 0; round < rounds; round++)
        x = swap_or_not(x, &key, (uint64_t)n, round);
    return (int64_t)x;
}

int64_t order_position(uint64_t seed, int64_t epoch, int64_t n, int64_t sample)
{
    struct rng_key key = rng_key(seed, RNG_ORDER, (uint64_t)epoch);
    uint64_t x = (uint64_t)sample;

    for (int round = rounds_for((uint64_t)n) - 1; round >= 0; round--)
        x = swap_or_not(x, &key, (uint64_t)n, round);
    return (int64_t)x;
}
