/* Both ends of the model under BTP, where the stream is cut over its width.
 *
 * Untied, the embedding is cut over the width as well and needs no communication; the head is cut
 * over the vocabulary and reads the whole stream, which is gathered for it.
 */
#include "common/parallel/btp_ends.h"

/* Untied: each rank looks up its own columns. Tied (cut over V): look-up, then a reduce-scatter
 * with one addend that is not zero. */
enum status btp_embed_forward(struct tp_env *env, const struct ends *w, struct tensor *x,
                              const struct tensor *tokens)
{
    size_t mark = arena_mark(env->scratch);
    int64_t m = tokens->rows;
    int p = env->tp->size;
    struct tensor full, parts;

    if (!w->tied || p == 1)
        return op_embed_forward(env->dev, x, &w->embed, tokens, 0);
    TRY(scratch_tokens(env, &full, env->act, m, w->embed.cols, 1));
    TRY(scratch_tensor(env, &parts, env->act, m * p, x->cols));
    TRY(op_embed_forward(env->dev, &full, &w->embed, tokens, env->tp->rank * w->embed.rows));
    TRY(op_cols_split(env->dev, &parts, &full));
    ledger_for(env->ledger, LEDGER_EMBED);
    TRY(comm_reduce_scatter(env->tp, x, &parts));
    arena_release(env->scratch, mark);
    return ST_OK;
}

enum status btp_embed_backward(struct tp_env *env, struct ends *dw, const struct tensor *dx,
                               const struct tensor *tokens)
{
    size_t mark = arena_mark(env->scratch);
    int64_t m = tokens->rows;
    int p = env->tp->size;
    struct tensor full, parts;

    if (!dw->tied || p == 1)
        return op_embed_backward(env->dev, &dw->embed, dx, tokens, 0, env->plan);
    TRY(scratch_tokens(env, &full, env->act, m, dw->embed.cols, 1));
    TRY(scratch_tensor(env, &parts, env->act, m * p, dx->cols));
    ledger_for(env->ledger, LEDGER_EMBED);
    TRY(comm_all_gather(env->tp, &parts, dx));
    TRY(op_cols_join(env->dev, &full, &parts));
    TRY(op_embed_backward(env->dev, &dw->embed, &full, tokens, env->tp->rank * dw->embed.rows,
                          env->plan));
    arena_release(env->scratch, mark);
    return ST_OK;
}

/* h [M, d] on every rank: norm of the shard with the whole statistic s, then an all-gather. */
enum status btp_head_input(struct tp_env *env, const struct ends *w, const struct tensor *x,
                           struct tensor *h, struct tensor *s)
{
    int64_t m = x->rows;
    int p = env->tp->size;
    struct tensor h_l, parts;

    if (p == 1)
        return op_rms_norm(env->dev, h, s, x, &w->gain, env->norm);
    TRY(scratch_tokens(env, &h_l, env->act, m, x->cols, env->grains));
    TRY(scratch_tensor(env, &parts, env->act, m * p, x->cols));
    TRY(op_rms_stat(env->dev, s, x));
    TRY(reduce_begin(env, s, 1, LEDGER_HEAD));
    TRY(comm_wait(env->tp));
    TRY(op_rms_apply(env->dev, &h_l, x, &w->gain, s, env->norm));
    TRY(comm_all_gather(env->tp, &parts, &h_l));
    return op_cols_join(env->dev, h, &parts);
}

/* dx = gradient through the final norm, from dh [M, d], this rank's partial sum: reduce-scatter,
 * then one number a token for the norm. The queued weight gradient runs under the first. */
enum status btp_head_input_backward(struct tp_env *env, const struct ends *w, struct ends *dw,
                                    const struct head_io *io, struct tensor *dh,
                                    const struct tensor *s)
{
    int64_t m = dh->rows;
    struct tensor parts, sum = *dh, t, c, coef;
    struct rms_grad g;

    if (env->tp->size > 1) {
        TRY(scratch_tensor(env, &parts, dh->dtype, m * env->tp->size, io->x->cols));
        TRY(scratch_tokens(env, &sum, dh->dtype, m, io->x->cols, 1));
        TRY(op_cols_split(env->dev, &parts, dh));
        TRY(scatter_begin(env, &sum, &parts, LEDGER_HEAD));
    }
    TRY(wgrad_run(&env->wgrad, env->dev, env->plan));
    TRY(comm_wait(env->tp));
    sum.col_grains = env->grains;
    TRY(to_act(env, &t, &sum));
    TRY(scratch_tokens(env, &c, env->dev->wide, m, 1, 1));
    TRY(scratch_tokens(env, &coef, env->dev->wide, m, 2, 1));
    TRY(op_rms_dot(env->dev, &c, &t, io->x, &w->gain));
    TRY(reduce_begin(env, &c, 1, LEDGER_HEAD));
    TRY(comm_wait(env->tp));
    TRY(op_rms_coef(env->dev, &coef, &c, s, env->norm));
    g = (struct rms_grad){.dx = *io->dx, .dgain = dw->gain, .t = t, .x = *io->x, .gain = w->gain};
    return op_rms_backward(env->dev, &g, &coef, env->plan);
}
