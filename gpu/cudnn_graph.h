/* A thin layer over cuDNN's backend descriptors: graphs of operations and their execution plans.
 *
 * Building is written as a list of calls without checks between them: the first failure is kept in
 * the graph, later calls do nothing, and gpu_graph_plan reports it.
 */
#ifndef GPU_CUDNN_GRAPH_H
#define GPU_CUDNN_GRAPH_H

#ifdef HAVE_CUDNN

#include "common/base/status.h"

#include <cudnn.h>

#if CUDNN_VERSION < 90800
#error "cuDNN 9.8 or newer is needed (configure --without-cudnn builds the own attention kernels)"
#endif

enum { GPU_GRAPH_DESCRIPTORS = 96, GPU_GRAPH_OPERATIONS = 32 };

/* Names of a graph's own memory must be below this; virtual tensors get numbers from here on. */
enum { GPU_GRAPH_VIRTUAL = 1000 };

/* A four-dimensional tensor of the graph. */
struct gpu_node {
    cudnnBackendDescriptor_t desc;
    int64_t dim[4], stride[4];
};

struct gpu_graph {
    cudnnBackendDescriptor_t owned[GPU_GRAPH_DESCRIPTORS], operation[GPU_GRAPH_OPERATIONS];
    int held, operations;
    int64_t next; /* number of the next virtual tensor */
    enum status st;
};

/* Memory `name`, in the caller's layout. */
struct gpu_node gpu_graph_memory(struct gpu_graph *g, int64_t name, cudnnDataType_t type,
                                 const int64_t dim[4], const int64_t stride[4]);

/* The same in float, in an order of cuDNN's own, for sums that an engine adds up by atomics: set to
 * zero before each execution. */
struct gpu_node gpu_graph_sums(struct gpu_graph *g, int64_t name, const int64_t dim[4]);

/* A float or so that is handed over by value at execution. */
struct gpu_node gpu_graph_scalar(struct gpu_graph *g, int64_t name);

/* A tensor that never reaches memory: packed; of x's shape and layout. */
struct gpu_node gpu_graph_virtual(struct gpu_graph *g, cudnnDataType_t type, const int64_t dim[4]);
struct gpu_node gpu_graph_like(struct gpu_graph *g, cudnnDataType_t type, const struct gpu_node *x);

/* y = a b over the last two dimensions, summed in float. */
void gpu_graph_matmul(struct gpu_graph *g, const struct gpu_node *y, const struct gpu_node *a,
                      const struct gpu_node *b);

/* How a pointwise operation is done. precision: of the arithmetic. axis: of GEN_INDEX alone. */
struct gpu_pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t precision;
    int64_t axis;
};

/* y = p(x, b, t); b and t may be NULL. */
void gpu_graph_pointwise(struct gpu_graph *g, struct gpu_pointwise p, const struct gpu_node *y,
                         const struct gpu_node *x, const struct gpu_node *b,
                         const struct gpu_node *t);

/* y = x reduced over the dimensions where y has 1 (or fewer, for heads). */
void gpu_graph_reduce(struct gpu_graph *g, cudnnReduceTensorOp_t kind, const struct gpu_node *y,
                      const struct gpu_node *x);

/* y = x in another shape or order of dimensions. */
void gpu_graph_reshape(struct gpu_graph *g, const struct gpu_node *y, const struct gpu_node *x);

/* An executable plan and the workspace it needs. */
struct gpu_graph_plan {
    cudnnBackendDescriptor_t plan;
    int64_t workspace; /* bytes */
};

/* Plans g on the GPU that `prop` (a finalized DEVICEPROP descriptor) describes: the heuristic's
 * best engine, with any_order 0 the best that is deterministic. `what` names the graph in messages.
 * Frees g's descriptors in any case. Errors: ST_EDEVICE with cuDNN's text. */
enum status gpu_graph_plan(struct gpu_graph_plan *p, struct gpu_graph *g,
                           cudnnBackendDescriptor_t prop, const char *what, int any_order);
void gpu_graph_plan_free(struct gpu_graph_plan *p);

/* Runs p on handle's stream with the n memories `name` at `data` (scalars: host addresses). */
enum status gpu_graph_run(cudnnHandle_t handle, const struct gpu_graph_plan *p, const int64_t *name,
                          void *const *data, int n, void *workspace);

/* ST_OK or a recorded failure with cuDNN's own text. */
enum status gpu_cudnn_check(cudnnStatus_t st, const char *what);

#endif
#endif
