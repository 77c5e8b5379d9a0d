/* Recorded work (CUDA graphs), for what makes it invalid. */
#ifndef GPU_GRAPH_H
#define GPU_GRAPH_H

#include "gpu/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Destroys what is recorded; its owners find out at the next replay. Before memory that kernels may
 * have been recorded with moves, and before a communicator ends: NCCL keeps what a graph refers to
 * until the graph is gone. Does not wait for one that runs. */
void gpu_graphs_drop(struct gpu_device *dev);

#ifdef __cplusplus
}
#endif
#endif
