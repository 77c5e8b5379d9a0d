/* A communicator of this backend from inside; private to comm.c and comm_p2p.c. */
#ifndef GPU_COMM_STATE_H
#define GPU_COMM_STATE_H

#include "gpu/device.h"

#include <nccl.h>

enum { P2P_MAX = 16 };

/* A send or receive that starts at the next wait. */
struct p2p {
    void *data;
    size_t count;
    ncclDataType_t type;
    int peer, send;
    int64_t moment; /* of a profile: when it is done; -1: none */
};

struct gpu_comm {
    struct comm base;
    struct gpu_device *dev;
    struct host *group;    /* owned */
    struct gpu_comm *next; /* of the device */
    ncclComm_t nccl;       /* NULL: one rank, or aborted */
    cudaStream_t stream;
    cudaEvent_t ready, done;
    int begun, dead;
    int recorded;  /* a graph has collectives of it */
    char what[80]; /* the last that was begun, for messages */
    int queued;
    struct p2p queue[P2P_MAX];
};

/* c as this backend's struct. */
static inline struct gpu_comm *gpu_comm_of(struct comm *c)
{
    return (struct gpu_comm *)c;
}

/* t's element type as NCCL calls it. */
ncclDataType_t gpu_comm_type(const struct tensor *t);

/* Opens a call of NCCL named so: the communication stream waits for what the compute stream was
 * given. Errors: ST_ECOMM when c was aborted. */
enum status gpu_comm_begin(struct gpu_comm *c, const char *name, const struct tensor *t);

/* Closes it: r is what NCCL answered. */
enum status gpu_comm_launched(struct gpu_comm *c, ncclResult_t r);

#endif
