/* The best factors of a matrix, by LAPACK (which OpenBLAS carries). Float64, row after row. */
#ifndef REF_FACTOR_H
#define REF_FACTOR_H

#include "common/base/status.h"

#include <stdint.h>

struct factor {
    double *a, *b;  /* [r, in], [out, r]: out, given by the caller */
    int64_t r;      /* at most min(out, in) */
    double energy;  /* sum of squares of all singular values: out */
    double kept;    /* of the first r */
    double largest; /* the largest singular value */
};

/* Fills f->a and f->b so that b a is the matrix of rank r that is nearest to w [out, in] (spoilt).
 *
 * moment NULL: nearest is the sum of squares of w - b a. With w = U diag(s) V' (s falling),
 * b = U_r diag(s_r)^(1/2) and a = diag(s_r)^(1/2) V_r'.
 *
 * moment [in, in] (spoilt): the second moments C = mean of x x' of the inputs x that w reads.
 * Nearest is then the mean of |w x - b a x|^2. With C + ridge I = L L' (Cholesky, ridge 1e-6 of the
 * mean of C's diagonal) and w L = U diag(s) V', b is as before and a = diag(s_r)^(1/2) V_r' L^-1;
 * energies are those of the outputs w x. In either case latent k of a x has second moment s_k for
 * inputs with second moments I, or C.
 *
 * Local. Errors: ST_ENUMERIC when LAPACK comes to no end or C is not positive; ST_ENOMEM. */
enum status factor_nearest(struct factor *f, double *w, int64_t out, int64_t in, double *moment);

#endif
