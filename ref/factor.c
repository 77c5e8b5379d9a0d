#include "ref/factor.h"

#include <cblas.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* LAPACK as Fortran has it: columns lie together, every argument is an address. */
extern void lapack_svd(const char *job, const int *m, const int *n, double *a, const int *lda,
                       double *s, double *u, const int *ldu, double *vt, const int *ldvt,
                       double *work, const int *lwork, int *iwork, int *info) __asm__("dgesdd_");
extern void lapack_cholesky(const char *uplo, const int *n, double *a, const int *lda,
                            int *info) __asm__("dpotrf_");

/* u [rows, k], s [k], vt [k, cols], k = min(rows, cols). What is row after row here is the turned
 * matrix column after column there: a' = (vt)' s u'. */
static enum status svd(double *u, double *s, double *vt, double *a, int rows, int cols)
{
    int k = rows < cols ? rows : cols, info = 0, room = -1;
    int *small = malloc(8 * (size_t)k * sizeof *small);
    double size = 0, *work = NULL;
    enum status st = ST_OK;

    if (small)
        lapack_svd("S", &cols, &rows, a, &cols, s, vt, &cols, u, &k, &size, &room, small, &info);
    room = (int)size;
    work = small && info == 0 ? malloc((size_t)room * sizeof *work) : NULL;
    if (!work)
        st = fail(ST_ENOMEM, "no memory for the singular values of a matrix %d x %d", rows, cols);
    else
        lapack_svd("S", &cols, &rows, a, &cols, s, vt, &cols, u, &k, work, &room, small, &info);
    if (st == ST_OK && info != 0)
        st =
            fail(ST_ENUMERIC, "the singular values of a matrix %d x %d were not found (dgesdd: %d)",
                 rows, cols, info);
    free(small);
    free(work);
    return st;
}

/* c [n, n] = L, lower, with L L' = c + ridge I; zeros above. */
static enum status cholesky(double *c, int n)
{
    double trace = 0;
    int info = 0;

    for (int i = 0; i < n; i++)
        trace += c[(int64_t)i * n + i];
    for (int i = 0; i < n; i++)
        c[(int64_t)i * n + i] += 1e-6 * trace / n;
    lapack_cholesky("U", &n, c, &n, &info); /* upper by columns is lower by rows */
    if (info != 0 || !isfinite(trace))
        return fail(ST_ENUMERIC, "the second moments of %d inputs are not positive (dpotrf: %d)", n,
                    info);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++)
            c[i * n + j] = 0;
    return ST_OK;
}

/* Factors from a decomposition, and what they keep. */
static void fill(struct factor *f, const double *u, const double *s, const double *vt, int64_t out,
                 int64_t in)
{
    int64_t k = out < in ? out : in;

    f->energy = f->kept = 0;
    f->largest = s[0];
    for (int64_t i = 0; i < k; i++) {
        f->energy += s[i] * s[i];
        f->kept += i < f->r ? s[i] * s[i] : 0;
    }
    for (int64_t i = 0; i < out; i++)
        for (int64_t j = 0; j < f->r; j++)
            f->b[i * f->r + j] = u[i * k + j] * sqrt(s[j]);
    for (int64_t j = 0; j < f->r; j++)
        for (int64_t i = 0; i < in; i++)
            f->a[j * in + i] = vt[j * in + i] * sqrt(s[j]);
}

static enum status decompose(struct factor *f, double *w, int64_t out, int64_t in,
                             const double *lower, double *room)
{
    int64_t k = out < in ? out : in;
    double *u = room, *s = u + out * k, *vt = s + k;

    if (lower) /* w L: only the lower half of L is not zero */
        cblas_dtrmm(CblasRowMajor, CblasRight, CblasLower, CblasNoTrans, CblasNonUnit, (int)out,
                    (int)in, 1, lower, (int)in, w, (int)in);
    TRY(svd(u, s, vt, w, (int)out, (int)in));
    fill(f, u, s, vt, out, in);
    if (lower) /* a L = what was found */
        cblas_dtrsm(CblasRowMajor, CblasRight, CblasLower, CblasNoTrans, CblasNonUnit, (int)f->r,
                    (int)in, 1, lower, (int)in, f->a, (int)in);
    return ST_OK;
}

enum status factor_nearest(struct factor *f, double *w, int64_t out, int64_t in, double *moment)
{
    int64_t k = out < in ? out : in;
    double *room;
    enum status st = ST_OK;

    FAIL_IF(f->r < 1 || f->r > k || out > INT32_MAX || in > INT32_MAX, ST_EINTERNAL);
    room = malloc((size_t)(out * k + k + k * in) * sizeof *room);
    if (!room)
        return fail(ST_ENOMEM, "no memory to factor a matrix %lld x %lld", (long long)out,
                    (long long)in);
    if (moment)
        st = cholesky(moment, (int)in);
    if (st == ST_OK)
        st = decompose(f, w, out, in, moment, room);
    free(room);
    return st;
}
