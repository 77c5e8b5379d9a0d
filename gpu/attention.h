/* Attention: which kernels do it, chosen when the device opens and named in its description.
 *
 * With cuDNN: its fused kernels for bf16 training shapes (pos0 = 0, kv_rows = seq, head_dim a
 * multiple of 8 up to 128, rows a multiple of 8 elements apart and 16-byte aligned) of whole
 * sequences. All else, f32, generation and attention within documents above all, and everything
 * without cuDNN: the own kernels. Neither falls back on
 * the other: a shape that cuDNN refuses is an error.
 */
#ifndef GPU_ATTENTION_H
#define GPU_ATTENTION_H

#include "gpu/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Chooses: cuDNN when built in, unless the environment says NARROWS_ATTENTION=own. */
enum status gpu_attention_open(struct gpu_device *dev);
void gpu_attention_close(struct gpu_device *dev);

/* "cuDNN 9.19 (bf16 training, whole sequences), own kernels else", "own kernels". */
const char *gpu_attention_path(const struct gpu_device *dev);

/* The own kernels (flash.cu): f32 arithmetic on any shape with head_dim up to 256. */
enum status gpu_flash_forward(struct gpu_device *dev, const struct attention *at);
enum status gpu_flash_backward(struct gpu_device *dev, const struct attention *at,
                               const struct attention *dat);

#ifdef HAVE_CUDNN
/* cuDNN's (attention_cudnn.c). Plans are made once for each shape. */
enum status gpu_cudnn_open(struct gpu_cudnn **c, struct gpu_device *dev);
void gpu_cudnn_close(struct gpu_cudnn *c);
const char *gpu_cudnn_name(const struct gpu_cudnn *c);
enum status gpu_cudnn_forward(struct gpu_device *dev, const struct attention *at);
enum status gpu_cudnn_backward(struct gpu_device *dev, const struct attention *at,
                               const struct attention *dat);
#endif

#ifdef __cplusplus
}
#endif
#endif
