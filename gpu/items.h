/* Kernels over many tensors at once: their descriptors lie on the GPU and are sent there once.
 *
 * A call with a list that was seen before finds its set again and sends nothing. A set is known by
 * the bytes of its items, so those are built over zeros (padding included).
 */
#ifndef GPU_ITEMS_H
#define GPU_ITEMS_H

#include "gpu/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* GPU_ITEM_SETS: lists of one kind that alternate without being sent again (ranges of a pipeline
 * stage, parts of ZeRO); the oldest makes room. */
enum { GPU_ITEM_SETS = 32 };

/* The lists of a device. Errors: ST_ENOMEM. */
enum status gpu_items_open(struct gpu_items **items);
void gpu_items_close(struct gpu_items *items);

/* Zeroed host memory for `bytes` of items, until the next call. */
enum status gpu_items_build(struct gpu_items *items, void **p, size_t bytes);

/* *on_device: the device's copy of the first `bytes` of what was built. A new list waits for the
 * GPU and allocates; not while a CUDA graph is recorded. */
enum status gpu_items_send(struct gpu_device *dev, const void **on_device, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
