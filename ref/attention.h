/* What the forward and the backward of attention share: one head of one sequence. */
#ifndef REF_ATTENTION_H
#define REF_ATTENTION_H

#include "ref/ref.h"

#include <cblas.h>

enum { ATTENTION_ROWS = 64 }; /* queries that are treated together */

/* head_dim columns of one head, the rows of one sequence. */
struct head {
    real *p;
    int64_t ld;
};

/* Columns of head h and rows [row, row + rows) of t: its memory, or converted into buf. */
struct head attention_load(const struct tensor *t, int64_t row, int64_t rows, int64_t h,
                           int64_t dim, real *buf);

/* The same place for writing: its memory or buf; attention_store rounds a buf into t. */
struct head attention_place(const struct tensor *t, int64_t row, int64_t h, int64_t dim, real *buf);
void attention_store(const struct tensor *t, int64_t row, int64_t rows, int64_t h, int64_t dim,
                     const real *buf);

/* Where the document that query `first` of sequence b begins ends; seq without documents. */
static inline int64_t attention_document(const struct attention *at, int64_t b, int64_t first)
{
    const int32_t *starts = at->starts.data;
    int64_t i = first + 1;

    while (starts && i < at->seq && starts[b * at->seq + i] != i)
        i++;
    return starts ? i : at->seq;
}

/* 1 / sqrt(head_dim) */
static inline real attention_scale(int64_t dim)
{
    return (real)1 / real_sqrt((real)dim);
}

/* c[m, n] = beta c + a b, or a b' with `trans`; a is [m, k]. */
static inline void attention_product(struct head c, struct head a, struct head b, int trans,
                                     const int64_t mnk[3], real beta)
{
    cblas_rgemm(CblasRowMajor, CblasNoTrans, trans ? CblasTrans : CblasNoTrans, (int)mnk[0],
                (int)mnk[1], (int)mnk[2], 1, a.p, (int)a.ld, b.p, (int)b.ld, beta, c.p, (int)c.ld);
}

#endif
