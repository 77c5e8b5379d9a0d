/* The log-sum-exp of attention in the two orders that are in use. */
#ifndef GPU_LSE_H
#define GPU_LSE_H

#include "gpu/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Between by_row [batch * seq, heads] and by_head, packed [batch, heads, seq]: to by_head when
 * out is nonzero, else back. Both f32. */
enum status gpu_lse_turn(struct gpu_device *dev, const struct tensor *by_row, float *by_head,
                         int64_t seq, int out);

#ifdef __cplusplus
}
#endif
#endif
