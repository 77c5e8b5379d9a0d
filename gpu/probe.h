/* Small looks at the GPU and at what lies on it. */
#ifndef GPU_PROBE_H
#define GPU_PROBE_H

#include "gpu/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Nonzero when this build's kernels can run on the current GPU. */
int gpu_probe_runs(void);

/* *sum: a sum of the mixed bits of all elements of t with their places. Waits for the device; for
 * set-up only. */
enum status gpu_probe_bits(uint64_t *sum, struct gpu_device *dev, const struct tensor *t);

#ifdef __cplusplus
}
#endif
#endif
