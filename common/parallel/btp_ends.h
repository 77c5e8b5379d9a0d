/* Both ends of the model under BTP: the slots of struct tp_strategy, see there for the tensors. */
#ifndef COMMON_PARALLEL_BTP_ENDS_H
#define COMMON_PARALLEL_BTP_ENDS_H

#include "common/parallel/strategy.h"

/* x [M, d_l] = this rank's columns of the embedding. Untied: no communication. Tied (cut over V): a
 * reduce-scatter of M d elements with one addend that is not zero. */
enum status btp_embed_forward(struct tp_env *env, const struct ends *w, struct tensor *x,
                              const struct tensor *tokens);

/* dw->embed joins dx [M, d_l]. Untied: no communication. Tied: an all-gather of M d elements. */
enum status btp_embed_backward(struct tp_env *env, struct ends *dw, const struct tensor *dx,
                               const struct tensor *tokens);

/* Norm of the shard by the whole statistic: an all-reduce of M elements, an all-gather of M d. */
enum status btp_head_input(struct tp_env *env, const struct ends *w, const struct tensor *x,
                           struct tensor *h, struct tensor *s);

/* A reduce-scatter of M d elements, an all-reduce of M. */
enum status btp_head_input_backward(struct tp_env *env, const struct ends *w, struct ends *dw,
                                    const struct head_io *io, struct tensor *dh,
                                    const struct tensor *s);

#endif
