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

/* Loss and gradient: an all-reduce of M (the final norm's statistic), an all-gather of M d, one of
 * 3 M p; backward a reduce-scatter of M d and an all-reduce of M. */
enum status btp_head(struct tp_env *env, const struct ends *w, struct ends *dw,
                     const struct head_io *io);

/* out [M, V_l] = logits of the normalised stream: an all-reduce of M and an all-gather of M d. */
enum status btp_logits(struct tp_env *env, const struct ends *w, const struct tensor *x,
                       struct tensor *out);

#endif
