/* Moments of a profile (struct device_ops, stamp) as CUDA events. */
#ifndef GPU_STAMP_H
#define GPU_STAMP_H

#include "gpu/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Moment n is when stream has done what it was given. Errors: ST_ENOMEM, ST_EDEVICE. */
enum status gpu_stamp_on(struct gpu_device *dev, int64_t n, cudaStream_t stream);

/* Gives the events back. */
void gpu_stamps_close(struct gpu_stamps *s);

#ifdef __cplusplus
}
#endif
#endif
