#ifdef HAVE_CUDNN
/* Attention by cuDNN's fused kernels, described as graphs: cuDNN recognises the pattern and
 * replaces it by one kernel (forward) or three (backward). Engines are deterministic: dq is written
 * once rather than summed by atomics, which costs a workspace of 2 seq^2 bytes a head and sequence,
 * so backward takes as many sequences at a time as GPU_ATTENTION_WORKSPACE allows. On a device
 * opened with any_order (run.deterministic=off) dq is summed by atomics, in float.
 */
#include "gpu/attention.h"

#include "common/base/log.h"
#include "gpu/attention_graph.h"
#include "gpu/lse.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLANS_MAX = 128 };

struct plan {
    struct gpu_attention_shape shape;
    struct gpu_graph_plan run;
    int64_t slice; /* sequences of one execution */
};

struct gpu_cudnn {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t prop;
    char name[96];
    int plans;
    struct plan plan[PLANS_MAX];
};

#define CUDNN_TRY(call) TRY(gpu_cudnn_check((call), #call))

static enum status open_parts(struct gpu_cudnn *c, struct gpu_device *dev)
{
    size_t version = cudnnGetVersion();
    int32_t device = dev->ordinal;

    snprintf(c->name, sizeof c->name,
             "cuDNN %zu.%zu.%zu (bf16 training, whole sequences), own kernels else",
             version / 10000, version / 100 % 100, version % 100);
    CUDNN_TRY(cudnnCreate(&c->handle));
    CUDNN_TRY(cudnnSetStream(c->handle, dev->stream));
    CUDNN_TRY(cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &c->prop));
    CUDNN_TRY(cudnnBackendSetAttribute(c->prop, CUDNN_ATTR_DEVICEPROP_DEVICE_ID, CUDNN_TYPE_INT32,
                                       1, &device));
    CUDNN_TRY(cudnnBackendFinalize(c->prop));
    return ST_OK;
}

enum status gpu_cudnn_open(struct gpu_cudnn **c, struct gpu_device *dev)
{
    *c = calloc(1, sizeof **c);
    if (!*c)
        return fail(ST_ENOMEM, "no host memory for cuDNN's plans");
    return open_parts(*c, dev);
}

void gpu_cudnn_close(struct gpu_cudnn *c)
{
    if (!c)
        return;
    for (int i = 0; i < c->plans; i++)
        gpu_graph_plan_free(&c->plan[i].run);
    if (c->prop)
        cudnnBackendDestroyDescriptor(c->prop);
    if (c->handle)
        cudnnDestroy(c->handle);
    free(c);
}

const char *gpu_cudnn_name(const struct gpu_cudnn *c)
{
    return c->name;
}

/* Plans ------------------------------------------------------------------------------------ */

static enum status make_plan(struct gpu_cudnn *c, struct plan *plan,
                             const struct gpu_attention_shape *s, int64_t slice)
{
    struct gpu_graph g = {.st = ST_OK};
    struct gpu_attention_shape part = *s;
    char what[160];

    part.batch = slice;
    if (s->backward)
        gpu_attention_backward_graph(&g, &part);
    else
        gpu_attention_forward_graph(&g, &part);
    snprintf(what, sizeof what,
             "attention %s of %lld sequences of %lld, %lld heads (%lld for keys) of %lld",
             s->backward ? "backward" : "forward", (long long)slice, (long long)s->seq,
             (long long)s->heads, (long long)s->kv_heads, (long long)s->head_dim);
    plan->shape = *s;
    plan->slice = slice;
    return gpu_graph_plan(&plan->run, &g, c->prop, what, s->any_order != 0);
}

/* Of what an execution adds up in any order. */
static size_t sum_bytes(const struct gpu_attention_shape *s, int64_t slice)
{
    return s->any_order ? (size_t)(slice * s->heads * s->seq * s->head_dim) * sizeof(float) : 0;
}

/* The largest number of sequences at a time that divides the batch and keeps the workspace small;
 * one sequence at a time may exceed it. */
static enum status choose_slice(struct gpu_cudnn *c, struct plan *plan,
                                const struct gpu_attention_shape *s)
{
    int64_t slice = s->batch;

    TRY(make_plan(c, plan, s, slice));
    while (slice > 1 &&
           plan->run.workspace + (int64_t)sum_bytes(s, slice) > GPU_ATTENTION_WORKSPACE) {
        slice--;
        while (s->batch % slice)
            slice--;
        gpu_graph_plan_free(&plan->run);
        TRY(make_plan(c, plan, s, slice));
    }
    log_debug("cuDNN attention %s: %lld of %lld sequences at a time, workspace %lld bytes",
              s->backward ? "backward" : "forward", (long long)slice, (long long)s->batch,
              (long long)plan->run.workspace);
    return ST_OK;
}

static enum status find_plan(struct plan **plan, struct gpu_cudnn *c,
                             const struct gpu_attention_shape *s)
{
    for (int i = 0; i < c->plans; i++)
        if (memcmp(&c->plan[i].shape, s, sizeof *s) == 0) {
            *plan = &c->plan[i];
            return ST_OK;
        }
    if (c->plans == PLANS_MAX)
        return fail(ST_EDEVICE, "more than %d shapes of attention", PLANS_MAX);
    *plan = &c->plan[c->plans];
    TRY(choose_slice(c, *plan, s));
    c->plans++;
    return ST_OK;
}

static struct gpu_attention_shape shape_of(const struct attention *at)
{
    struct gpu_attention_shape s;

    memset(&s, 0, sizeof s); /* compared byte by byte */
    s.batch = at->batch;
    s.seq = at->seq;
    s.heads = at->heads;
    s.kv_heads = at->kv_heads;
    s.head_dim = at->head_dim;
    s.row[ATT_Q] = at->q.stride;
    s.row[ATT_K] = at->k.stride;
    s.row[ATT_V] = at->v.stride;
    s.row[ATT_O] = at->o.stride;
    return s;
}

/* Execution -------------------------------------------------------------------------------- */

/* Memory of one execution. */
struct call {
    int64_t name[ATT_END];
    void *data[ATT_END];
    int n;
    float scale, one, masked;
};

static void give(struct call *call, enum gpu_attention_memory name, void *data)
{
    call->name[call->n] = name;
    call->data[call->n++] = data;
}

/* Tensor t from sequence `first` on. */
static void give_rows(struct call *call, enum gpu_attention_memory name, const struct tensor *t,
                      int64_t first, const struct gpu_attention_shape *s)
{
    give(call, name, tensor_row(t, first * s->seq));
}

static void give_scalars(struct call *call, const struct gpu_attention_shape *s)
{
    call->scale = (float)(1.0 / sqrt((double)s->head_dim));
    call->one = 1.0f;
    call->masked = -INFINITY;
    give(call, ATT_SCALE, &call->scale);
    give(call, ATT_MASKED, &call->masked);
    if (s->backward)
        give(call, ATT_ONE, &call->one);
}

/* Scratch: lse and delta in cuDNN's order; with any_order sums of dq for one execution; then the
 * workspace. */
struct room {
    float *lse, *delta, *sum;
    size_t sum_bytes;
    void *workspace;
};

static enum status take_room(struct room *r, struct gpu_device *dev, const struct plan *plan)
{
    const struct gpu_attention_shape *s = &plan->shape;
    size_t numbers_bytes = ((size_t)(s->batch * s->heads * s->seq) * sizeof(float) + 255) & ~255ul;
    void *p;

    r->sum_bytes = sum_bytes(s, plan->slice);
    TRY(gpu_scratch(dev, &p, 2 * numbers_bytes + r->sum_bytes + 255 + (size_t)plan->run.workspace));
    r->lse = p;
    r->delta = (float *)(void *)((char *)p + numbers_bytes);
    r->sum = (float *)(void *)((char *)p + 2 * numbers_bytes);
    r->workspace = (char *)p + 2 * numbers_bytes + ((r->sum_bytes + 255) & ~255ul);
    return ST_OK;
}

static enum status execute(struct gpu_device *dev, const struct gpu_graph_plan *plan,
                           struct call *call, void *workspace)
{
    TRY(gpu_graph_run(dev->cudnn->handle, plan, call->name, call->data, call->n, workspace));
    return gpu_put(dev, GPU_PUT_CALL);
}

enum status gpu_cudnn_forward(struct gpu_device *dev, const struct attention *at)
{
    struct gpu_attention_shape s = shape_of(at);
    struct plan *plan;
    struct room room;

    TRY(find_plan(&plan, dev->cudnn, &s));
    TRY(take_room(&room, dev, plan));
    for (int64_t first = 0; first < s.batch; first += plan->slice) {
        struct call call = {.n = 0};

        give_rows(&call, ATT_Q, &at->q, first, &s);
        give_rows(&call, ATT_K, &at->k, first, &s);
        give_rows(&call, ATT_V, &at->v, first, &s);
        give_rows(&call, ATT_O, &at->o, first, &s);
        give(&call, ATT_LSE, room.lse + first * s.heads * s.seq);
        give_scalars(&call, &s);
        TRY(execute(dev, &plan->run, &call, room.workspace));
    }
    return gpu_lse_turn(dev, &at->lse, room.lse, s.seq, 0);
}

static enum status clear_sums(struct gpu_device *dev, struct call *call, const struct room *room)
{
    give(call, ATT_DQ_SUM, room->sum);
    CUDA_TRY(cudaMemsetAsync(room->sum, 0, room->sum_bytes, dev->stream));
    return gpu_put(dev, 1);
}

enum status gpu_cudnn_backward(struct gpu_device *dev, const struct attention *at,
                               const struct attention *dat)
{
    struct gpu_attention_shape s = shape_of(at);
    struct plan *plan;
    struct room room;

    s.backward = 1;
    s.any_order = dev->any_order;
    s.row[ATT_DQ] = dat->q.stride;
    s.row[ATT_DK] = dat->k.stride;
    s.row[ATT_DV] = dat->v.stride;
    s.row[ATT_DO] = dat->o.stride;
    TRY(find_plan(&plan, dev->cudnn, &s));
    TRY(take_room(&room, dev, plan));
    TRY(gpu_lse_turn(dev, &at->lse, room.lse, s.seq, 1));
    for (int64_t first = 0; first < s.batch; first += plan->slice) {
        struct call call = {.n = 0};

        give_rows(&call, ATT_Q, &at->q, first, &s);
        give_rows(&call, ATT_K, &at->k, first, &s);
        give_rows(&call, ATT_V, &at->v, first, &s);
        give_rows(&call, ATT_O, &at->o, first, &s);
        give_rows(&call, ATT_DQ, &dat->q, first, &s);
        give_rows(&call, ATT_DK, &dat->k, first, &s);
        give_rows(&call, ATT_DV, &dat->v, first, &s);
        give_rows(&call, ATT_DO, &dat->o, first, &s);
        give(&call, ATT_LSE, room.lse + first * s.heads * s.seq);
        give(&call, ATT_DELTA, room.delta + first * s.heads * s.seq);
        if (s.any_order)
            TRY(clear_sums(dev, &call, &room));
        give_scalars(&call, &s);
        TRY(execute(dev, &plan->run, &call, room.workspace));
    }
    return ST_OK;
}

#else
/* ISO C wants a declaration in every file. */
struct gpu_cudnn;
#endif
