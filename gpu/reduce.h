/* Sums over tokens, in two stages: blocks of rows to partial sums in scratch, then those in order.
 */
#ifndef GPU_REDUCE_H
#define GPU_REDUCE_H

#include "gpu/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the rows of a sum over tokens fall to blocks: block i takes rows [i per, (i + 1) per). */
struct gpu_parts {
    int64_t per, parts;
    float *partial; /* [parts, cols] in scratch */
};

/* Parts for rows x cols with at most `blocks` of them, and their scratch. */
enum status gpu_parts_of(struct gpu_parts *p, struct gpu_device *dev, int64_t rows, int64_t cols,
                         int64_t blocks);

/* sum [1, cols] f32 = partial sums added in order (+ what it holds). */
enum status gpu_parts_join(struct gpu_device *dev, const struct tensor *sum,
                           const struct gpu_parts *p, int accumulate);

#ifdef __cplusplus
}
#endif
#endif
