/* Matrix products by cuBLASLt, each kind tuned once.
 *
 * For every new key (sizes, strides, types, alignment, batch, what is added) the library's
 * candidates are run on the operands at hand. Two runs of a program must choose algorithms with
 * the same results, whatever the clock says: one is chosen of those alone that split K as the
 * first one does and whose result has the same bits as its; so the choice decides the speed
 * alone. A result of zeros shows nothing, and the first is taken. The first is the heuristic's
 * favourite, or, where the result fills the GPU, the first one that leaves K whole. Reductions
 * in place and in the output type are excluded: they round more often. f32 products are true f32
 * (no TF32).
 */
#ifndef GPU_MATMUL_H
#define GPU_MATMUL_H

#include "gpu/device.h"
#include "gpu/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GPU_MATMUL_PLANS = 1024, GPU_CANDIDATES = 16 };

/* Opens cuBLASLt. Errors: ST_EDEVICE, ST_ENOMEM. */
enum status gpu_matmul_open(struct gpu_matmul **mm);
void gpu_matmul_close(struct gpu_matmul *mm);

/* Enqueues p (its scale is left to the caller). The first call of a kind tunes: it waits for the
 * device and may allocate for a moment. Errors: ST_EDTYPE, ST_EDEVICE. */
enum status gpu_matmul_run(struct gpu_device *dev, const struct gpu_product *p);

#ifdef __cplusplus
}
#endif
#endif
