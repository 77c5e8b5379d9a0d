/* Fixed sizes of this backend's memory, for whoever must know them without CUDA. */
#ifndef GPU_LIMITS_H
#define GPU_LIMITS_H

enum {
    GPU_SCRATCH = 64 << 20,   /* memory for partial sums and sorted tokens, taken once at open.
                               * What needs more (a table of statistics of a very long batch,
                               * cuDNN's workspace) makes it grow at first use                   */
    GPU_WORKSPACE = 64 << 20, /* bytes that cuBLASLt may use; taken at open                      */
    GPU_ATTENTION_WORKSPACE = 1 << 30 /* cuDNN's, unless one sequence needs more: backward takes
                                       * as many sequences at a time as fit                      */
};

#endif
