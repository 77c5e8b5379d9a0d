#include "ref/calls.h"
#include "ref/rows.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

/* A difference shows in few of the elements that have one (sums of few terms often round alike),
 * so small shapes are tried with many numbers. */
enum { TRIED_ELEMENTS = 65536, TRIALS = 64 };

/* OpenBLAS cuts longer sums into panels and adds panel by panel; no kernel's is shorter. */
enum { FUSED_K = 256 };

void ref_call(const struct call_shape *s, struct call_operand a, struct call_operand b, real beta,
              real *c, int64_t ldc)
{
    cblas_rgemm(CblasRowMajor, s->kind == CALL_TN ? CblasTrans : CblasNoTrans,
                s->kind == CALL_NT ? CblasTrans : CblasNoTrans, (int)s->rows, (int)s->cols,
                (int)s->k, 1, a.p, (int)a.ld, b.p, (int)b.ld, beta, c, (int)ldc);
}

struct trial {
    struct call_shape s;
    int32_t down, across;
    int64_t rows, cols;       /* of all pieces */
    struct call_operand a, b; /* of the two numbers below */
    real *numbers[2], *c, *want;
    uint64_t state;
};

static void draw(struct trial *t, real *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        t->state = t->state * 6364136223846793005u + 1442695040888963407u;
        p[i] = (real)(t->state >> 40) * (real)0x1p-24 - (real)0.5;
    }
}

/* The bits as they are defined: a call for each piece. */
static void pieces(const struct trial *t)
{
    for (int32_t i = 0; i < t->down; i++)
        for (int32_t j = 0; j < t->across; j++) {
            int64_t row = i * t->s.rows, col = j * t->s.cols;
            struct call_operand a = t->a, b = t->b;

            a.p += t->s.kind == CALL_TN ? row : row * a.ld;
            b.p += t->s.kind == CALL_NT ? col * b.ld : col;
            ref_call(&t->s, a, b, 0, t->want + row * t->cols + col, t->cols);
        }
}

static int same_joined(struct trial *t)
{
    struct call_shape all = t->s;

    all.rows = t->rows;
    all.cols = t->cols;
    pieces(t);
    ref_call(&all, t->a, t->b, 0, t->c, t->cols);
    return !memcmp(t->c, t->want, (size_t)(t->rows * t->cols) * sizeof(real));
}

static int same_fused(struct trial *t)
{
    int64_t n = t->rows * t->cols;

    draw(t, t->c, n);
    ref_call(&t->s, t->a, t->b, 0, t->want, t->cols);
    row_add(t->want, t->c, t->want, n);
    ref_call(&t->s, t->a, t->b, 1, t->c, t->cols);
    return !memcmp(t->c, t->want, (size_t)n * sizeof(real));
}

static int try_all(struct trial *t, int fused)
{
    int64_t elements = 0;
    int same = 1;

    for (int i = 0; same && i < TRIALS && elements < TRIED_ELEMENTS; i++) {
        draw(t, t->numbers[0], t->rows * t->s.k);
        draw(t, t->numbers[1], t->cols * t->s.k);
        same = fused ? same_fused(t) : same_joined(t);
        elements += t->rows * t->cols;
    }
    return same;
}

/* Without memory for a trial the answer is no. */
static int try_shape(const struct call_shape *s, int32_t down, int32_t across)
{
    struct trial t = {.s = *s, .down = down ? down : 1, .across = across ? across : 1, .state = 1};
    int same = 0;

    t.rows = t.down * s->rows;
    t.cols = t.across * s->cols;
    t.numbers[0] = malloc((size_t)(t.rows * s->k) * sizeof(real));
    t.numbers[1] = malloc((size_t)(t.cols * s->k) * sizeof(real));
    t.c = malloc((size_t)(t.rows * t.cols) * sizeof(real));
    t.want = malloc((size_t)(t.rows * t.cols) * sizeof(real));
    t.a = (struct call_operand){t.numbers[0], s->kind == CALL_TN ? t.rows : s->k};
    t.b = (struct call_operand){t.numbers[1], s->kind == CALL_NT ? s->k : t.cols};
    if (t.numbers[0] && t.numbers[1] && t.c && t.want)
        same = try_all(&t, down == 0);
    free(t.numbers[0]);
    free(t.numbers[1]);
    free(t.c);
    free(t.want);
    return same;
}

static int same_shape(const struct call_shape *a, const struct call_shape *b)
{
    return a->kind == b->kind && a->rows == b->rows && a->cols == b->cols && a->k == b->k;
}

/* A table that is full knows no more: the answer is then no. */
static int ask(struct ref_calls *calls, const struct call_shape *s, int32_t down, int32_t across)
{
    int i = 0;

    while (i < calls->n && !(same_shape(&calls->known[i].shape, s) &&
                             calls->known[i].down == down && calls->known[i].across == across))
        i++;
    if (i == CALLS_KNOWN)
        return 0;
    if (i == calls->n) {
        calls->known[i].shape = *s;
        calls->known[i].down = down;
        calls->known[i].across = across;
        calls->known[i].same = try_shape(s, down, across);
        calls->n++;
    }
    return calls->known[i].same;
}

int ref_joins(struct ref_calls *calls, const struct call_shape *s, int32_t down, int32_t across)
{
    return (down == 1 && across == 1) || ask(calls, s, down, across);
}

int ref_fuses(struct ref_calls *calls, const struct call_shape *s)
{
    return s->k <= FUSED_K && ask(calls, s, 0, 0);
}

int ref_fuses_blocks(struct ref_calls *calls, enum call_kind kind, const struct blocks *b,
                     int64_t k)
{
    int64_t last_rows = b->piece_rows - (b->down - 1) * b->block_rows;
    int64_t last_cols = b->piece_cols - (b->across - 1) * b->block_cols;
    struct call_shape s = {kind, b->block_rows, b->block_cols, k}, row = s, col = s, corner = s;

    row.rows = corner.rows = last_rows;
    col.cols = corner.cols = last_cols;
    return ref_fuses(calls, &s) && ref_fuses(calls, &row) && ref_fuses(calls, &col) &&
           ref_fuses(calls, &corner);
}
