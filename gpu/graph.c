#include "gpu/graph.h"

#include "gpu/comm.h"
#include "gpu/gpu.h"

#include <stdlib.h>

struct gpu_graph {
    cudaGraphExec_t exec; /* NULL: dropped */
    struct gpu_graph *next;
};

/* NCCL enqueues from threads of its own, which must not be held to what a recording forbids; this
 * thread is, so that whatever would wait or allocate fails here. */
enum status gpu_capture_begin(struct device *dev)
{
    CUDA_TRY(cudaStreamBeginCapture(gpu_of(dev)->stream, cudaStreamCaptureModeThreadLocal));
    gpu_of(dev)->recording = 1;
    return ST_OK;
}

static enum status keep(struct gpu_device *dev, void **graph, cudaGraph_t recorded)
{
    struct gpu_graph *made = calloc(1, sizeof *made);

    if (!made)
        return fail(ST_ENOMEM, "no host memory for a CUDA graph");
    made->next = dev->graphs;
    dev->graphs = made;
    *graph = made;
    CUDA_TRY(cudaGraphInstantiate(&made->exec, recorded, 0));
    return ST_OK;
}

enum status gpu_capture_end(struct device *dev, void **graph)
{
    struct gpu_device *gpu = gpu_of(dev);
    cudaGraph_t recorded = NULL;
    enum status st, events;

    *graph = NULL;
    st = gpu_check(cudaStreamEndCapture(gpu->stream, &recorded), "recording a CUDA graph");
    gpu->recording = 0;
    events = gpu_comm_recorded(gpu);
    if (st == ST_OK)
        st = events;
    if (st == ST_OK)
        st = keep(gpu, graph, recorded);
    if (recorded)
        cudaGraphDestroy(recorded);
    if (st != ST_OK) {
        gpu_capture_free(dev, *graph);
        *graph = NULL;
    }
    return st;
}

enum status gpu_replay(struct device *dev, void *graph, int *done)
{
    struct gpu_device *gpu = gpu_of(dev);
    struct gpu_graph *g = graph;

    *done = g->exec != NULL;
    if (!*done)
        return ST_OK;
    CUDA_TRY(cudaGraphLaunch(g->exec, gpu->stream));
    TRY(gpu_comm_recorded(gpu));
    return gpu_put(gpu, GPU_PUT_GRAPH);
}

void gpu_capture_free(struct device *dev, void *graph)
{
    struct gpu_graph *gone = graph;

    if (!gone)
        return;
    for (struct gpu_graph **at = &gpu_of(dev)->graphs; *at; at = &(*at)->next)
        if (*at == gone) {
            *at = gone->next;
            break;
        }
    if (gone->exec)
        cudaGraphExecDestroy(gone->exec);
    free(gone);
}

void gpu_graphs_drop(struct gpu_device *dev)
{
    for (struct gpu_graph *g = dev->graphs; g; g = g->next) {
        if (g->exec)
            cudaGraphExecDestroy(g->exec);
        g->exec = NULL;
    }
}
