/* What the files of gpu/ share: the device, its scratch memory, checked CUDA calls, waiting. */
#ifndef GPU_DEVICE_H
#define GPU_DEVICE_H

#include "common/backend/backend.h"
#include "gpu/ahead.h"
#include "gpu/limits.h"

#include <cuda_runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpu_comm;
struct gpu_cudnn;
struct gpu_glu;
struct gpu_items;
struct gpu_matmul;

/* GPU_STAGE_*: pinned host memory through which uploads pass, so that the host need not wait. */
enum { GPU_STAGE_SLOTS = 8, GPU_STAGE_BYTES = 1 << 20 };

struct gpu_staging {
    char *memory; /* GPU_STAGE_SLOTS pieces of GPU_STAGE_BYTES */
    cudaEvent_t sent[GPU_STAGE_SLOTS];
    int next;
};

/* The host enqueues and goes on, and must not do so without limit: the driver's queue of a stream
 * holds about 1024 things. Behind a collective whose peer is gone nothing leaves it, and a launch
 * that finds it full waits inside the driver, where neither the job's failure flag nor its deadline
 * is heeded. So what is put on the compute stream is counted (gpu_put, gpu/ahead.h), and the host
 * waits for the oldest mark, in the way of all waits here, before the queue could be full. What
 * libraries put there is not told; these are counted for it, rather too many:
 *   GPU_PUT_PRODUCT  a product of cuBLASLt
 *   GPU_PUT_CALL     an execution of cuDNN; a collective with its events, on either stream (the
 *                    compute stream waits for each, so its marks bound that stream too)
 *   GPU_PUT_GRAPH    a replayed graph, whatever it holds: the host is up to four steps ahead */
enum { GPU_PUT_PRODUCT = 2, GPU_PUT_CALL = 8, GPU_PUT_GRAPH = 256 };

/* Events of a profile's moments. */
struct gpu_stamps {
    cudaEvent_t *event;
    int64_t made, room;
};

struct gpu_graph;

struct gpu_device {
    struct device base;
    int ordinal, sms;
    int any_order;       /* sums may be added in any order where that is faster */
    char name[128];      /* of the GPU, and which attention runs on it */
    cudaStream_t stream; /* all arithmetic, in order */
    cudaEvent_t mark;    /* what gpu_wait waits for */
    struct gpu_ahead ahead;
    cudaEvent_t passed[GPU_AHEAD_SLOTS]; /* its marks */
    int recording;                       /* the stream records a graph and does nothing */
    void *scratch;
    size_t scratch_bytes;
    struct gpu_staging staging;
    struct gpu_matmul *matmul; /* cuBLASLt and its tuned plans */
    struct gpu_glu *glu;       /* products with SwiGLU in one kernel; NULL: there is none */
    struct gpu_items *items;   /* descriptors of kernels over many tensors */
    struct gpu_cudnn *cudnn;   /* NULL: the own attention kernels do everything */
    struct gpu_stamps stamps;
    size_t shared_most;       /* bytes of shared memory that a block may ask for */
    unsigned rings_allowed;   /* bit FORM: rmsnorm_backward.cu's kernel has leave to */
    struct gpu_comm *comms;   /* live communicators, so that waits can watch them */
    struct gpu_graph *graphs; /* recorded and not freed */
};

/* dev as this backend's struct. */
static inline struct gpu_device *gpu_of(struct device *dev)
{
    return (struct gpu_device *)dev;
}

/* ST_OK, or a recorded failure with CUDA's own name and text; `what` names the call. */
enum status gpu_check(cudaError_t err, const char *what);

#define CUDA_TRY(call) TRY(gpu_check((call), #call))

/* n things were put on the compute stream (a kernel, a copy, an event: one each). Waits while it is
 * more than the host may be ahead; nothing counts while a graph is recorded. Errors: gpu_wait's. */
enum status gpu_put(struct gpu_device *dev, int n);

/* Result of the launch since the last check, which counts as one thing put on the stream. */
enum status gpu_launched(struct gpu_device *dev, const char *op);

/* Scratch of at least `bytes`; valid until the op returns, as all users follow each other on the
 * compute stream. Grows by a wait and a new allocation when asked for more than ever before, which
 * a captured step must not do: run a step first. Errors: ST_ENOMEM. */
enum status gpu_scratch(struct gpu_device *dev, void **p, size_t bytes);

/* Waits until the compute stream has done all that it was given; watches the communicators
 * meanwhile and gives up when one fails, a peer raised, or the deadline passes. */
enum status gpu_wait(struct gpu_device *dev);

/* Nonzero while the compute stream records a CUDA graph: nothing may then wait or allocate. */
int gpu_capturing(struct gpu_device *dev);

/* *accumulate: whether a gradient joins what dw holds. Sample plans of this backend are one block
 * of rows into slot 0 (layout_exact: off). Errors: ST_ECONFIG for an exact plan. */
enum status gpu_plan(int *accumulate, const struct sample_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
