/* The sum over ranks: one order of additions, whatever carried the numbers here. */
#ifndef REF_RANK_SUM_H
#define REF_RANK_SUM_H

#include "common/tensor/dtype.h"

/* out[i] = sum over r of part r's element i, i < count, over the balanced binary tree in rank
 * order: sum of [lo, hi) = [lo, mid) + [mid, hi), mid = lo + (hi - lo) / 2; ranks may be any
 * number. Part r stands at parts + r * pitch (bytes, no alignment needed). bf16 is added as float
 * and rounded once; i32 wraps. out must not overlap parts. */
void rank_sum(void *out, const void *parts, size_t pitch, int ranks, enum dtype dt, int64_t count);

#endif
