/* A communicator of this backend from inside; private to comm.c. */
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

#endif
