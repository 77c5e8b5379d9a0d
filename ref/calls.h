/* Fewer, larger calls of OpenBLAS, where they change no bit.
 *
 * Bits are defined by one call for each piece and grain (gemm.c, weight_grad.c), because a piece is
 * what every layout has whole. Such a piece can be as narrow as d / 8, and its product then spends
 * more time on copying operands than on arithmetic. Whether a library gives an element the same
 * bits in a larger call depends on its kernels: with SkylakeX's each element is one chain of fused
 * multiply-adds wherever it stands, with Haswell's it is not. So it is not assumed but tried: once
 * for each shape, on random numbers, both ways. The answer decides speed alone. */
#ifndef REF_CALLS_H
#define REF_CALLS_H

#include "common/backend/backend.h"
#include "ref/blocks.h"
#include "ref/real.h"

/* c[rows, cols] = a b' (NT), a b (NN), a' b (TN) over k. */
enum call_kind { CALL_NT, CALL_NN, CALL_TN };

struct call_shape {
    enum call_kind kind;
    int64_t rows, cols, k;
};

enum { CALLS_KNOWN = 256 };

/* What was tried on a device so far. */
struct ref_calls {
    int n;
    struct {
        struct call_shape shape;
        int32_t down, across, same; /* down 0: added to c against added afterwards */
    } known[CALLS_KNOWN];
};

/* An operand as it is stored: ld elements from row to row. */
struct call_operand {
    const real *p;
    int64_t ld;
};

/* c = beta c + the product; ldc elements from row to row of c. */
void ref_call(const struct call_shape *s, struct call_operand a, struct call_operand b, real beta,
              real *c, int64_t ldc);

/* Nonzero when one call of [down rows, across cols] has the bits of its down x across pieces. */
int ref_joins(struct ref_calls *calls, const struct call_shape *s, int32_t down, int32_t across);

/* Nonzero when a call with beta = 1 has the bits of one with beta = 0 that is then added. */
int ref_fuses(struct ref_calls *calls, const struct call_shape *s);

/* The same for all blocks of b, whose edges are smaller; k as in s. */
int ref_fuses_blocks(struct ref_calls *calls, enum call_kind kind, const struct blocks *b,
                     int64_t k);

/* The largest divisor of n with size * divisor <= limit that leaves at least `tasks` of
 * `count` tasks; 1 or more. */
static inline int32_t calls_divisor(int32_t n, int64_t size, int64_t limit, int64_t count,
                                    int64_t tasks)
{
    for (int32_t d = n; d > 1; d--)
        if (n % d == 0 && size * d <= limit && count / d >= tasks)
            return d;
    return 1;
}

#endif
