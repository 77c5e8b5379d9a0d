/* Gradients over replicas, and ZeRO-1's weights back: the traffic of optimizer.h. */
#ifndef COMMON_TRAIN_REDUCE_H
#define COMMON_TRAIN_REDUCE_H

#include "common/train/optimizer.h"

/* Sharded: takes the packed bucket of gradients and that of weights from grads. */
enum status reduce_open(struct optimizer *o, struct arena *grads);

/* Sharded: every replica gets the weights that the others have updated, bucket by bucket.
 * Collective over dp; an all-gather of each bucket in the weights' type. */
enum status reduce_share_weights(struct optimizer *o, struct device *dev);

#endif
