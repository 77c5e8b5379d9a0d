/* Memory and start of a device: checked wrappers over the device slots. */
#ifndef COMMON_BACKEND_DEVICE_H
#define COMMON_BACKEND_DEVICE_H

#include "common/backend/backend.h"

/* Opens a device of be. The caller owns *dev. Errors: ST_EDEVICE with what was asked and found. */
enum status device_open(struct device **dev, const struct backend *be,
                        const struct device_options *opt);

/* Closes dev; NULL is allowed. All its memory must have been released. */
void device_close(struct device *dev);

/* Device memory, ARENA_ALIGN-aligned; contents undefined. Done before step 1 only.
 * Errors: ST_ENOMEM naming the size asked for and what is free. */
enum status device_alloc(struct device *dev, void **p, size_t bytes);
void device_release(struct device *dev, void *p);

/* Copies bytes host to device, device to host (waits for the device), device to device. */
enum status device_upload(struct device *dev, void *dst, const void *src, size_t bytes);
enum status device_download(struct device *dev, void *dst, const void *src, size_t bytes);
enum status device_copy(struct device *dev, void *dst, const void *src, size_t bytes);

/* Sets bytes to zero. */
enum status device_zero(struct device *dev, void *dst, size_t bytes);

/* Waits until everything given to the device is done. */
enum status device_sync(struct device *dev);

/* Moments of the device's work, as struct device_ops has them; trace.h is who asks for them. */
enum status device_stamp(struct device *dev, int64_t n, const char *name);
enum status device_stamps(struct device *dev, double *seconds, int64_t n);

/* Recording work and doing it again, as struct device_ops has it; train/step_graph.c is who does.
 * Errors: ST_ECONFIG on a backend that records nothing. */
enum status device_capture_begin(struct device *dev);
enum status device_capture_end(struct device *dev, void **graph);
enum status device_replay(struct device *dev, void *graph, int *done);
void device_capture_free(struct device *dev, void *graph);

/* The slots of a backend that does its work at once: ST_ECONFIG. */
enum status device_none_begin(struct device *dev);
enum status device_none_end(struct device *dev, void **graph);
enum status device_none_replay(struct device *dev, void *graph, int *done);
void device_none_free(struct device *dev, void *graph);

/* Name and memory. */
enum status device_info(struct device *dev, struct device_info *info);

#endif
