#ifdef HAVE_CUDNN

#include "gpu/cudnn_graph.h"

#include <stdbool.h>
#include <string.h>

enum { ENGINES_MAX = 16 };

enum status gpu_cudnn_check(cudnnStatus_t st, const char *what)
{
    char text[256] = "";

    if (st == CUDNN_STATUS_SUCCESS)
        return ST_OK;
    cudnnGetLastErrorString(text, sizeof text);
    return fail(ST_EDEVICE, "%s: %s (%d)%s%s", what, cudnnGetErrorString(st), (int)st,
                *text ? "; " : "", text);
}

/* Keeps the first failure. */
static void note(struct gpu_graph *g, cudnnStatus_t st, const char *what)
{
    if (g->st == ST_OK)
        g->st = gpu_cudnn_check(st, what);
}

/* A new descriptor that g frees. */
static cudnnBackendDescriptor_t create(struct gpu_graph *g, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t d = NULL;

    if (g->st != ST_OK)
        return NULL;
    if (g->held == GPU_GRAPH_DESCRIPTORS) {
        g->st =
            fail(ST_EINTERNAL, "a cuDNN graph of more than %d descriptors", GPU_GRAPH_DESCRIPTORS);
        return NULL;
    }
    note(g, cudnnBackendCreateDescriptor(type, &d), "cudnnBackendCreateDescriptor");
    if (d)
        g->owned[g->held++] = d;
    return d;
}

static void set(struct gpu_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *value)
{
    if (g->st == ST_OK)
        note(g, cudnnBackendSetAttribute(d, name, type, count, value), "cudnnBackendSetAttribute");
}

static void set_node(struct gpu_graph *g, cudnnBackendDescriptor_t d,
                     cudnnBackendAttributeName_t name, const struct gpu_node *x)
{
    set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x->desc);
}

static void finish(struct gpu_graph *g, cudnnBackendDescriptor_t d)
{
    if (g->st == ST_OK)
        note(g, cudnnBackendFinalize(d), "cudnnBackendFinalize");
}

/* d, finished, joins the graph. */
static void operation(struct gpu_graph *g, cudnnBackendDescriptor_t d)
{
    finish(g, d);
    if (g->st == ST_OK && g->operations == GPU_GRAPH_OPERATIONS)
        g->st =
            fail(ST_EINTERNAL, "a cuDNN graph of more than %d operations", GPU_GRAPH_OPERATIONS);
    if (g->st == ST_OK)
        g->operation[g->operations++] = d;
}

static struct gpu_node node_in(struct gpu_graph *g, int64_t name, cudnnDataType_t type,
                               const int64_t dim[4], const int64_t stride[4], bool by_value,
                               cudnnBackendTensorReordering_t order)
{
    const int64_t alignment = 16;
    const bool is_virtual = name >= GPU_GRAPH_VIRTUAL;
    struct gpu_node x;

    memcpy(x.dim, dim, sizeof x.dim);
    memcpy(x.stride, stride, sizeof x.stride);
    x.desc = create(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(g, x.desc, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(g, x.desc, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dim);
    set(g, x.desc, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, stride);
    set(g, x.desc, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &name);
    set(g, x.desc, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(g, x.desc, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    set(g, x.desc, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    if (order != CUDNN_TENSOR_REORDERING_NONE)
        set(g, x.desc, CUDNN_ATTR_TENSOR_REORDERING_MODE, CUDNN_TYPE_TENSOR_REORDERING_MODE, 1,
            &order);
    finish(g, x.desc);
    return x;
}

static struct gpu_node node(struct gpu_graph *g, int64_t name, cudnnDataType_t type,
                            const int64_t dim[4], const int64_t stride[4], bool by_value)
{
    return node_in(g, name, type, dim, stride, by_value, CUDNN_TENSOR_REORDERING_NONE);
}

struct gpu_node gpu_graph_memory(struct gpu_graph *g, int64_t name, cudnnDataType_t type,
                                 const int64_t dim[4], const int64_t stride[4])
{
    return node(g, name, type, dim, stride, false);
}

struct gpu_node gpu_graph_sums(struct gpu_graph *g, int64_t name, const int64_t dim[4])
{
    const int64_t stride[4] = {dim[1] * dim[2] * dim[3], dim[2] * dim[3], dim[3], 1};

    return node_in(g, name, CUDNN_DATA_FLOAT, dim, stride, false, CUDNN_TENSOR_REORDERING_F16x16);
}

struct gpu_node gpu_graph_scalar(struct gpu_graph *g, int64_t name)
{
    const int64_t one[4] = {1, 1, 1, 1};

    return node(g, name, CUDNN_DATA_FLOAT, one, one, true);
}

struct gpu_node gpu_graph_virtual(struct gpu_graph *g, cudnnDataType_t type, const int64_t dim[4])
{
    const int64_t stride[4] = {dim[1] * dim[2] * dim[3], dim[2] * dim[3], dim[3], 1};

    return node(g, GPU_GRAPH_VIRTUAL + g->next++, type, dim, stride, false);
}

struct gpu_node gpu_graph_like(struct gpu_graph *g, cudnnDataType_t type, const struct gpu_node *x)
{
    return node(g, GPU_GRAPH_VIRTUAL + g->next++, type, x->dim, x->stride, false);
}

void gpu_graph_matmul(struct gpu_graph *g, const struct gpu_node *y, const struct gpu_node *a,
                      const struct gpu_node *b)
{
    const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how = create(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR), op;

    set(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    finish(g, how);
    op = create(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    set_node(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_node(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_node(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y);
    operation(g, op);
}

void gpu_graph_pointwise(struct gpu_graph *g, struct gpu_pointwise p, const struct gpu_node *y,
                         const struct gpu_node *x, const struct gpu_node *b,
                         const struct gpu_node *t)
{
    cudnnBackendDescriptor_t how = create(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR), op;

    set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &p.mode);
    set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &p.precision);
    if (p.mode == CUDNN_POINTWISE_GEN_INDEX)
        set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &p.axis);
    finish(g, how);
    op = create(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
        &how);
    set_node(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b)
        set_node(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    if (t)
        set_node(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    set_node(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    operation(g, op);
}

void gpu_graph_reduce(struct gpu_graph *g, cudnnReduceTensorOp_t kind, const struct gpu_node *y,
                      const struct gpu_node *x)
{
    const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how = create(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR), op;

    set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &kind);
    set(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    finish(g, how);
    op = create(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set(g, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &how);
    set_node(g, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_node(g, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    operation(g, op);
}

void gpu_graph_reshape(struct gpu_graph *g, const struct gpu_node *y, const struct gpu_node *x)
{
    cudnnBackendDescriptor_t op = create(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);

    set_node(g, op, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_node(g, op, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    operation(g, op);
}

/* Asks the heuristic for engine configurations; g frees them. Returns how many. */
static int64_t configurations(struct gpu_graph *g, cudnnBackendDescriptor_t config[ENGINES_MAX],
                              cudnnBackendDescriptor_t prop)
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    cudnnBackendDescriptor_t graph, heuristic;
    int64_t found = 0;

    graph = create(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(g, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->operations,
        (const void *)g->operation);
    finish(g, graph);
    heuristic = create(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
        &graph);
    set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &prop);
    finish(g, heuristic);
    for (int i = 0; i < ENGINES_MAX; i++)
        config[i] = create(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (g->st == ST_OK)
        note(g,
             cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                      CUDNN_TYPE_BACKEND_DESCRIPTOR, ENGINES_MAX, &found,
                                      (void *)config),
             "cuDNN's heuristic");
    return found;
}

/* Nonzero unless the engine of config says that its results vary from run to run. */
static int deterministic(struct gpu_graph *g, cudnnBackendDescriptor_t config)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t engine = create(g, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    int64_t n = 0;

    if (!engine ||
        cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 1, &n, &engine) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                 CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n,
                                 notes) != CUDNN_STATUS_SUCCESS)
        return 0;
    for (int64_t i = 0; i < n; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
            return 0;
    return 1;
}

/* Tries to make a plan of config; returns nonzero when it is one. */
static int plan_of(struct gpu_graph_plan *p, cudnnBackendDescriptor_t config,
                   cudnnBackendDescriptor_t prop)
{
    int64_t n = 0;

    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &p->plan) !=
        CUDNN_STATUS_SUCCESS)
        return 0;
    if (cudnnBackendSetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &config) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendSetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &prop) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendFinalize(p->plan) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                 CUDNN_TYPE_INT64, 1, &n, &p->workspace) == CUDNN_STATUS_SUCCESS)
        return 1;
    gpu_graph_plan_free(p);
    return 0;
}

static void release(struct gpu_graph *g)
{
    while (g->held > 0)
        cudnnBackendDestroyDescriptor(g->owned[--g->held]);
}

enum status gpu_graph_plan(struct gpu_graph_plan *p, struct gpu_graph *g,
                           cudnnBackendDescriptor_t prop, const char *what, int any_order)
{
    cudnnBackendDescriptor_t config[ENGINES_MAX];
    int64_t found = configurations(g, config, prop);
    char text[256] = "";
    int made = 0, varying = 0;

    for (int64_t i = 0; i < found && g->st == ST_OK && !made; i++) {
        if (!any_order && !deterministic(g, config[i]))
            varying++;
        else
            made = plan_of(p, config[i], prop);
    }
    if (g->st == ST_OK && !made) {
        cudnnGetLastErrorString(text, sizeof text);
        g->st =
            fail(ST_EDEVICE,
                 "cuDNN has no %sengine for %s (%d offered, %d not deterministic%s%s; %s"
                 "NARROWS_ATTENTION=own uses the own kernels)",
                 any_order ? "" : "deterministic ", what, (int)found, varying, *text ? "; " : "",
                 text, any_order ? "run.deterministic=on takes another, " : "");
    }
    release(g);
    return g->st;
}

void gpu_graph_plan_free(struct gpu_graph_plan *p)
{
    if (p->plan)
        cudnnBackendDestroyDescriptor(p->plan);
    p->plan = NULL;
}

enum status gpu_graph_run(cudnnHandle_t handle, const struct gpu_graph_plan *p, const int64_t *name,
                          void *const *data, int n, void *workspace)
{
    struct gpu_graph g = {.st = ST_OK};
    cudnnBackendDescriptor_t pack = create(&g, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);

    set(&g, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, n, name);
    set(&g, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n,
        (const void *)data);
    set(&g, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
        (const void *)&workspace);
    finish(&g, pack);
    if (g.st == ST_OK)
        note(&g, cudnnBackendExecute(handle, p->plan, pack), "cudnnBackendExecute");
    release(&g);
    return g.st;
}

#else
/* ISO C wants a declaration in every file. */
struct gpu_graph;
#endif
