#include "common/data/order.h"

#include "common/base/rng.h"

#include <math.h>

enum { ROUNDS = 16 };

/* Half of a pair: the least even a with a^2 >= n. sqrt is rounded as IEEE 754 says everywhere. */
static uint64_t half_size(int64_t n)
{
    uint64_t a = (uint64_t)sqrt((double)n);

    while (a * a < (uint64_t)n)
        a++;
    return a + a % 2;
}

/* The round's function of a half, below a: 43 random bits, scaled. a is below 2^21. */
static uint64_t scrambled(const struct rng_key *key, uint64_t half, int round, uint64_t a)
{
    uint32_t block[4];

    rng_block(block, key, half, (uint32_t)round);
    return (((uint64_t)block[1] << 32 | block[0]) >> 21) * a >> 43;
}

/* One pass through the network, forwards or backwards. */
static uint64_t forwards(const struct rng_key *key, uint64_t x, uint64_t a)
{
    uint64_t left = x / a, right = x % a;

    for (int round = 0; round < ROUNDS; round++) {
        uint64_t next = left + scrambled(key, right, round, a);

        left = right;
        right = next < a ? next : next - a;
    }
    return left * a + right;
}

static uint64_t backwards(const struct rng_key *key, uint64_t x, uint64_t a)
{
    uint64_t left = x / a, right = x % a;

    for (int round = ROUNDS - 1; round >= 0; round--) {
        uint64_t before = right + a - scrambled(key, left, round, a);

        right = left;
        left = before < a ? before : before - a;
    }
    return left * a + right;
}

int64_t order_sample(uint64_t seed, int64_t epoch, int64_t n, int64_t i)
{
    struct rng_key key = rng_key(seed, RNG_ORDER, (uint64_t)epoch);
    uint64_t a = half_size(n), x = (uint64_t)i;

    do
        x = forwards(&key, x, a);
    while (x >= (uint64_t)n);
    return (int64_t)x;
}

int64_t order_position(uint64_t seed, int64_t epoch, int64_t n, int64_t sample)
{
    struct rng_key key = rng_key(seed, RNG_ORDER, (uint64_t)epoch);
    uint64_t a = half_size(n), x = (uint64_t)sample;

    do
        x = backwards(&key, x, a);
    while (x >= (uint64_t)n);
    return (int64_t)x;
}
