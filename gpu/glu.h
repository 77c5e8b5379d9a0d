/* SwiGLU and the product beside it in one kernel, for GPUs of compute capability 9.0 (glu.cuh).
 * What the product would write and SwiGLU read again stays on the chip.
 */
#ifndef GPU_GLU_H
#define GPU_GLU_H

#include "gpu/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows below which a product is left to the library: less than a tile. */
enum { GPU_GLU_ROWS = 128 };

/* *glu: NULL where the GPU is another one or this build has no code for it. Errors: ST_ENOMEM,
 * ST_EDEVICE. */
enum status gpu_glu_open(struct gpu_glu **glu, const struct gpu_device *dev);
/* NULL does nothing. */
void gpu_glu_close(struct gpu_glu *glu);

/* What op_gemm_swiglu_forward and op_gemm_swiglu_backward say, of products with nothing added or
 * scaled; forward both of one a. All tensors but df bf16, their addresses and strides multiples of
 * 16 bytes, M at least GPU_GLU_ROWS. Sums in f32; df is rounded to bf16 and not stored. Errors:
 * ST_EDEVICE. */
enum status gpu_glu_forward(struct gpu_device *dev, const struct gemm g[2], const struct tensor *f,
                            enum swiglu_kind kind);

/* See above. */
enum status gpu_glu_backward(struct gpu_device *dev, const struct gemm *g,
                             const struct swiglu_grad *d, enum swiglu_kind kind);

#ifdef __cplusplus
}
#endif
#endif
