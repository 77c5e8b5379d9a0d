/* The slots of the GPU backend. What each computes, its shapes and errors stand above op_x in
 * common/backend/op.h (gpu_x is called by op_x alone), device.h and comm.h; here is only what a
 * GPU adds. All of them enqueue on the device's one compute stream and return; only download and
 * sync wait. Element types: bf16 and f32 tensors, freely mixed where memory-bound kernels read
 * them; both operands of a matrix product have one type. f64 occurs in the tables of the gradient
 * norm alone. Errors beyond those of op.h: ST_EDEVICE with CUDA's, cuBLAS's or cuDNN's own text.
 */
#ifndef GPU_GPU_H
#define GPU_GPU_H

#include "common/backend/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* device.c */
enum status gpu_open(struct device **dev, const struct device_options *opt);
void gpu_close(struct device *dev);
enum status gpu_alloc(struct device *dev, void **p, size_t bytes);
void gpu_release(struct device *dev, void *p);
enum status gpu_upload(struct device *dev, void *dst, const void *src, size_t bytes);
enum status gpu_download(struct device *dev, void *dst, const void *src, size_t bytes);
enum status gpu_copy(struct device *dev, void *dst, const void *src, size_t bytes);
enum status gpu_zero(struct device *dev, void *dst, size_t bytes);
enum status gpu_sync(struct device *dev);
enum status gpu_info(struct device *dev, struct device_info *info);
enum status gpu_stamp(struct device *dev, int64_t n, const char *name);
enum status gpu_stamps(struct device *dev, double *seconds, int64_t n);

/* graph.c. A replay does not hold any more once scratch has grown or a communicator was ended. */
enum status gpu_capture_begin(struct device *dev);
enum status gpu_capture_end(struct device *dev, void **graph);
enum status gpu_replay(struct device *dev, void *graph, int *done);
void gpu_capture_free(struct device *dev, void *graph);

/* gemm.c. k_scale: one column only (the whole shard is one grain); not together with accumulate. */
enum status gpu_gemm(struct device *dev, const struct gemm *g, int n);
enum status gpu_weight_grad(struct device *dev, const struct weight_grad *w, int n,
                            const struct sample_plan *plan);

/* rmsnorm.cu. rms_partial: l has one column, the shard's own rms. */
enum status gpu_rms_norm(struct device *dev, struct tensor *h, struct tensor *s,
                         const struct tensor *x, const struct tensor *gain, struct norm norm);
enum status gpu_rms_norm_backward(struct device *dev, const struct rms_grad *g,
                                  const struct tensor *s, struct norm norm,
                                  const struct sample_plan *plan);
enum status gpu_rms_partial(struct device *dev, struct tensor *h, struct tensor *s,
                            struct tensor *l, const struct tensor *x, const struct tensor *gain,
                            struct norm norm);
enum status gpu_rms_stat(struct device *dev, struct tensor *s, const struct tensor *x);
enum status gpu_rms_apply(struct device *dev, struct tensor *h, const struct tensor *x,
                          const struct tensor *gain, const struct tensor *s, struct norm norm);
enum status gpu_rms_dot(struct device *dev, struct tensor *c, const struct tensor *t,
                        const struct tensor *x, const struct tensor *gain);
enum status gpu_rms_coef(struct device *dev, struct tensor *coef, const struct tensor *c,
                         const struct tensor *s, struct norm norm);
enum status gpu_rms_backward(struct device *dev, const struct rms_grad *g,
                             const struct tensor *coef, const struct sample_plan *plan);

/* latent.cu. a = act(z as stored), so that latent_act gives the same bits again. */
enum status gpu_latent_forward(struct device *dev, struct tensor *z, struct tensor *a,
                               const struct tensor *zsum, const struct tensor *s,
                               struct latent lat);
enum status gpu_latent_act(struct device *dev, struct tensor *a, const struct tensor *z,
                           struct latent lat);
enum status gpu_latent_backward(struct device *dev, struct tensor *u, struct tensor *coef,
                                const struct tensor *da, const struct tensor *z,
                                const struct tensor *s, struct latent lat);

/* rope.cu, attention.c, swiglu.cu */
enum status gpu_rope(struct device *dev, struct tensor *x, const struct tensor *table,
                     struct rope rope);
enum status gpu_attention_forward(struct device *dev, struct attention *at);
enum status gpu_attention_backward(struct device *dev, const struct attention *at,
                                   struct attention *dat);
enum status gpu_swiglu_forward(struct device *dev, struct tensor *f, const struct tensor *g,
                               const struct tensor *u, enum swiglu_kind kind);
enum status gpu_swiglu_backward(struct device *dev, const struct swiglu_grad *d,
                                enum swiglu_kind kind);

/* gemm_swiglu.c. One launch where glu.h has a kernel for it, else the two ops in turn. */
enum status gpu_gemm_swiglu_forward(struct device *dev, const struct gemm g[2], struct tensor *f,
                                    enum swiglu_kind kind);
enum status gpu_gemm_swiglu_backward(struct device *dev, const struct gemm *g,
                                     const struct swiglu_grad *d, enum swiglu_kind kind);

/* elementwise.cu */
enum status gpu_add(struct device *dev, struct tensor *y, const struct tensor *a,
                    const struct tensor *b);
enum status gpu_cols_join(struct device *dev, struct tensor *y, const struct tensor *parts);
enum status gpu_cols_split(struct device *dev, struct tensor *parts, const struct tensor *x);
enum status gpu_sum_tree(struct device *dev, struct tensor *s, const struct tensor *parts);
enum status gpu_convert(struct device *dev, struct tensor *y, const struct tensor *x, int n);

/* bias.cu */
enum status gpu_bias_forward(struct device *dev, struct tensor *y, const struct tensor *bias);
enum status gpu_bias_backward(struct device *dev, struct tensor *dbias, const struct tensor *dy,
                              const struct sample_plan *plan);

/* embed.cu, loss.cu */
enum status gpu_embed_forward(struct device *dev, struct tensor *y, const struct tensor *w,
                              const struct tensor *tokens, int64_t row0);
enum status gpu_embed_backward(struct device *dev, struct tensor *dw, const struct tensor *dy,
                               const struct tensor *tokens, int64_t row0,
                               const struct sample_plan *plan);
enum status gpu_ce_stats(struct device *dev, struct tensor *st, const struct tensor *logits,
                         const struct tensor *targets, struct vocab_cut cut);
enum status gpu_ce_grad(struct device *dev, struct tensor *loss, struct tensor *logits,
                        const struct tensor *st, const struct tensor *targets, struct vocab_cut cut,
                        double scale);

/* reduce.cu, adamw.cu */
enum status gpu_sumsq(struct device *dev, struct tensor *table, const struct tensor *t, int n);
enum status gpu_clip(struct device *dev, struct tensor *norm_scale, const struct tensor *table,
                     double limit);
enum status gpu_adamw(struct device *dev, const struct adamw_item *item, int n,
                      const struct adamw_step *step, const struct tensor *norm_scale);

/* comm.c. Each communicator has a stream of its own: begin makes it wait for what is on the
 * compute stream, wait makes the compute stream wait for it; the host waits for neither. */
enum status gpu_comm_create(struct comm **c, struct device *dev, struct host *group);
void gpu_comm_destroy(struct comm *c);
enum status gpu_comm_reserve(struct comm *c, size_t bytes);
enum status gpu_all_reduce_begin(struct comm *c, struct tensor *t, int n);
enum status gpu_all_gather_begin(struct comm *c, struct tensor *out, const struct tensor *in);
enum status gpu_reduce_scatter_begin(struct comm *c, struct tensor *out, const struct tensor *in);
enum status gpu_broadcast_begin(struct comm *c, struct tensor *t, int root);
enum status gpu_send_begin(struct comm *c, const struct tensor *t, int to);
enum status gpu_recv_begin(struct comm *c, struct tensor *t, int from);
enum status gpu_comm_start(struct comm *c);
enum status gpu_comm_wait(struct comm *c);
enum status gpu_comm_stamp(struct comm *c, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
