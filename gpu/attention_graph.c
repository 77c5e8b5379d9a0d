#ifdef HAVE_CUDNN

#include "gpu/attention_graph.h"

static const struct gpu_pointwise multiply = {CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, 0};
static const struct gpu_pointwise subtract = {CUDNN_POINTWISE_SUB, CUDNN_DATA_FLOAT, 0};
static const struct gpu_pointwise exponential = {CUDNN_POINTWISE_EXP, CUDNN_DATA_FLOAT, 0};

/* A tensor [batch * seq, heads * head_dim]: [batch, heads, seq, head_dim]. */
static struct gpu_node rows(struct gpu_graph *g, const struct gpu_attention_shape *s,
                            enum gpu_attention_memory name, int64_t heads)
{
    const int64_t dim[4] = {s->batch, heads, s->seq, s->head_dim};
    const int64_t stride[4] = {s->seq * s->row[name], s->head_dim, s->row[name], 1};

    return gpu_graph_memory(g, name, CUDNN_DATA_BFLOAT16, dim, stride);
}

/* The same with its last two dimensions exchanged. */
static struct gpu_node rows_turned(struct gpu_graph *g, const struct gpu_attention_shape *s,
                                   enum gpu_attention_memory name, int64_t heads)
{
    const int64_t dim[4] = {s->batch, heads, s->head_dim, s->seq};
    const int64_t stride[4] = {s->seq * s->row[name], s->head_dim, 1, s->row[name]};

    return gpu_graph_memory(g, name, CUDNN_DATA_BFLOAT16, dim, stride);
}

/* One number a query and head, packed [batch, heads, seq, 1]; name 0: virtual. */
static struct gpu_node numbers(struct gpu_graph *g, const struct gpu_attention_shape *s,
                               int64_t name)
{
    const int64_t dim[4] = {s->batch, s->heads, s->seq, 1};
    const int64_t stride[4] = {s->heads * s->seq, s->seq, 1, 1};

    return name ? gpu_graph_memory(g, name, CUDNN_DATA_FLOAT, dim, stride)
                : gpu_graph_virtual(g, CUDNN_DATA_FLOAT, dim);
}

/* A virtual [batch, heads, seq, seq] tensor. */
static struct gpu_node square(struct gpu_graph *g, const struct gpu_attention_shape *s,
                              cudnnDataType_t type)
{
    const int64_t dim[4] = {s->batch, s->heads, s->seq, s->seq};

    return gpu_graph_virtual(g, type, dim);
}

/* x where key <= query, `masked` elsewhere. */
static struct gpu_node causal(struct gpu_graph *g, const struct gpu_attention_shape *s,
                              const struct gpu_node *x)
{
    const struct gpu_pointwise query_of = {CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 2};
    const struct gpu_pointwise key_of = {CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 3};
    const struct gpu_pointwise at_least = {CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, 0};
    const struct gpu_pointwise choose = {CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, 0};
    struct gpu_node query = square(g, s, CUDNN_DATA_INT32), key = square(g, s, CUDNN_DATA_INT32);
    struct gpu_node seen = square(g, s, CUDNN_DATA_BOOLEAN), y = square(g, s, CUDNN_DATA_FLOAT);
    struct gpu_node masked = gpu_graph_scalar(g, ATT_MASKED);

    gpu_graph_pointwise(g, query_of, &query, x, NULL, NULL);
    gpu_graph_pointwise(g, key_of, &key, x, NULL, NULL);
    gpu_graph_pointwise(g, at_least, &seen, &query, &key, NULL);
    gpu_graph_pointwise(g, choose, &y, x, &masked, &seen);
    return y;
}

/* o = softmax(causal(q k' scale)) v and lse = log sum exp of the rows. */
void gpu_attention_forward_graph(struct gpu_graph *g, const struct gpu_attention_shape *s)
{
    const struct gpu_pointwise logarithm = {CUDNN_POINTWISE_LOG, CUDNN_DATA_FLOAT, 0};
    const struct gpu_pointwise add = {CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, 0};
    const struct gpu_pointwise divide = {CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, 0};
    struct gpu_node q = rows(g, s, ATT_Q, s->heads), k = rows_turned(g, s, ATT_K, s->kv_heads);
    struct gpu_node v = rows(g, s, ATT_V, s->kv_heads), o = rows(g, s, ATT_O, s->heads);
    struct gpu_node lse = numbers(g, s, ATT_LSE), scale = gpu_graph_scalar(g, ATT_SCALE);
    struct gpu_node product = square(g, s, CUDNN_DATA_FLOAT);
    struct gpu_node score = square(g, s, CUDNN_DATA_FLOAT), shifted, power, weight, seen;
    struct gpu_node most = numbers(g, s, 0), sum = numbers(g, s, 0), log = numbers(g, s, 0);

    gpu_graph_matmul(g, &product, &q, &k);
    gpu_graph_pointwise(g, multiply, &score, &product, &scale, NULL);
    seen = causal(g, s, &score);
    gpu_graph_reduce(g, CUDNN_REDUCE_TENSOR_MAX, &most, &seen);
    shifted = square(g, s, CUDNN_DATA_FLOAT);
    gpu_graph_pointwise(g, subtract, &shifted, &seen, &most, NULL);
    power = square(g, s, CUDNN_DATA_FLOAT);
    gpu_graph_pointwise(g, exponential, &power, &shifted, NULL, NULL);
    gpu_graph_reduce(g, CUDNN_REDUCE_TENSOR_ADD, &sum, &power);
    gpu_graph_pointwise(g, logarithm, &log, &sum, NULL, NULL);
    gpu_graph_pointwise(g, add, &lse, &most, &log, NULL);
    weight = square(g, s, CUDNN_DATA_BFLOAT16);
    gpu_graph_pointwise(g, divide, &weight, &power, &sum, NULL);
    gpu_graph_matmul(g, &o, &weight, &v);
}

/* delta = sum of do * o over a head. */
static struct gpu_node delta_graph(struct gpu_graph *g, const struct gpu_attention_shape *s,
                                   const struct gpu_node *d_o)
{
    const int64_t dim[4] = {s->batch, s->heads, s->seq, s->head_dim};
    struct gpu_node o = rows(g, s, ATT_O, s->heads), one = gpu_graph_scalar(g, ATT_ONE);
    struct gpu_node product = gpu_graph_virtual(g, CUDNN_DATA_FLOAT, dim);
    struct gpu_node sum = numbers(g, s, 0), delta = numbers(g, s, ATT_DELTA);

    gpu_graph_pointwise(g, multiply, &product, d_o, &o, NULL);
    gpu_graph_reduce(g, CUDNN_REDUCE_TENSOR_ADD, &sum, &product);
    gpu_graph_pointwise(g, multiply, &delta, &sum, &one, NULL); /* the pattern's dropout scale */
    return delta;
}

/* y [batch, kv_heads, seq, head_dim] = x' z over the queries, added over the heads of a group. */
static void turned_product(struct gpu_graph *g, const struct gpu_attention_shape *s,
                           const struct gpu_node *y, const struct gpu_node *x,
                           const struct gpu_node *z)
{
    const int64_t dim[4] = {s->batch, s->heads, s->seq, s->head_dim};
    struct gpu_node turned = *x, each;

    turned.stride[2] = x->stride[3];
    turned.stride[3] = x->stride[2];
    turned = gpu_graph_like(g, CUDNN_DATA_BFLOAT16, &turned);
    gpu_graph_reshape(g, &turned, x);
    if (s->heads == s->kv_heads) {
        gpu_graph_matmul(g, y, &turned, z);
        return;
    }
    each = gpu_graph_virtual(g, CUDNN_DATA_BFLOAT16, dim);
    gpu_graph_matmul(g, &each, &turned, z);
    gpu_graph_reduce(g, CUDNN_REDUCE_TENSOR_ADD, y, &each);
}

/* The weights exp(score - lse) again. */
static struct gpu_node weights_graph(struct gpu_graph *g, const struct gpu_attention_shape *s,
                                     const struct gpu_node *q, const struct gpu_node *k,
                                     const struct gpu_node *scale)
{
    struct gpu_node lse = numbers(g, s, ATT_LSE), product = square(g, s, CUDNN_DATA_FLOAT);
    struct gpu_node score = square(g, s, CUDNN_DATA_FLOAT), shifted, seen, weight;

    gpu_graph_matmul(g, &product, q, k);
    gpu_graph_pointwise(g, multiply, &score, &product, scale, NULL);
    shifted = square(g, s, CUDNN_DATA_FLOAT);
    gpu_graph_pointwise(g, subtract, &shifted, &score, &lse, NULL);
    seen = causal(g, s, &shifted);
    weight = square(g, s, CUDNN_DATA_FLOAT);
    gpu_graph_pointwise(g, exponential, &weight, &seen, NULL, NULL);
    return weight;
}

/* dq = ds k: written once, which keeps ds in the engine's workspace; or added up in any order. */
static void queries_product(struct gpu_graph *g, const struct gpu_attention_shape *s,
                            const struct gpu_node *dq, const struct gpu_node *ds,
                            const struct gpu_node *keys)
{
    const struct gpu_pointwise identity = {CUDNN_POINTWISE_IDENTITY, CUDNN_DATA_FLOAT, 0};
    const int64_t dim[4] = {s->batch, s->heads, s->seq, s->head_dim};
    struct gpu_node sum;

    if (!s->any_order) {
        gpu_graph_matmul(g, dq, ds, keys);
        return;
    }
    sum = gpu_graph_sums(g, ATT_DQ_SUM, dim);
    gpu_graph_matmul(g, &sum, ds, keys);
    gpu_graph_pointwise(g, identity, dq, &sum, NULL, NULL);
}

void gpu_attention_backward_graph(struct gpu_graph *g, const struct gpu_attention_shape *s)
{
    struct gpu_node q = rows(g, s, ATT_Q, s->heads), k = rows_turned(g, s, ATT_K, s->kv_heads);
    struct gpu_node v = rows_turned(g, s, ATT_V, s->kv_heads), d_o = rows(g, s, ATT_DO, s->heads);
    struct gpu_node dq = rows(g, s, ATT_DQ, s->heads), dk = rows(g, s, ATT_DK, s->kv_heads);
    struct gpu_node dv = rows(g, s, ATT_DV, s->kv_heads), scale = gpu_graph_scalar(g, ATT_SCALE);
    struct gpu_node delta = delta_graph(g, s, &d_o);
    struct gpu_node weight = weights_graph(g, s, &q, &k, &scale), keys = k, dp, gap, slope, ds;

    turned_product(g, s, &dv, &weight, &d_o);
    dp = square(g, s, CUDNN_DATA_FLOAT);
    gpu_graph_matmul(g, &dp, &d_o, &v);
    gap = square(g, s, CUDNN_DATA_FLOAT);
    gpu_graph_pointwise(g, subtract, &gap, &dp, &delta, NULL);
    slope = square(g, s, CUDNN_DATA_FLOAT);
    gpu_graph_pointwise(g, multiply, &slope, &gap, &weight, NULL);
    ds = square(g, s, CUDNN_DATA_FLOAT);
    gpu_graph_pointwise(g, multiply, &ds, &slope, &scale, NULL);
    turned_product(g, s, &dk, &ds, &q);
    keys.dim[2] = k.dim[3], keys.dim[3] = k.dim[2];
    keys.stride[2] = k.stride[3], keys.stride[3] = k.stride[2];
    keys = gpu_graph_like(g, CUDNN_DATA_BFLOAT16, &keys);
    gpu_graph_reshape(g, &keys, &k);
    queries_product(g, s, &dq, &ds, &keys);
}

#else
/* ISO C wants a declaration in every file. */
struct gpu_graph;
#endif
