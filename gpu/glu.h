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

/* Operands: a [M, K], b [N, K], y and f [M, N]; all bf16, addresses and strides multiples of 16
 * bytes, M at least GPU_GLU_ROWS. */
struct gpu_glu_forward {
    struct tensor a, b[2], y[2], f;
};

/* y0 = a b0', y1 = a b1', summed in f32; f = swiglu(y0, y1) of them as they are stored. Errors:
 * ST_EDEVICE. */
enum status gpu_glu_forward(struct gpu_device *dev, const struct gpu_glu_forward *op,
                            enum swiglu_kind kind);

/* Operands: a [M, K], b [K, N], the others [M, N]; otherwise as above. */
struct gpu_glu_backward {
    struct tensor a, b, g, u, dg, du;
};

/* dg, du from g, u and df = a b, which is rounded to bf16 and not stored. Errors: ST_EDEVICE. */
enum status gpu_glu_backward(struct gpu_device *dev, const struct gpu_glu_backward *op,
                             enum swiglu_kind kind);

#ifdef __cplusplus
}
#endif
#endif
