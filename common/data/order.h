/* The order in which an epoch visits its samples: a permutation that is computed, not stored.
 *
 * A Feistel network over pairs (left, right) of numbers below a, with a^2 >= n, permutes
 * [0, a^2): each round adds a random function of one half to the other, modulo a. Walking on until
 * the result is below n makes it a permutation of [0, n), for every n (docs/papers.md: Black2002,
 * sections 3 and 5). a is about the root of n, so that hardly any walk takes a second step, and
 * even, so that orders of both parities occur. All arithmetic is on exact 64-bit integers.
 */
#ifndef COMMON_DATA_ORDER_H
#define COMMON_DATA_ORDER_H

#include <stdint.h>

enum { ORDER_MAX_BITS = 40 }; /* n may be up to 2^40 samples */

/* The sample that comes i-th in an epoch, 0 <= i < n. Depends on nothing else: ranks, layouts and
 * resumed runs agree. Each epoch has an order of its own. Cost: 16 Philox blocks, under a
 * microsecond; no memory. 1 <= n <= 2^ORDER_MAX_BITS. */
int64_t order_sample(uint64_t seed, int64_t epoch, int64_t n, int64_t i);

/* The inverse: where in the epoch the sample comes. */
int64_t order_position(uint64_t seed, int64_t epoch, int64_t n, int64_t sample);

#endif
