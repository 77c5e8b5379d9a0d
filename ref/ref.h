/* The reference backend from inside: its device, its scratch memory, its operations.
 *
 * Scratch belongs to the device. An operation names what it needs before it starts its threads
 * (ref_scratch), so that nothing can fail in the middle; it grows in the first step and then stays.
 * `shared` is for all threads of an operation (converted operands, partial sums), `thread` for
 * each by itself.
 */
#ifndef REF_REF_H
#define REF_REF_H

#include "common/backend/backend.h"
#include "ref/calls.h"
#include "ref/real.h"

struct ref_device {
    struct device base;
    struct ref_calls calls;
    int64_t grown; /* how often scratch had to grow since the device was opened */
    char *shared, *thread;
    size_t shared_size, thread_size; /* bytes; of `thread` each thread has so many */
    double *moment;                  /* of a profile: seconds on a clock               */
    int64_t moments;                 /* that there is room for                         */
};

/* Host memory for *p, aligned to a page of 2 MiB where it is as large, poisoned with NaN (which
 * also makes the system provide it now and not in a step). Release with free().
 * Errors: ST_ENOMEM naming the size and what the machine has. */
enum status ref_host_alloc(void **p, size_t bytes, int threads);

/* Makes sure of `shared` bytes for all and `thread` bytes for each thread; contents undefined. */
enum status ref_scratch(struct device *dev, size_t shared, size_t thread);

/* The shared scratch; and that of the calling thread (inside a parallel region). */
void *ref_shared(struct device *dev);
void *ref_thread(struct device *dev);

/* A matrix of reals: a tensor's own memory, or a converted copy of it. */
struct ref_operand {
    real *p;
    int64_t ld; /* elements from row to row */
};

/* Bytes of shared scratch that ref_operand takes for t: 0 when t is wide already. */
size_t ref_operand_size(const struct tensor *t);

/* t as reals. A bf16 tensor is converted into *at, which moves on by ref_operand_size(t). */
struct ref_operand ref_operand(struct device *dev, const struct tensor *t, char **at);

/* sum[width], a row of a node's gradient, joins as the node says: the waiting slots are added, the
 * result is stored in the node's slot. dst: the row in slot 0; plane: bytes between slots. Spoils
 * sum. */
void ref_join(real *dst, real *sum, int64_t width, const struct sample_node *node, int64_t plane);

/* p[lo][width] = sum of the planes p[lo .. hi) by the tree of sample_plan.h, in place; planes are
 * stride elements apart. The other planes are spoilt. */
void ref_tree_planes(real *p, int64_t stride, int64_t width, int64_t lo, int64_t hi);

extern const struct device_ops ref_device_ops;
extern const struct math_ops ref_math_ops;

/* The slots of struct math_ops. What each computes, its shapes and errors stand above op_x in
 * common/backend/op.h; arguments have been checked there. ST_ENOMEM when scratch cannot grow. */
enum status ref_gemm(struct device *dev, const struct gemm *g, int n);
enum status ref_weight_grad(struct device *dev, const struct weight_grad *w, int n,
                            const struct sample_plan *plan);
enum status ref_rms_norm(struct device *dev, struct tensor *h, struct tensor *s,
                         const struct tensor *x, const struct tensor *gain, struct norm norm);
enum status ref_rms_norm_backward(struct device *dev, const struct rms_grad *g,
                                  const struct tensor *s, struct norm norm,
                                  const struct sample_plan *plan);
enum status ref_rms_partial(struct device *dev, struct tensor *h, struct tensor *s,
                            struct tensor *l, const struct tensor *x, const struct tensor *gain,
                            struct norm norm);
enum status ref_rms_stat(struct device *dev, struct tensor *s, const struct tensor *x);
enum status ref_rms_apply(struct device *dev, struct tensor *h, const struct tensor *x,
                          const struct tensor *gain, const struct tensor *s, struct norm norm);
enum status ref_rms_dot(struct device *dev, struct tensor *c, const struct tensor *t,
                        const struct tensor *x, const struct tensor *gain);
enum status ref_rms_coef(struct device *dev, struct tensor *coef, const struct tensor *c,
                         const struct tensor *s, struct norm norm);
enum status ref_rms_backward(struct device *dev, const struct rms_grad *g,
                             const struct tensor *coef, const struct sample_plan *plan);
enum status ref_latent_forward(struct device *dev, struct tensor *z, struct tensor *a,
                               const struct tensor *zsum, const struct tensor *s,
                               struct latent lat);
enum status ref_latent_act(struct device *dev, struct tensor *a, const struct tensor *z,
                           struct latent lat);
enum status ref_latent_backward(struct device *dev, struct tensor *u, struct tensor *coef,
                                const struct tensor *da, const struct tensor *z,
                                const struct tensor *s, struct latent lat);
enum status ref_rope(struct device *dev, struct tensor *x, const struct tensor *table,
                     struct rope rope);
enum status ref_attention_forward(struct device *dev, struct attention *at);
enum status ref_attention_backward(struct device *dev, const struct attention *at,
                                   struct attention *dat);
enum status ref_swiglu_forward(struct device *dev, struct tensor *f, const struct tensor *g,
                               const struct tensor *u, enum swiglu_kind kind);
enum status ref_swiglu_backward(struct device *dev, const struct swiglu_grad *d,
                                enum swiglu_kind kind);
enum status ref_gemm_swiglu_forward(struct device *dev, const struct gemm g[2], struct tensor *f,
                                    enum swiglu_kind kind);
enum status ref_gemm_swiglu_backward(struct device *dev, const struct gemm *g,
                                     const struct swiglu_grad *d, enum swiglu_kind kind);
enum status ref_add(struct device *dev, struct tensor *y, const struct tensor *a,
                    const struct tensor *b);
enum status ref_bias_forward(struct device *dev, struct tensor *y, const struct tensor *bias);
enum status ref_bias_backward(struct device *dev, struct tensor *dbias, const struct tensor *dy,
                              const struct sample_plan *plan);
enum status ref_embed_forward(struct device *dev, struct tensor *y, const struct tensor *w,
                              const struct tensor *tokens, int64_t row0);
enum status ref_embed_backward(struct device *dev, struct tensor *dw, const struct tensor *dy,
                               const struct tensor *tokens, int64_t row0,
                               const struct sample_plan *plan);
enum status ref_ce_stats(struct device *dev, struct tensor *st, const struct tensor *logits,
                         const struct tensor *targets, struct vocab_cut cut);
enum status ref_ce_grad(struct device *dev, struct tensor *loss, struct tensor *logits,
                        const struct tensor *st, const struct tensor *targets, struct vocab_cut cut,
                        double scale);
enum status ref_cols_join(struct device *dev, struct tensor *y, const struct tensor *parts);
enum status ref_cols_split(struct device *dev, struct tensor *parts, const struct tensor *x);
enum status ref_sum_tree(struct device *dev, struct tensor *s, const struct tensor *parts);
enum status ref_convert(struct device *dev, struct tensor *y, const struct tensor *x, int n);
enum status ref_sumsq(struct device *dev, struct tensor *table, const struct tensor *t, int n);
enum status ref_clip(struct device *dev, struct tensor *norm_scale, const struct tensor *table,
                     double limit);
enum status ref_adamw(struct device *dev, const struct adamw_item *item, int n,
                      const struct adamw_step *step, const struct tensor *norm_scale);

#endif
