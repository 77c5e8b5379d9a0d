/* Both ends of the model where the stream is whole on every rank: the slots of struct tp_strategy
 * that full and vanilla share. Embedding [V_l, d] and head [V_l, d] are cut over the vocabulary,
 * tied or not; the final norm is whole. */
#ifndef COMMON_PARALLEL_VOCAB_H
#define COMMON_PARALLEL_VOCAB_H

#include "common/parallel/strategy.h"

/* x [M, d] = rows of the embedding; one all-reduce of M d elements. */
enum status vocab_embed_forward(struct tp_env *env, const struct ends *w, struct tensor *x,
                                const struct tensor *tokens);

/* dw->embed joins dx [M, d]; no communication. */
enum status vocab_embed_backward(struct tp_env *env, struct ends *dw, const struct tensor *dx,
                                 const struct tensor *tokens);

/* The stream is whole: no communication. */
enum status vocab_head_input(struct tp_env *env, const struct ends *w, const struct tensor *x,
                             struct tensor *h, struct tensor *s);

/* An all-reduce of M d elements. */
enum status vocab_head_input_backward(struct tp_env *env, const struct ends *w, struct ends *dw,
                                      const struct head_io *io, struct tensor *dh,
                                      const struct tensor *s);

/* CUT_ROWS for the ends, CUT_NONE for gains. */
enum cut vocab_cut_of(enum param_role role);

#endif
