/* The closed formulas of docs/math.md, sections 8 and 9, written out once more, from the
 * configuration alone: what one training step sends and computes. */
#ifndef VALIDATION_EXPECTED_H
#define VALIDATION_EXPECTED_H

#include "common/backend/ledger.h"
#include "common/model/config.h"

/* One purpose of the ledger: calls, elements of the whole tensors, and bytes that a rank sends: in
 * a ring 2 (n-1)/n of an all-reduce among n and (n-1)/n of an all-gather or reduce-scatter. */
struct expected_row {
    int64_t calls, elements, bytes;
};

/* Whose step. share, share2: elements of the largest share of ZeRO-1 (model/grains.h), of first
 * and second gradients; they follow from a deal, not from a formula. */
struct expected_place {
    int stage;
    int64_t share, share2;
};

/* Row by purpose, for a resolved configuration with an fp32 or fp64 payload, equal shares of the
 * batch, and all gradients in one bucket. */
void expected_step(struct expected_row row[LEDGER_COUNT], const struct config *cfg,
                   const struct expected_place *at);

/* Floating-point operations of a training step per token: section 9. */
double expected_flops(const struct config *cfg);

#endif
