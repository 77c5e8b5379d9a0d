/* Fixed sizes of this backend's memory, for whoever must know them without CUDA. */
#ifndef GPU_LIMITS_H
#define GPU_LIMITS_H

#include <stdint.h>

/* Bytes.
 * GPU_SCRATCH    for partial sums and lists of tokens, taken at open; what needs more (a table of
 *                statistics of a very long batch, cuDNN's workspace) makes it grow at first use
 * GPU_WORKSPACE  that cuBLASLt may use; taken at open
 * GPU_ATTENTION_WORKSPACE  cuDNN's, unless one sequence needs more: backward takes as many
 *                sequences at a time as fit; at 32 heads of 64 and 2048 tokens one at a time takes
 *                1.3 times as long as four
 * GPU_CONTEXT, GPU_CODE  allowed, in plans alone, for CUDA's context and for kernels that libraries
 *                load at first use, which no call tells of: both took 555 MiB on an H200, of which
 *                the code is at most 160 (docs/performance.md) */
enum {
    GPU_SCRATCH = 64 << 20,
    GPU_WORKSPACE = 64 << 20,
    GPU_CONTEXT = 496 << 20,
    GPU_CODE = 64 << 20
};
#define GPU_ATTENTION_WORKSPACE (INT64_C(4) << 30)

#endif
