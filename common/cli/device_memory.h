/* Memory that a rank takes on its device beside the arenas of a step, as far as it can be known
 * without a device. */
#ifndef COMMON_CLI_DEVICE_MEMORY_H
#define COMMON_CLI_DEVICE_MEMORY_H

#include "common/train/memory_fit.h"

/* Of the backend that cfg names: nothing on ref. On gpu: what is taken at open (gpu/limits.h), the
 * scratch that attention makes grow (with cuDNN, where that runs: its deterministic backward keeps
 * 2 seq^2 bytes a head and sequence), and by estimates, since nothing tells them before the start,
 * NCCL's buffers, CUDA's context and the kernels' code. cfg: resolved. */
enum status device_memory_beside(struct memory_beside *beside, const struct config *cfg);

/* Bytes of the above that a device has taken once it is open. */
size_t device_memory_opened(const struct config *cfg);

#endif
