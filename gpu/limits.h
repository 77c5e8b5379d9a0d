/* Fixed sizes of this backend's memory, for whoever must know them without CUDA. */
#ifndef GPU_LIMITS_H
#define GPU_LIMITS_H

/* Bytes.
 * GPU_SCRATCH    for partial sums and sorted tokens, taken at open; what needs more (a table of
 *                statistics of a very long batch, cuDNN's workspace) makes it grow at first use
 * GPU_WORKSPACE  that cuBLASLt may use; taken at open
 * GPU_ATTENTION_WORKSPACE  cuDNN's, unless one sequence needs more: backward takes as many
 *                sequences at a time as fit
 * GPU_CODE       allowed, in plans alone, for kernels that libraries load at first use and that no
 *                call tells of; not measured */
enum {
    GPU_SCRATCH = 64 << 20,
    GPU_WORKSPACE = 64 << 20,
    GPU_ATTENTION_WORKSPACE = 1 << 30,
    GPU_CODE = 512 << 20
};

#endif
