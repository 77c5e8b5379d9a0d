/* What waits of the device need of its communicators. */
#ifndef GPU_COMM_H
#define GPU_COMM_H

#include "common/backend/host.h"
#include "gpu/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One turn of a wait for dev: looks at every communicator's health and at the job's failure flag
 * and deadline, and yields the processor. After a failure all communicators of dev are aborted, so
 * that their kernels end and nothing later can hang. Errors: ST_ECOMM, ST_EPEER. */
enum status gpu_comm_poll(struct gpu_device *dev, struct host_poll *poll, const char *what);

/* Waits until no collective of dev is under way, with the same care. Before every call of CUDA that
 * waits for the whole device, such as cudaFree: it would wait for a collective whose peer is gone,
 * and for ever. Errors: ST_ECOMM, ST_EPEER; all communicators are then aborted, and nothing is
 * under way any more. */
enum status gpu_comm_quiet(struct gpu_device *dev);

/* After recording a graph, and after each replay: collectives of communicators that were recorded
 * are over when the compute stream is here. (An event that a recording left behind may not even be
 * looked at.) */
enum status gpu_comm_recorded(struct gpu_device *dev);

#ifdef __cplusplus
}
#endif
#endif
