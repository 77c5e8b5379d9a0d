/* The model's end, written once: what differs is how the stream becomes whole (head_input of struct
 * tp_strategy) and how its gradient is dealt out again. The head [V_l, d] is cut over the
 * vocabulary in every strategy. */
#ifndef COMMON_PARALLEL_HEAD_H
#define COMMON_PARALLEL_HEAD_H

#include "common/parallel/strategy.h"

/* Loss of each token and, unless io->scale is 0, the stream's gradient; gradients of head and final
 * norm join dw. Logits [M, V_l] live in scratch and become their gradient in place. Sends what
 * head_input and its backward send, and an all-gather of three numbers a token. Collective over
 * env->tp. */
enum status head_run(const struct tp_strategy *st, struct tp_env *env, const struct ends *w,
                     struct ends *dw, const struct head_io *io);

/* logits [M, V_l] of the stream x [M, stream], for generation. Sends what head_input sends.
 * Collective over env->tp. */
enum status head_logits(const struct tp_strategy *st, struct tp_env *env, const struct ends *w,
                        const struct tensor *x, struct tensor *logits);

#endif
