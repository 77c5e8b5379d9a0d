/* Both ends of the model where the stream is whole on every rank (full and vanilla): embedding
 * and head are cut over the vocabulary. */
#include "common/parallel/vocab.h"

/* Each rank looks up the rows it has; the sum has one addend that is not zero. */
enum status vocab_embed_forward(struct tp_env *env, const struct ends *w, struct tensor *x,
                                const struct tensor *tokens)
{
    TRY(op_embed_forward(env->dev, x, &w->embed, tokens, env->tp->rank * w->embed.rows));
    TRY(reduce_begin(env, x, 1, LEDGER_EMBED));
    return comm_wait(env->tp);
}

enum status vocab_embed_backward(struct tp_env *env, struct ends *dw, const struct tensor *dx,
                                 const struct tensor *tokens)
{
    return op_embed_backward(env->dev, &dw->embed, dx, tokens, env->tp->rank * dw->embed.rows,
                             env->plan);
}

enum status vocab_head_input(struct tp_env *env, const struct ends *w, const struct tensor *x,
                             struct tensor *h, struct tensor *s)
{
    return op_rms_norm(env->dev, h, s, x, &w->gain, env->norm);
}

enum status vocab_head_input_backward(struct tp_env *env, const struct ends *w, struct ends *dw,
                                      const struct head_io *io, struct tensor *dh,
                                      const struct tensor *s)
{
    struct rms_grad g;
    struct tensor t;

    TRY(reduce_begin(env, dh, 1, LEDGER_HEAD));
    TRY(wgrad_run(&env->wgrad, env->dev, env->plan));
    TRY(comm_wait(env->tp));
    TRY(to_act(env, &t, dh));
    g = (struct rms_grad){.dx = *io->dx, .dgain = dw->gain, .t = t, .x = *io->x, .gain = w->gain};
    return op_rms_norm_backward(env->dev, &g, s, env->norm, env->plan);
}

enum cut vocab_cut_of(enum param_role role)
{
    return role == ROLE_GAIN ? CUT_NONE : CUT_ROWS;
}
