/* The closed formulas of docs/math.md, sections 8 and 9, written out once more, from the
 * configuration alone: what one training step sends and computes. */
#ifndef VALIDATION_EXPECTED_H
#define VALIDATION_EXPECTED_H

#include "common/backend/ledger.h"
#include "common/model/config.h"

/* One purpose of the ledger. Elements of the whole tensors, apart by kind of collective: a ring
 * sends 2 (p-1)/p of an all-reduce and (p-1)/p of an all-gather or reduce-scatter. */
struct expected_row {
    int64_t calls, reduced, scattered;
    int64_t bytes; /* of one element */
    int64_t ranks; /* of the group */
};

/* Row by purpose, for a resolved configuration with an fp32 or fp64 payload and equal shares of
 * the batch. */
void expected_step(struct expected_row row[LEDGER_COUNT], const struct config *cfg);

/* Elements, and bytes that a rank sends. */
int64_t expected_elements(const struct expected_row *row);
int64_t expected_bytes(const struct expected_row *row);

/* Floating-point operations of a training step per token: section 9. */
double expected_flops(const struct config *cfg);

#endif
