#include "common/backend/record.h"

#include <stdlib.h>
#include <string.h>

struct record_device {
    struct device base;
    double flops;
    int64_t calls, fail_at;
    size_t widened;
};

static struct record_device *record(struct device *dev)
{
    return (struct record_device *)dev;
}

/* A math call: flops, and bytes of widened operands. */
static enum status count(struct device *dev, double flops, size_t bytes)
{
    struct record_device *r = record(dev);

    r->flops += flops;
    r->widened = bytes > r->widened ? bytes : r->widened;
    r->calls++;
    if (r->fail_at && r->calls == r->fail_at)
        return fail(ST_EDEVICE, "recording device told to fail at call %lld", (long long)r->calls);
    return ST_OK;
}

/* ---- device ---- */

enum status record_open(struct device **dev, enum dtype wide)
{
    struct record_device *r = calloc(1, sizeof *r);

    if (!r)
        return fail(ST_ENOMEM, "no memory for a recording device");
    r->base = (struct device){.be = &record_backend, .threads = 1, .wide = wide};
    *dev = &r->base;
    return ST_OK;
}

static enum status open_default(struct device **dev, const struct device_options *opt)
{
    (void)opt;
    return record_open(dev, DT_F32);
}

static void close_device(struct device *dev)
{
    free(dev);
}

static enum status alloc(struct device *dev, void **p, size_t bytes)
{
    (void)dev;
    (void)bytes;
    *p = (void *)(uintptr_t)4096; /* never touched */
    return ST_OK;
}

static void release(struct device *dev, void *p)
{
    (void)dev;
    (void)p;
}

static enum status move_in(struct device *dev, void *dst, const void *src, size_t bytes)
{
    (void)dev;
    (void)dst;
    (void)src;
    (void)bytes;
    return ST_OK;
}

static enum status download(struct device *dev, void *dst, const void *src, size_t bytes)
{
    (void)dev;
    (void)src;
    memset(dst, 0, bytes);
    return ST_OK;
}

static enum status zero(struct device *dev, void *dst, size_t bytes)
{
    (void)dev;
    (void)dst;
    (void)bytes;
    return ST_OK;
}

static enum status sync_device(struct device *dev)
{
    (void)dev;
    return ST_OK;
}

static enum status info(struct device *dev, struct device_info *out)
{
    (void)dev;
    *out = (struct device_info){.name = "recording"};
    return ST_OK;
}

static enum status stamp(struct device *dev, int64_t n, const char *name)
{
    (void)dev;
    (void)n;
    (void)name;
    return ST_OK;
}

static enum status stamps(struct device *dev, double *seconds, int64_t n)
{
    (void)dev;
    memset(seconds, 0, (size_t)n * sizeof *seconds); /* nothing takes time */
    return ST_OK;
}

static const struct device_ops device_table = {.open = open_default,
                                               .close = close_device,
                                               .alloc = alloc,
                                               .release = release,
                                               .upload = move_in,
                                               .download = download,
                                               .copy = move_in,
                                               .zero = zero,
                                               .sync = sync_device,
                                               .info = info,
                                               .stamp = stamp,
                                               .stamps = stamps,
                                               .capture_begin = device_none_begin,
                                               .capture_end = device_none_end,
                                               .replay = device_none_replay,
                                               .capture_free = device_none_free};

/* ---- math ---- */

/* Bytes of two operands that are narrower than the device computes in, once they are widened. */
static size_t widened(const struct device *dev, const struct tensor *a, const struct tensor *b)
{
    size_t size = dtype_size(dev->wide);
    int64_t n = dtype_size(a->dtype) < size ? tensor_count(a) : 0;

    return (size_t)(n + (dtype_size(b->dtype) < size ? tensor_count(b) : 0)) * size;
}

static enum status gemm(struct device *dev, const struct gemm *g, int n)
{
    double flops = 0.0;
    size_t bytes = 0;

    for (int i = 0; i < n; i++) {
        double mn = 2.0 * (double)g[i].y.rows * (double)g[i].y.cols;

        flops += mn * (double)g[i].a.cols;
        bytes += widened(dev, &g[i].a, &g[i].b);
        for (int j = 0; j < g[i].more; j++) {
            flops += mn * (double)g[i].part[j].a.cols;
            bytes += widened(dev, &g[i].part[j].a, &g[i].part[j].b);
        }
    }
    return count(dev, flops, bytes);
}

static enum status weight_grad(struct device *dev, const struct weight_grad *w, int n,
                               const struct sample_plan *plan)
{
    double flops = 0.0;
    size_t bytes = 0;

    (void)plan;
    for (int i = 0; i < n; i++) {
        flops += 2.0 * (double)w[i].dw.rows * (double)w[i].dw.cols * (double)w[i].dy.rows;
        bytes += widened(dev, &w[i].dy, &w[i].x);
    }
    return count(dev, flops, bytes);
}

/* Two products forward (q k', p v); each query sees half of the keys on average. */
static double attention_flops(const struct attention *at)
{
    double pairs = 0.5 * (double)at->seq * (double)(at->seq + 1) + (double)(at->seq * at->pos0);

    return 4.0 * (double)(at->batch * at->heads * at->head_dim) * pairs;
}

static enum status attention_forward(struct device *dev, struct attention *at)
{
    return count(dev, attention_flops(at), 0);
}

static enum status attention_backward(struct device *dev, const struct attention *at,
                                      struct attention *dat)
{
    (void)dat;
    return count(dev, 2.0 * attention_flops(at), 0);
}

/* The other ops cost little: they are counted as calls. One definition for each signature. */
#define RECORD_ONLY(name, ...)                               \
    static enum status name(struct device *dev, __VA_ARGS__) \
    {                                                        \
        return count(dev, 0.0, 0);                           \
    }

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
RECORD_ONLY(rms_norm, struct tensor *h, struct tensor *s, const struct tensor *x,
            const struct tensor *gain, struct norm norm)
RECORD_ONLY(rms_norm_backward, const struct rms_grad *g, const struct tensor *s, struct norm norm,
            const struct sample_plan *plan)
RECORD_ONLY(rms_partial, struct tensor *h, struct tensor *s, struct tensor *l,
            const struct tensor *x, const struct tensor *gain, struct norm norm)
RECORD_ONLY(rms_stat, struct tensor *s, const struct tensor *x)
RECORD_ONLY(rms_apply, struct tensor *h, const struct tensor *x, const struct tensor *gain,
            const struct tensor *s, struct norm norm)
RECORD_ONLY(rms_dot, struct tensor *c, const struct tensor *t, const struct tensor *x,
            const struct tensor *gain)
RECORD_ONLY(rms_coef, struct tensor *coef, const struct tensor *c, const struct tensor *s,
            struct norm norm)
RECORD_ONLY(rms_backward, const struct rms_grad *g, const struct tensor *coef,
            const struct sample_plan *plan)
RECORD_ONLY(latent_forward, struct tensor *z, struct tensor *a, const struct tensor *zsum,
            const struct tensor *s, struct latent lat)
RECORD_ONLY(latent_act, struct tensor *a, const struct tensor *z, struct latent lat)
RECORD_ONLY(latent_backward, struct tensor *u, struct tensor *coef, const struct tensor *da,
            const struct tensor *z, const struct tensor *s, struct latent lat)
RECORD_ONLY(rope, struct tensor *x, const struct tensor *table, struct rope r)
RECORD_ONLY(swiglu_forward, struct tensor *f, const struct tensor *g, const struct tensor *u,
            enum swiglu_kind kind)
RECORD_ONLY(swiglu_backward, const struct swiglu_grad *d, enum swiglu_kind kind)
RECORD_ONLY(add, struct tensor *y, const struct tensor *a, const struct tensor *b)
RECORD_ONLY(bias_forward, struct tensor *y, const struct tensor *bias)
RECORD_ONLY(bias_backward, struct tensor *dbias, const struct tensor *dy,
            const struct sample_plan *plan)
RECORD_ONLY(embed_forward, struct tensor *y, const struct tensor *w, const struct tensor *tokens,
            int64_t row0)
RECORD_ONLY(embed_backward, struct tensor *dw, const struct tensor *dy, const struct tensor *tokens,
            int64_t row0, const struct sample_plan *plan)
RECORD_ONLY(ce_stats, struct tensor *st, const struct tensor *logits, const struct tensor *targets,
            struct vocab_cut cut)
RECORD_ONLY(ce_grad, struct tensor *loss, struct tensor *logits, const struct tensor *st,
            const struct tensor *targets, struct vocab_cut cut, double scale)
RECORD_ONLY(cols_join, struct tensor *y, const struct tensor *parts)
RECORD_ONLY(cols_split, struct tensor *parts, const struct tensor *x)
RECORD_ONLY(sum_tree, struct tensor *s, const struct tensor *parts)
RECORD_ONLY(convert, struct tensor *y, const struct tensor *x)
RECORD_ONLY(sumsq, struct tensor *table, const struct tensor *t, int n)
RECORD_ONLY(clip, struct tensor *norm_scale, const struct tensor *table, double limit)
RECORD_ONLY(adamw, const struct adamw_item *item, int n, const struct adamw_step *step,
            const struct tensor *norm_scale)
#pragma GCC diagnostic pop

static const struct math_ops math_table = {.gemm = gemm,
                                           .weight_grad = weight_grad,
                                           .rms_norm = rms_norm,
                                           .rms_norm_backward = rms_norm_backward,
                                           .rms_partial = rms_partial,
                                           .rms_stat = rms_stat,
                                           .rms_apply = rms_apply,
                                           .rms_dot = rms_dot,
                                           .rms_coef = rms_coef,
                                           .rms_backward = rms_backward,
                                           .latent_forward = latent_forward,
                                           .latent_act = latent_act,
                                           .latent_backward = latent_backward,
                                           .rope = rope,
                                           .attention_forward = attention_forward,
                                           .attention_backward = attention_backward,
                                           .swiglu_forward = swiglu_forward,
                                           .swiglu_backward = swiglu_backward,
                                           .add = add,
                                           .bias_forward = bias_forward,
                                           .bias_backward = bias_backward,
                                           .embed_forward = embed_forward,
                                           .embed_backward = embed_backward,
                                           .ce_stats = ce_stats,
                                           .ce_grad = ce_grad,
                                           .cols_join = cols_join,
                                           .cols_split = cols_split,
                                           .sum_tree = sum_tree,
                                           .convert = convert,
                                           .sumsq = sumsq,
                                           .clip = clip,
                                           .adamw = adamw};

const struct backend record_backend = {
    .name = "record", .device = &device_table, .math = &math_table, .comm = &record_comm_ops};

/* ---- what was recorded ---- */

double record_flops(const struct device *dev)
{
    return ((const struct record_device *)dev)->flops;
}

int64_t record_calls(const struct device *dev)
{
    return ((const struct record_device *)dev)->calls;
}

void record_fail(struct device *dev, int64_t call)
{
    record(dev)->fail_at = call ? record(dev)->calls + call : 0;
}

size_t record_widened(const struct device *dev)
{
    return ((const struct record_device *)dev)->widened;
}
