/* The order in which an epoch visits its samples: a permutation that is computed, not stored.
 *
 * Swap-or-not shuffle (docs/papers.md: Hoang2012): in each round a random K pairs every x with
 * (K - x) mod n, and one random bit a pair says whether the two change places. It is a permutation
 * of [0, n) for every n, needs no memory, and runs backwards as easily as forwards. All arithmetic
 * is on exact 64-bit integers.
 */
#ifndef COMMON_DATA_ORDER_H
#define COMMON_DATA_ORDER_H

#include <stdint.h>

enum { ORDER_MAX_BITS = 40 }; /* n may be up to 2^40 samples */

/* The sample that comes i-th in an epoch, 0 <= i < n. Depends on nothing else: ranks, layouts and
 * resumed runs agree. Each epoch has an order of its own. Cost: about 6 log2(n) + 24 rounds of two
 * Philox blocks (some microseconds). 1 <= n <= 2^ORDER_MAX_BITS. */
int64_t order_sample(uint64_t seed, int64_t epoch, int64_t n, int64_t i);

/* The inverse: where in the epoch the sample comes. */
int64_t order_position(uint64_t seed, int64_t epoch, int64_t n, int64_t sample);

#endif
