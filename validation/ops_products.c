#include "validation/ops.h"

#include <math.h>

/* y = a b (+ c) (+ y), both orders of b, with strides; groups of up to three members. */
static enum status gemm(struct ops_case *c, struct ops_size s, int variant)
{
    int64_t m = s.samples * s.seq, n = s.cols, k = s.cols / 2 + 3;
    int nn = variant & 1, resid = variant & 2, accumulate = variant & 4, gap = variant & 8 ? 8 : 0;
    struct buffer *y, *a, *b, *r;

    TRY(ops_random(c, &a, VALUE_ACT, m, k, gap, 1.0));
    TRY(ops_random(c, &b, VALUE_ACT, nn ? k : n, nn ? n : k, gap, 1.0));
    TRY(ops_random(c, &r, VALUE_ACT, m, n, gap, 1.0));
    if (accumulate)
        TRY(ops_random(c, &y, VALUE_ACT, m, n, gap, 1.0));
    else
        TRY(ops_poisoned(c, &y, VALUE_ACT, m, n, gap));
    for (int i = 0; i < SIDES; i++) {
        struct gemm g = {.y = y->t[i], .a = a->t[i], .b = b->t[i]};

        g.kind = nn ? GEMM_NN : GEMM_NT;
        g.accumulate = accumulate != 0;
        g.c = resid ? &r->t[i] : NULL;
        TRY(op_gemm(c->dev[i], &g, 1));
    }
    return ops_check(c, y, "y");
}

/* bf16 operands with a wide result, as partial sums that travel in fp32. */
static enum status gemm_wide(struct ops_case *c, struct ops_size s, int variant)
{
    int64_t m = s.samples * s.seq, n = s.cols, k = s.cols / 2 + 3;
    struct buffer *y, *a, *b;

    TRY(ops_random(c, &a, VALUE_ACT, m, k, 0, 1.0));
    TRY(ops_random(c, &b, VALUE_ACT, variant ? k : n, variant ? n : k, 0, 1.0));
    TRY(ops_poisoned(c, &y, VALUE_WIDE, m, n, 0));
    for (int i = 0; i < SIDES; i++) {
        struct gemm g = {.y = y->t[i], .a = a->t[i], .b = b->t[i]};

        g.kind = variant ? GEMM_NN : GEMM_NT;
        TRY(op_gemm(c->dev[i], &g, 1));
    }
    return ops_check(c, y, "y");
}

/* Three members: variant 0 shares a (q, k, v of one input), 1 has column slices of one tensor on
 * both sides (the grouped up-projections), 2 unrelated tensors, 3 members of unequal width. */
static enum status gemm_group(struct ops_case *c, struct ops_size s, int variant)
{
    int64_t m = s.samples * s.seq, r = s.cols / 3 + 1, n = s.cols / 2 + 1;
    int64_t width[3] = {n, variant == 3 ? n / 2 + 1 : n, variant == 3 ? n / 2 + 1 : n};
    struct buffer *y, *a, *b[3];

    TRY(ops_random(c, &a, VALUE_ACT, m, 3 * r, 0, 1.0));
    TRY(ops_poisoned(c, &y, VALUE_ACT, m, width[0] + width[1] + width[2], 0));
    for (int j = 0; j < 3; j++)
        TRY(ops_random(c, &b[j], VALUE_ACT, width[j], r, 0, 1.0));
    for (int i = 0; i < SIDES; i++) {
        struct gemm g[3] = {0};

        for (int j = 0, begin = 0; j < 3; begin += (int)width[j], j++) {
            g[j].y = tensor_cols(&y->t[i], begin, width[j], 1);
            g[j].a = tensor_cols(&a->t[i], variant == 0 ? 0 : j * r, r, 1);
            g[j].b = variant == 1 ? b[0]->t[i] : b[j]->t[i];
            g[j].kind = GEMM_NT;
        }
        TRY(op_gemm(c->dev[i], g, 3));
    }
    return ops_check(c, y, "y");
}

/* Members whose B lie one after the other in one tensor: what one larger or batched product can
 * do. variant 1: A side by side in rows, as the stacked down-projection. */
static enum status gemm_stacked(struct ops_case *c, struct ops_size s, int variant)
{
    int64_t m = s.samples * s.seq, r = s.cols / 3 + 1, n = s.cols / 2 + 1;
    struct buffer *y, *a, *b;

    TRY(ops_random(c, &a, VALUE_ACT, m, variant ? r : 3 * r, 0, 1.0));
    TRY(ops_random(c, &b, VALUE_ACT, 3 * n, r, 0, 1.0));
    TRY(ops_poisoned(c, &y, VALUE_ACT, m, 3 * n, 0));
    for (int i = 0; i < SIDES; i++) {
        struct gemm g[3] = {0};

        for (int j = 0; j < 3; j++) {
            g[j].y = tensor_cols(&y->t[i], j * n, n, 1);
            g[j].a = variant ? a->t[i] : tensor_cols(&a->t[i], j * r, r, 1);
            g[j].b = tensor_rows(&b->t[i], j * n, n, 1);
            g[j].kind = GEMM_NT;
        }
        TRY(op_gemm(c->dev[i], g, 3));
    }
    return ops_check(c, y, "y");
}

/* One product of three pairs. variant 0: pairs lie in a chain; 1: of unrelated tensors, with
 * unequal widths. */
static enum status gemm_pairs(struct ops_case *c, struct ops_size s, int variant)
{
    int64_t m = s.samples * s.seq, n = s.cols, k = s.cols / 3 + 1;
    int64_t width[3] = {k, variant ? k / 2 + 1 : k, variant ? k / 2 + 1 : k};
    struct buffer *y, *a, *b[3];

    TRY(ops_random(c, &a, VALUE_ACT, m, 3 * k, 0, 1.0));
    TRY(ops_random(c, &b[0], VALUE_ACT, variant ? width[0] : 3 * k, n, 0, 1.0));
    for (int j = 1; j < 3; j++)
        TRY(ops_random(c, &b[j], VALUE_ACT, width[j], n, 0, 1.0));
    TRY(ops_poisoned(c, &y, VALUE_ACT, m, n, 0));
    for (int i = 0; i < SIDES; i++) {
        struct gemm g = {.y = y->t[i], .kind = GEMM_NN, .more = 2};
        struct tensor aj[3], bj[3];

        for (int j = 0, begin = 0; j < 3; begin += (int)width[j], j++) {
            aj[j] = tensor_cols(&a->t[i], begin, width[j], 1);
            bj[j] = variant ? b[j]->t[i] : tensor_rows(&b[0]->t[i], j * k, k, 1);
        }
        g.a = aj[0];
        g.b = bj[0];
        g.part[0] = (struct gemm_part){aj[1], bj[1]};
        g.part[1] = (struct gemm_part){aj[2], bj[2]};
        TRY(op_gemm(c->dev[i], &g, 1));
    }
    return ops_check(c, y, "y");
}

/* The local form of Online-RMSNorm: rows of the product scaled, one grain. */
static enum status gemm_scaled(struct ops_case *c, struct ops_size s, int variant)
{
    int64_t m = s.samples * s.seq, n = s.cols, k = s.cols / 2 + 3;
    struct buffer *y, *a, *b, *l;

    TRY(ops_random(c, &a, VALUE_ACT, m, k, 0, 1.0));
    TRY(ops_random(c, &b, VALUE_ACT, n, k, 0, 1.0));
    TRY(ops_random(c, &l, VALUE_WIDE, m, 1, 0, 3.0));
    TRY(ops_poisoned(c, &y, variant ? VALUE_WIDE : VALUE_ACT, m, n, 0));
    for (int i = 0; i < SIDES; i++) {
        struct gemm g = {.y = y->t[i], .a = a->t[i], .b = b->t[i]};

        g.kind = GEMM_NT;
        g.k_scale = &l->t[i];
        TRY(op_gemm(c->dev[i], &g, 1));
    }
    return ops_check(c, y, "y");
}

/* dw (+)= dy' x for three members; variant 1 accumulates, 2 shares x with stacked dw. */
static enum status weight_grad(struct ops_case *c, struct ops_size s, int variant)
{
    int64_t m = s.samples * s.seq, out = s.cols, in = s.cols / 2 + 1;
    struct sample_plan plan = ops_plan((int32_t)s.samples, variant == 1);
    struct buffer *dw, *dy, *x;

    TRY(ops_random(c, &dy, VALUE_ACT, m, 3 * out, 0, 1.0));
    TRY(ops_random(c, &x, VALUE_ACT, m, variant == 2 ? in : 3 * in, 0, 1.0));
    if (variant == 1)
        TRY(ops_random(c, &dw, VALUE_WIDE, 3 * out, in, 0, 1.0));
    else
        TRY(ops_poisoned(c, &dw, VALUE_WIDE, 3 * out, in, 0));
    for (int i = 0; i < SIDES; i++) {
        struct weight_grad w[3] = {0};

        for (int j = 0; j < 3; j++) {
            w[j].dw = tensor_rows(&dw->t[i], j * out, out, 1);
            w[j].dy = tensor_cols(&dy->t[i], j * out, out, 1);
            w[j].x = variant == 2 ? x->t[i] : tensor_cols(&x->t[i], j * in, in, 1);
            w[j].dy.row_grains = w[j].x.row_grains = (int32_t)s.samples;
        }
        TRY(op_weight_grad(c->dev[i], w, 3, &plan));
    }
    return ops_check(c, dw, "dw");
}

/* Shapes of a product beside SwiGLU. variant bit 0: the plain product; bit 1: in multiples of
 * eight, for kernels that take 16 bytes at a time; bit 2: forward of unrelated inputs, backward
 * deep along K. Of the size with the most tokens, aligned, bf16, one kind is made so large
 * that each block of a kernel that stays on its multiprocessor does four tiles and more, and goes
 * through its stages more than once: `wide` columns. */
struct glu_size {
    int64_t m, n, k;
    enum swiglu_kind kind;
};

static struct glu_size glu_size(struct ops_size s, int variant, enum dtype act, int64_t wide)
{
    struct glu_size g = {.m = s.samples * s.seq,
                         .n = s.cols,
                         .k = (s.cols / 2 + 3) % 512,
                         .kind = variant & 1 ? SWIGLU_PRODUCT : SWIGLU_SILU};

    if (!(variant & 2))
        return g;
    g.n = (g.n + 7) / 8 * 8;
    g.k = g.k / 8 * 8 + 8;
    if (g.m > 512 && !(variant & 1) && wide && act == DT_BF16) {
        g.m *= 16;
        g.n = wide;
        g.k += 456;
    }
    return g;
}

/* gate | up as columns of one tensor */
static enum status gemm_swiglu(struct ops_case *c, struct ops_size s, int variant)
{
    struct glu_size size = glu_size(s, variant, c->act, variant & 4 ? 0 : 520);
    int64_t n = size.n, k = size.k;
    struct buffer *gu, *f, *a, *b[2];

    TRY(ops_random(c, &a, VALUE_ACT, size.m, 2 * k, 0, 1.0));
    TRY(ops_random(c, &b[0], VALUE_ACT, n, k, 0, 1.0 / sqrt((double)k)));
    TRY(ops_random(c, &b[1], VALUE_ACT, n, k, 0, 1.0 / sqrt((double)k)));
    TRY(ops_poisoned(c, &gu, VALUE_ACT, size.m, 2 * n, 0));
    TRY(ops_poisoned(c, &f, VALUE_ACT, size.m, n, 8));
    for (int i = 0; i < SIDES; i++) {
        struct gemm g[2] = {0};

        for (int j = 0; j < 2; j++)
            g[j] = (struct gemm){.y = tensor_cols(&gu->t[i], j * n, n, 1),
                                 .a = tensor_cols(&a->t[i], variant & 4 ? j * k : 0, k, 1),
                                 .b = b[j]->t[i],
                                 .kind = GEMM_NT};
        TRY(op_gemm_swiglu_forward(c->dev[i], g, &f->t[i], size.kind));
    }
    TRY(ops_check(c, gu, "g, u"));
    return ops_check(c, f, "f");
}

/* The plain product's gradients take the place of g and u. */
static enum status gemm_swiglu_backward(struct ops_case *c, struct ops_size s, int variant)
{
    struct glu_size size = glu_size(s, variant, c->act, variant & 4 ? 1672 : 1160);
    int64_t m = size.m, n = size.n, k = size.k + (variant & 4 ? 1536 : 0);
    struct buffer *gu, *dgu, *df, *a, *b;

    TRY(ops_random(c, &gu, VALUE_ACT, m, 2 * n, 0, 2.0));
    TRY(ops_random(c, &a, VALUE_ACT, m, k, 8, 1.0));
    TRY(ops_random(c, &b, VALUE_ACT, k, n, 0, 1.0 / sqrt((double)k)));
    dgu = gu;
    if (!(variant & 1))
        TRY(ops_poisoned(c, &dgu, VALUE_ACT, m, 2 * n, 0));
    TRY(ops_poisoned(c, &df, VALUE_ACT, m, n, 0));
    for (int i = 0; i < SIDES; i++) {
        struct gemm g = {.y = df->t[i], .a = a->t[i], .b = b->t[i], .kind = GEMM_NN};
        struct swiglu_grad d = {.df = df->t[i],
                                .g = tensor_cols(&gu->t[i], 0, n, 1),
                                .u = tensor_cols(&gu->t[i], n, n, 1),
                                .dg = tensor_cols(&dgu->t[i], 0, n, 1),
                                .du = tensor_cols(&dgu->t[i], n, n, 1)};

        TRY(op_gemm_swiglu_backward(c->dev[i], &g, &d, size.kind));
    }
    return ops_check(c, dgu, "dg, du");
}

/* "fused glu" are op_gemm_swiglu_*: racecheck cannot run their kernel, so --only gemm and swiglu
 * leave them out. Forward rounds gate, up and f: of a lone element up to 3 x 2^-9 and, where silu
 * is steep for its size, more.
 * bf16 in, fp32 sums: the product's own rounding to bf16 is 2^-9 a value, 1.2e-3 in the norm. */
const struct ops_test ops_products[] = {
    {"gemm", 16, gemm, 2e-6, 4e-3},
    {"gemm_wide", 2, gemm_wide, 2e-6, 2e-6},
    {"gemm_group", 4, gemm_group, 2e-6, 4e-3},
    {"gemm_stacked", 2, gemm_stacked, 2e-6, 4e-3},
    {"gemm_pairs", 2, gemm_pairs, 2e-6, 6e-3},
    {"gemm_scaled", 2, gemm_scaled, 2e-6, 6e-3},
    {"fused glu", 8, gemm_swiglu, 2e-6, 8e-3},
    {"fused glu, backward", 8, gemm_swiglu_backward, 4e-6, 6e-3},
    {"weight_grad", 3, weight_grad, 2e-6, 2e-6},
    {NULL, 0, NULL, 0, 0}};
