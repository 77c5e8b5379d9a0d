/* Attention as cuDNN graphs: the pattern of operations that its fused kernels stand for. */
#ifndef GPU_ATTENTION_GRAPH_H
#define GPU_ATTENTION_GRAPH_H

#ifdef HAVE_CUDNN

#include "gpu/cudnn_graph.h"

/* Names of memory in the graphs; the last three are scalars: 1 / sqrt(head_dim), 1, -infinity. */
enum gpu_attention_memory {
    ATT_Q = 1,
    ATT_K,
    ATT_V,
    ATT_O,
    ATT_LSE, /* packed [batch, heads, seq] f32, as is delta */
    ATT_DQ,
    ATT_DK,
    ATT_DV,
    ATT_DO,
    ATT_DELTA,
    ATT_DQ_SUM, /* with any_order: dq in float, set to zero before */
    ATT_SCALE,
    ATT_ONE,
    ATT_MASKED,
    ATT_END
};

/* All that a plan depends on; compared byte by byte. any_order: of backward alone, whose dq may be
 * added up by atomics then. */
struct gpu_attention_shape {
    int64_t backward, any_order, batch, seq, heads, kv_heads, head_dim;
    int64_t row[ATT_SCALE]; /* elements from row to row of each tensor; 0 where not used */
};

/* Fill g: o and lse from q, k, v; dq, dk, dv (and delta, scratch) from all the others. */
void gpu_attention_forward_graph(struct gpu_graph *g, const struct gpu_attention_shape *s);
void gpu_attention_backward_graph(struct gpu_graph *g, const struct gpu_attention_shape *s);

#endif
#endif
