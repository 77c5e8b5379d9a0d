#include "gpu/attention.h"

#include "gpu/gpu.h"

#include <stdlib.h>
#include <string.h>

#ifdef HAVE_CUDNN
enum status gpu_attention_open(struct gpu_device *dev)
{
    const char *wish = getenv("NARROWS_ATTENTION");

    if (wish && strcmp(wish, "own") == 0)
        return ST_OK;
    if (wish && *wish && strcmp(wish, "cudnn") != 0)
        return fail(ST_ECONFIG, "NARROWS_ATTENTION=%s; own or cudnn", wish);
    return gpu_cudnn_open(&dev->cudnn, dev);
}

void gpu_attention_close(struct gpu_device *dev)
{
    gpu_cudnn_close(dev->cudnn);
}

const char *gpu_attention_path(const struct gpu_device *dev)
{
    return dev->cudnn ? gpu_cudnn_name(dev->cudnn) : "own kernels (NARROWS_ATTENTION=own)";
}

static int suits(const struct tensor *t)
{
    return t->dtype == DT_BF16 && t->stride % 8 == 0 && (uintptr_t)t->data % 16 == 0;
}

/* Whether cuDNN does this shape: the rule of attention.h and nothing else. */
static int by_cudnn(const struct gpu_device *dev, const struct attention *at)
{
    return dev->cudnn && !at->starts.data && at->pos0 == 0 && at->kv_rows == at->seq &&
           at->head_dim % 8 == 0 && at->head_dim <= 128 && suits(&at->q) && suits(&at->k) &&
           suits(&at->v) && suits(&at->o);
}
#else
enum status gpu_attention_open(struct gpu_device *dev)
{
    const char *wish = getenv("NARROWS_ATTENTION");

    (void)dev;
    if (wish && *wish && strcmp(wish, "own") != 0)
        return fail(ST_ECONFIG,
                    "NARROWS_ATTENTION=%s; this build has only own (configure found no "
                    "cuDNN)",
                    wish);
    return ST_OK;
}

void gpu_attention_close(struct gpu_device *dev)
{
    (void)dev;
}

const char *gpu_attention_path(const struct gpu_device *dev)
{
    (void)dev;
    return "own kernels (built without cuDNN)";
}
#endif

static enum status check_shape(const struct attention *at)
{
    if (at->head_dim > 256)
        return fail(ST_ESHAPE, "attention with head_dim %lld; the gpu backend takes up to 256",
                    (long long)at->head_dim);
    if (at->lse.dtype != DT_F32)
        return fail(ST_EDTYPE, "attention: log-sum-exp of type %s; it is f32",
                    dtype_name(at->lse.dtype));
    return ST_OK;
}

enum status gpu_attention_forward(struct device *dev, struct attention *at)
{
    TRY(check_shape(at));
    if (at->batch == 0 || at->seq == 0)
        return ST_OK;
#ifdef HAVE_CUDNN
    if (by_cudnn(gpu_of(dev), at))
        return gpu_cudnn_forward(gpu_of(dev), at);
#endif
    return gpu_flash_forward(gpu_of(dev), at);
}

enum status gpu_attention_backward(struct device *dev, const struct attention *at,
                                   struct attention *dat)
{
    TRY(check_shape(at));
    if (at->pos0 != 0 || at->kv_rows != at->seq)
        return fail(ST_ESHAPE,
                    "attention backward from position %lld with %lld key rows for %lld "
                    "queries; only whole sequences have a backward",
                    (long long)at->pos0, (long long)at->kv_rows, (long long)at->seq);
    if (at->batch == 0 || at->seq == 0)
        return ST_OK;
#ifdef HAVE_CUDNN
    if (by_cudnn(gpu_of(dev), at) && suits(&dat->q) && suits(&dat->k) && suits(&dat->v) &&
        suits(&dat->o))
        return gpu_cudnn_backward(gpu_of(dev), at, dat);
#endif
    return gpu_flash_backward(gpu_of(dev), at, dat);
}
