/* The seam between common/ and a backend.
 *
 * A backend is three tables of functions: device, math and comm. ref/ and gpu/ each fill them in
 * one file (backend.c). Every slot is mandatory (backend_complete). common/ never calls a slot
 * directly: it calls the wrappers device_*() (device.h), op_*() (op.h) and comm_*() (comm.h),
 * which check shapes once for all backends, count traffic, and are what a reader searches for.
 * What each op computes is written above its wrapper in op.h; the names agree: op_x, ref_x, gpu_x.
 */
#ifndef COMMON_BACKEND_BACKEND_H
#define COMMON_BACKEND_BACKEND_H

#include "common/backend/op_types.h"
#include "common/base/status.h"
#include "common/tensor/sample_plan.h"
#include "common/tensor/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

struct backend;
struct host;
struct ledger;
struct trace;

/* A device as common/ sees it; a backend's own struct begins with this. */
struct device {
    const struct backend *be;
    int threads;     /* of the host that the ref backend may use; 1 elsewhere */
    enum dtype wide; /* DT_F32, or DT_F64 under precision fp64: statistics, gradients, masters */
    int warms;       /* the first use of an op with new shapes may wait for all that runs */
    struct trace *trace; /* NULL unless a profile is taken (trace.h) */
};

/* A group of ranks as common/ sees it; a backend's own struct begins with this. */
struct comm {
    const struct backend *be;
    struct device *dev;    /* that it moves memory of; set by comm_create */
    struct ledger *ledger; /* where wrappers count; may be NULL */
    int rank, size;
};

struct device_options {
    int threads;    /* ref: threads that arithmetic may use, 1 or more */
    int local_rank; /* gpu: which of the node's devices: one rank a device */
    int local_size; /* gpu: ranks on this node */
    int any_order;  /* gpu: results may differ from run to run where that is faster */
};

struct device_info {
    char name[128];
    size_t memory_total, memory_free; /* bytes */
};

struct device_ops {
    enum status (*open)(struct device **dev, const struct device_options *opt);
    void (*close)(struct device *dev);
    enum status (*alloc)(struct device *dev, void **p, size_t bytes);
    void (*release)(struct device *dev, void *p);
    enum status (*upload)(struct device *dev, void *dst, const void *src, size_t bytes);
    enum status (*download)(struct device *dev, void *dst, const void *src, size_t bytes);
    enum status (*copy)(struct device *dev, void *dst, const void *src, size_t bytes);
    enum status (*zero)(struct device *dev, void *dst, size_t bytes);
    enum status (*sync)(struct device *dev);
    enum status (*info)(struct device *dev, struct device_info *info);
    /* Moment n = 0, 1, ... of what the device was given: when all of that is done. name: opens a
     * range called so, for a profiler from outside; NULL closes the innermost one, "" does neither.
     * Moments are counted anew from 0. */
    enum status (*stamp)(struct device *dev, int64_t n, const char *name);
    /* Seconds from moment 0 to each of moments 0 .. n - 1. Waits for the device. */
    enum status (*stamps)(struct device *dev, double *seconds, int64_t n);
    /* Until capture_end, what the device and its communicators are given is recorded and not done;
     * nothing may then wait, allocate or be read from host memory. *graph: NULL after a failure.
     * Where work is done at once there is nothing to record: an error. */
    enum status (*capture_begin)(struct device *dev);
    enum status (*capture_end)(struct device *dev, void **graph);
    /* Gives what was recorded to the device once more. *done 0: it does not hold any more (memory
     * of the backend's own has moved, or communication has ended), and nothing was given. */
    enum status (*replay)(struct device *dev, void *graph, int *done);
    void (*capture_free)(struct device *dev, void *graph);
};

struct math_ops {
    /* matrix products */
    enum status (*gemm)(struct device *dev, const struct gemm *g, int n);
    enum status (*weight_grad)(struct device *dev, const struct weight_grad *w, int n,
                               const struct sample_plan *plan);
    /* norms */
    enum status (*rms_norm)(struct device *dev, struct tensor *h, struct tensor *s,
                            const struct tensor *x, const struct tensor *gain, struct norm norm);
    enum status (*rms_norm_backward)(struct device *dev, const struct rms_grad *g,
                                     const struct tensor *s, struct norm norm,
                                     const struct sample_plan *plan);
    enum status (*rms_partial)(struct device *dev, struct tensor *h, struct tensor *s,
                               struct tensor *l, const struct tensor *x, const struct tensor *gain,
                               struct norm norm);
    enum status (*rms_stat)(struct device *dev, struct tensor *s, const struct tensor *x);
    enum status (*rms_apply)(struct device *dev, struct tensor *h, const struct tensor *x,
                             const struct tensor *gain, const struct tensor *s, struct norm norm);
    enum status (*rms_dot)(struct device *dev, struct tensor *c, const struct tensor *t,
                           const struct tensor *x, const struct tensor *gain);
    enum status (*rms_coef)(struct device *dev, struct tensor *coef, const struct tensor *c,
                            const struct tensor *s, struct norm norm);
    enum status (*rms_backward)(struct device *dev, const struct rms_grad *g,
                                const struct tensor *coef, const struct sample_plan *plan);
    /* the bottleneck */
    enum status (*latent_forward)(struct device *dev, struct tensor *z, struct tensor *a,
                                  const struct tensor *zsum, const struct tensor *s,
                                  struct latent lat);
    enum status (*latent_act)(struct device *dev, struct tensor *a, const struct tensor *z,
                              struct latent lat);
    enum status (*latent_backward)(struct device *dev, struct tensor *u, struct tensor *coef,
                                   const struct tensor *da, const struct tensor *z,
                                   const struct tensor *s, struct latent lat);
    /* attention and feed-forward */
    enum status (*rope)(struct device *dev, struct tensor *x, const struct tensor *table,
                        struct rope rope);
    enum status (*attention_forward)(struct device *dev, struct attention *at);
    enum status (*attention_backward)(struct device *dev, const struct attention *at,
                                      struct attention *dat);
    enum status (*swiglu_forward)(struct device *dev, struct tensor *f, const struct tensor *g,
                                  const struct tensor *u, enum swiglu_kind kind);
    enum status (*swiglu_backward)(struct device *dev, const struct swiglu_grad *d,
                                   enum swiglu_kind kind);
    enum status (*gemm_swiglu_forward)(struct device *dev, const struct gemm g[2], struct tensor *f,
                                       enum swiglu_kind kind);
    enum status (*gemm_swiglu_backward)(struct device *dev, const struct gemm *g,
                                        const struct swiglu_grad *d, enum swiglu_kind kind);
    enum status (*add)(struct device *dev, struct tensor *y, const struct tensor *a,
                       const struct tensor *b);
    enum status (*bias_forward)(struct device *dev, struct tensor *y, const struct tensor *bias);
    enum status (*bias_backward)(struct device *dev, struct tensor *dbias, const struct tensor *dy,
                                 const struct sample_plan *plan);
    /* both ends of the model */
    enum status (*embed_forward)(struct device *dev, struct tensor *y, const struct tensor *w,
                                 const struct tensor *tokens, int64_t row0);
    enum status (*embed_backward)(struct device *dev, struct tensor *dw, const struct tensor *dy,
                                  const struct tensor *tokens, int64_t row0,
                                  const struct sample_plan *plan);
    enum status (*ce_stats)(struct device *dev, struct tensor *st, const struct tensor *logits,
                            const struct tensor *targets, struct vocab_cut cut);
    enum status (*ce_grad)(struct device *dev, struct tensor *loss, struct tensor *logits,
                           const struct tensor *st, const struct tensor *targets,
                           struct vocab_cut cut, double scale);
    /* moving and adding up */
    enum status (*cols_join)(struct device *dev, struct tensor *y, const struct tensor *parts);
    enum status (*cols_split)(struct device *dev, struct tensor *parts, const struct tensor *x);
    enum status (*sum_tree)(struct device *dev, struct tensor *s, const struct tensor *parts);
    enum status (*convert)(struct device *dev, struct tensor *y, const struct tensor *x, int n);
    /* the optimiser */
    enum status (*sumsq)(struct device *dev, struct tensor *table, const struct tensor *t, int n);
    enum status (*clip)(struct device *dev, struct tensor *norm_scale, const struct tensor *table,
                        double limit);
    enum status (*adamw)(struct device *dev, const struct adamw_item *item, int n,
                         const struct adamw_step *step, const struct tensor *norm_scale);
};

struct comm_ops {
    enum status (*create)(struct comm **c, struct device *dev, struct host *group);
    void (*destroy)(struct comm *c);
    enum status (*reserve)(struct comm *c, size_t bytes);
    enum status (*all_reduce_begin)(struct comm *c, struct tensor *t, int n);
    enum status (*all_gather_begin)(struct comm *c, struct tensor *out, const struct tensor *in);
    enum status (*reduce_scatter_begin)(struct comm *c, struct tensor *out,
                                        const struct tensor *in);
    enum status (*broadcast_begin)(struct comm *c, struct tensor *t, int root);
    enum status (*send_begin)(struct comm *c, const struct tensor *t, int to);
    enum status (*recv_begin)(struct comm *c, struct tensor *t, int from);
    enum status (*start)(struct comm *c);
    enum status (*wait)(struct comm *c);
    /* Moment n of the device: when all that was begun on c is done. */
    enum status (*stamp)(struct comm *c, int64_t n);
};

struct backend {
    const char *name;
    const struct device_ops *device;
    const struct math_ops *math;
    const struct comm_ops *comm;
};

extern const struct backend ref_backend;   /* single precision (and emulated bf16) */
extern const struct backend ref64_backend; /* the same sources with double as element type */
#ifdef HAVE_CUDA
extern const struct backend gpu_backend;
#endif

/* Name of the first empty slot ("math.gemm"), or NULL when the backend is complete. */
const char *backend_missing(const struct backend *be);

#ifdef __cplusplus
}
#endif
#endif
