/* Arguments of the operations of the seam that need more than a few tensors. */
#ifndef COMMON_BACKEND_OP_TYPES_H
#define COMMON_BACKEND_OP_TYPES_H

#include "common/tensor/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* NN: y[M,N] = a[M,K] b[K,N]    NT: y[M,N] = a[M,K] b[N,K]' */
enum gemm_kind { GEMM_NN, GEMM_NT };

/* One more pair of operands of a product, of the shapes and grains along K of the first. */
struct gemm_part {
    struct tensor a, b;
};

/* y = sum over K grains (a b, each grain's partial product times its column of k_scale)
 *     + c (when given) + y (when accumulate).
 * With `more` further pairs (q, k and v that lead back to one input) each grain's partial product
 * is a b + more[0].a more[0].b + more[1].a more[1].b, added in this order before grains are
 * summed; widths along K may differ from pair to pair, the number of grains does not. */
struct gemm {
    struct tensor y, a, b;
    enum gemm_kind kind;
    int more; /* further pairs in use: 0, 1 or 2 */
    struct gemm_part part[2];
    int accumulate;
    const struct tensor *c;       /* [M, N] residual, or NULL; may be y itself */
    const struct tensor *k_scale; /* [M, grains of K] or NULL */
};

/* dw[out, in] joins dy[M, out]' x[M, in] by the sample plan; wide type. */
struct weight_grad {
    struct tensor dw, dy, x;
};

/* rms(s) = sqrt(s / width + eps): width is the whole model's, s a sum of squares over it. */
struct norm {
    int64_t width;
    double eps;
};

/* Arguments of the backward of a norm, h = x * gain * alpha. */
struct rms_grad {
    struct tensor dx;    /* [M, d_l]  +=                                      */
    struct tensor dgain; /* [1, d_l]  joins by the sample plan; wide type     */
    struct tensor t;     /* [M, d_l]  gradient of h (see each op)             */
    struct tensor x;     /* [M, d_l]  input of the norm                       */
    struct tensor gain;  /* [1, d_l]                                          */
};

enum act { ACT_NONE, ACT_SILU };

/* What stands between A and B of a low-rank projection. */
struct latent {
    enum act act;
    struct norm norm; /* used when a statistic is given */
};

/* Rows are tokens; row i is at position pos0 + i mod seq of its sequence; with `starts` (data NULL:
 * none), at starts[i] less: positions begin anew with a document. */
struct rope {
    int64_t seq, head_dim, pos0;
    struct tensor starts; /* [batch*seq, 1] i32, packed */
    int inverse;          /* rotates back: the backward of the rotation */
};

/* Causal attention on the heads of this rank. Query head h reads key head h * kv_heads / heads.
 * Query row b * seq + i has position pos0 + i and sees keys 0 .. pos0 + i of its sequence, which
 * stand in rows b * kv_rows + u of k and v. While training, kv_rows = seq and pos0 = 0.
 * With `starts` (data NULL: none; while training only) the sequence is cut into documents: query i
 * sees keys starts[i] .. i, and starts[i] is where its document begins, so starts[i] <= i and
 * starts[i] is starts[i - 1] or i. A document is computed as a sequence of its own would be. */
struct attention {
    int64_t batch, seq, kv_rows, pos0;
    int64_t heads, kv_heads, head_dim;
    struct tensor q, o;   /* [batch*seq, heads*head_dim]           */
    struct tensor k, v;   /* [batch*kv_rows, kv_heads*head_dim]    */
    struct tensor lse;    /* [batch*seq, heads]  log-sum-exp of the scaled scores; wide type */
    struct tensor starts; /* [batch*seq, 1] i32, packed */
};

/* SWIGLU: f = silu(g) * u.   PRODUCT: f = g * u (CoLA with its outer SiLU off). */
enum swiglu_kind { SWIGLU_SILU, SWIGLU_PRODUCT };

struct swiglu_grad {
    struct tensor dg, du;   /* out */
    struct tensor df, g, u; /* in; dg may be df or g, du may be df or u... but dg and du differ */
};

/* This rank's columns of the logits: columns [first, first + cols) of the padded vocabulary, of
 * which those below `valid` (the tokenizer's size) are real; padded ones have probability 0. */
struct vocab_cut {
    int64_t first, valid;
};

/* One parameter tensor of the optimiser; all of one shape. */
struct adamw_item {
    struct tensor w;      /* the weights that the model reads (working type)               */
    struct tensor master; /* wide copy; data NULL when w is the only copy                  */
    struct tensor m, v;   /* moments                                                       */
    struct tensor g;      /* gradient; wide type                                           */
    int decay;            /* weight decay applies                                          */
};

/* Scalars of one AdamW step t = 1, 2, ...; bias1 = 1 - beta1^t, bias2 = 1 - beta2^t. */
struct adamw_step {
    double lr, beta1, beta2, eps, weight_decay, bias1, bias2;
};

#ifdef __cplusplus
}
#endif
#endif
