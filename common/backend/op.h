/* The operations that common/ is written in.
 *
 * Each wrapper checks shapes and data types, then calls the backend's slot. In comments: M tokens
 * on this rank, d model width, r rank of the bottleneck, f FFN units, V vocabulary, n members of a
 * group, p ranks; suffix _l this rank's share; G_l grains of it. "wide" is dev->wide. Sums over a
 * cut dimension run over its grains by a balanced binary tree in grain order (numerics.md).
 * Activations may be wide or bf16; results are rounded once, on store. No op allocates, waits for
 * the device, or communicates. Errors of all: ST_ESHAPE, ST_EDTYPE, ST_EDEVICE.
 */
#ifndef COMMON_BACKEND_OP_H
#define COMMON_BACKEND_OP_H

#include "common/backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* n independent matrix products (struct gemm). Members of a group that share an operand or lie
 * side by side may be done by one kernel. y must not overlap a or b. */
enum status op_gemm(struct device *dev, const struct gemm *g, int n);

/* n weight gradients dw += dy' x (struct weight_grad), joined by plan. */
enum status op_weight_grad(struct device *dev, const struct weight_grad *w, int n,
                           const struct sample_plan *plan);

/* Whole RMSNorm on one rank: s[M,1] = sum_j x^2, h[M,d] = x * gain / rms(s). s wide. */
enum status op_rms_norm(struct device *dev, struct tensor *h, struct tensor *s,
                        const struct tensor *x, const struct tensor *gain, struct norm norm);

/* Its backward, t the gradient of h: c = sum_j t gain x,
 * dx += t gain / rms - x c / (width rms^3);   dgain joins sum_M t x / rms. */
enum status op_rms_norm_backward(struct device *dev, const struct rms_grad *g,
                                 const struct tensor *s, struct norm norm,
                                 const struct sample_plan *plan);

/* A shard's part of Online-RMSNorm: s[M,1] = sum over this shard of x^2, and
 * short form (l NULL): h = x * gain;
 * local form: l[M,G_l] = rms of each grain's own part (its sum of squares over its own width),
 *             h = x * gain / l of its grain.   s and l wide. */
enum status op_rms_partial(struct device *dev, struct tensor *h, struct tensor *s, struct tensor *l,
                           const struct tensor *x, const struct tensor *gain, struct norm norm);

/* s[M,1] = sum_j x^2 over the shard. */
enum status op_rms_stat(struct device *dev, struct tensor *s, const struct tensor *x);

/* h = x * gain / rms(s) with the whole model's statistic s. */
enum status op_rms_apply(struct device *dev, struct tensor *h, const struct tensor *x,
                         const struct tensor *gain, const struct tensor *s, struct norm norm);

/* c[M,1] = sum_j t gain x over the shard. */
enum status op_rms_dot(struct device *dev, struct tensor *c, const struct tensor *t,
                       const struct tensor *x, const struct tensor *gain);

/* coef[M,2]: column 0 alpha = 1 / rms(s), column 1 beta = c / (width rms(s)^3). wide. */
enum status op_rms_coef(struct device *dev, struct tensor *coef, const struct tensor *c,
                        const struct tensor *s, struct norm norm);

/* dx += alpha t gain - beta x,   dgain joins sum_M alpha t x. */
enum status op_rms_backward(struct device *dev, const struct rms_grad *g, const struct tensor *coef,
                            const struct sample_plan *plan);

/* z = zsum / rms(s) (z = zsum when s is NULL), a = act(z). [M, n r]. z may be zsum. a may be NULL
 * when only z is wanted. */
enum status op_latent_forward(struct device *dev, struct tensor *z, struct tensor *a,
                              const struct tensor *zsum, const struct tensor *s, struct latent lat);

/* a = act(z). */
enum status op_latent_act(struct device *dev, struct tensor *a, const struct tensor *z,
                          struct latent lat);

/* dz = da act'(z);   u = dz / rms(s) (dz when s is NULL);
 * coef[M,2] (when not NULL): alpha = 1, beta = <dz, z> / (width rms(s)^2), over all n r columns:
 * the closed form of Online-RMSNorm's backward; no communication. u may be da. */
enum status op_latent_backward(struct device *dev, struct tensor *u, struct tensor *coef,
                               const struct tensor *da, const struct tensor *z,
                               const struct tensor *s, struct latent lat);

/* Rotary embedding in place: pair (j, j + head_dim/2) of each head is turned by the angle whose
 * cosine and sine stand in row `position` of table [positions, head_dim]: cosines, then sines.
 * Positions may begin anew with each document (struct rope). */
enum status op_rope(struct device *dev, struct tensor *x, const struct tensor *table,
                    struct rope rope);

/* Fills at->o and at->lse from q, k, v: o = softmax(q k' / sqrt(head_dim)) v, causal, and
 * within documents where at->starts says so. */
enum status op_attention_forward(struct device *dev, struct attention *at);

/* Fills dat->q, dat->k, dat->v from dat->o and the forward's tensors (training shapes only). */
enum status op_attention_backward(struct device *dev, const struct attention *at,
                                  struct attention *dat);

/* f = silu(g) * u or g * u, all [M, f_l]; and backward. */
enum status op_swiglu_forward(struct device *dev, struct tensor *f, const struct tensor *g,
                              const struct tensor *u, enum swiglu_kind kind);
enum status op_swiglu_backward(struct device *dev, const struct swiglu_grad *d,
                               enum swiglu_kind kind);

/* The two with the product beside each, which a backend may do in one pass over memory.
 * Forward: op_gemm of g[0], the gate, and g[1], up; then f of what they wrote.
 * Backward: op_gemm of g, whose y is d->df, then dg and du from df as y would hold it; what y holds
 * afterwards is not defined, unless dg or du took its place. f, dg and du overlap no operand of the
 * products, f neither gate nor up. */
enum status op_gemm_swiglu_forward(struct device *dev, const struct gemm g[2], struct tensor *f,
                                   enum swiglu_kind kind);
enum status op_gemm_swiglu_backward(struct device *dev, const struct gemm *g,
                                    const struct swiglu_grad *d, enum swiglu_kind kind);

/* y = a + b, all of one shape; y may be a or b. */
enum status op_add(struct device *dev, struct tensor *y, const struct tensor *a,
                   const struct tensor *b);

/* y[i,:] += bias[0,:], in place; and backward: dbias joins sum_M dy. */
enum status op_bias_forward(struct device *dev, struct tensor *y, const struct tensor *bias);
enum status op_bias_backward(struct device *dev, struct tensor *dbias, const struct tensor *dy,
                             const struct sample_plan *plan);

/* y[i,:] = w[tokens[i] - row0,:], zeros where that row is not among w's. tokens [M,1] i32. */
enum status op_embed_forward(struct device *dev, struct tensor *y, const struct tensor *w,
                             const struct tensor *tokens, int64_t row0);

/* dw[tokens[i] - row0,:] joins dy[i,:]; within a sample in token order. */
enum status op_embed_backward(struct device *dev, struct tensor *dw, const struct tensor *dy,
                              const struct tensor *tokens, int64_t row0,
                              const struct sample_plan *plan);

/* Softmax statistics of this rank's columns: st[M,3] wide = largest logit m, sum of exp(l - m),
 * logit of the target (0 when it is another rank's or is ignored: targets[i] < 0). Grains' pairs
 * (m, sum) join as (max, sum1 exp(m1 - max) + sum2 exp(m2 - max)) over the tree. */
enum status op_ce_stats(struct device *dev, struct tensor *st, const struct tensor *logits,
                        const struct tensor *targets, struct vocab_cut cut);

/* st [p*M, 3]: every rank's statistics, rank after rank; they join over the same tree.
 * loss[M,1] wide = log sum_j exp(l_j) - l_target, 0 where ignored; and, unless scale is 0,
 * logits become their gradient (softmax - onehot) * scale, 0 where ignored or padded. */
enum status op_ce_grad(struct device *dev, struct tensor *loss, struct tensor *logits,
                       const struct tensor *st, const struct tensor *targets, struct vocab_cut cut,
                       double scale);

/* y [M, p*c] from parts [p*M, c]: part i becomes columns [i c, (i+1) c); and back. */
enum status op_cols_join(struct device *dev, struct tensor *y, const struct tensor *parts);
enum status op_cols_split(struct device *dev, struct tensor *parts, const struct tensor *x);

/* s [M, k] = sum over the p parts [p*M, k], by the tree of comm_all_reduce. */
enum status op_sum_tree(struct device *dev, struct tensor *s, const struct tensor *parts);

/* y[i] = x[i] in the type of y[i], rounded to nearest even, for n pairs of tensors, each of a shape
 * and types of its own. No y[i] overlaps what another pair reads or writes. */
enum status op_convert(struct device *dev, struct tensor *y, const struct tensor *x, int n);

/* table [entries, 1] f64: the sum of squares of each grain of each of n tensors in turn (row
 * grain by row grain, its column grains within), in float64 in a fixed order. */
enum status op_sumsq(struct device *dev, struct tensor *table, const struct tensor *t, int n);

/* norm_scale [2,1] f64: sqrt of the sum of table in order, and min(1, limit / (norm + 1e-6));
 * limit 0 means no clipping: scale 1. A norm that is not finite gives scale 0. */
enum status op_clip(struct device *dev, struct tensor *norm_scale, const struct tensor *table,
                    double limit);

/* n tensors of AdamW with decoupled decay, g' = g * scale of norm_scale:
 * m = b1 m + (1-b1) g', v = b2 v + (1-b2) g'^2,
 * w = w (1 - lr wd) - lr (m/bias1) / (sqrt(v/bias2) + eps). Scale 0: nothing changes. */
enum status op_adamw(struct device *dev, const struct adamw_item *item, int n,
                     const struct adamw_step *step, const struct tensor *norm_scale);

#ifdef __cplusplus
}
#endif
#endif
