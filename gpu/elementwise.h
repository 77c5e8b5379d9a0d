/* Elementwise steps that other ops of gpu/ are built from. */
#ifndef GPU_ELEMENTWISE_H
#define GPU_ELEMENTWISE_H

#include "gpu/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[i,:] = y[i,:] * s[i] (+ c[i,:]); s [rows, 1] f32, c NULL or of y's shape. */
enum status gpu_scale_rows(struct gpu_device *dev, struct tensor *y, const struct tensor *s,
                           const struct tensor *c);

#ifdef __cplusplus
}
#endif
#endif
