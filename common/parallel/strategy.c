/* What the strategies share. */
#include "common/parallel/strategy.h"

enum status scratch_tensor(struct tp_env *env, struct tensor *t, enum dtype dt, int64_t rows,
                           int64_t cols)
{
    void *p;

    TRY(arena_take(env->scratch, &p, (size_t)(rows * cols) * dtype_size(dt)));
    *t = tensor_view(p, dt, rows, cols);
    return ST_OK;
}

enum status scratch_tokens(struct tp_env *env, struct tensor *t, enum dtype dt, int64_t rows,
                           int64_t cols, int32_t col_grains)
{
    TRY(scratch_tensor(env, t, dt, rows, cols));
    *t = tensor_grained(*t, env->samples, col_grains);
    return ST_OK;
}

enum ledger_purpose forward_purpose(const struct tp_env *env, enum ledger_purpose p)
{
    return env->recomputing ? LEDGER_TP_RECOMPUTE : p;
}

enum status reduce_begin(struct tp_env *env, struct tensor *t, int n, enum ledger_purpose p)
{
    ledger_for(env->ledger, p);
    TRY(comm_all_reduce_begin(env->tp, t, n));
    return env->exposed ? comm_wait(env->tp) : ST_OK;
}

enum status scatter_begin(struct tp_env *env, struct tensor *out, const struct tensor *in,
                          enum ledger_purpose p)
{
    ledger_for(env->ledger, p);
    TRY(comm_reduce_scatter_begin(env->tp, out, in));
    return env->exposed ? comm_wait(env->tp) : ST_OK;
}

struct tensor member_cols(const struct tensor *t, int i, int n, int32_t grains)
{
    return tensor_cols(t, i * (t->cols / n), t->cols / n, grains);
}

enum status lowrank_act(struct tp_env *env, struct tensor *act, const struct proj_acts *a, int fill)
{
    const struct tensor *z = &a->z;

    *act = *z;
    if (env->lat.act == ACT_NONE)
        return ST_OK;
    if (a->act.data)
        *act = a->act;
    else
        TRY(scratch_tokens(env, act, z->dtype, z->rows, z->cols, z->col_grains));
    return fill ? op_latent_act(env->dev, act, z, env->lat) : ST_OK;
}

enum status lowrank_act_again(struct tp_env *env, struct tensor *act, const struct proj_acts *a)
{
    return lowrank_act(env, act, a, !a->act.data);
}

enum status normed_input(struct tp_env *env, struct tensor *h, const struct proj_acts *a,
                         const struct tensor *x)
{
    int32_t grains = x->col_grains;

    *h = a->h;
    return a->h.data ? ST_OK : scratch_tokens(env, h, env->act, x->rows, x->cols, grains);
}

enum status lowrank_up(struct tp_env *env, const struct proj *w, const struct tensor *act,
                       const struct tensor *resid, struct tensor *y)
{
    struct gemm g[PROJ_MAX] = {0};
    int32_t grains = act->col_grains > 1 ? act->col_grains / w->n : 1; /* when r is cut */

    for (int i = 0; i < w->n; i++)
        g[i] = (struct gemm){.y = y[i],
                             .a = member_cols(act, i, w->n, grains),
                             .b = w->b[i],
                             .kind = GEMM_NT,
                             .c = resid};
    return op_gemm(env->dev, g, w->n);
}

enum status to_act(struct tp_env *env, struct tensor *t, const struct tensor *payload)
{
    if (payload->dtype == env->act) {
        *t = *payload;
        return ST_OK;
    }
    TRY(scratch_tokens(env, t, env->act, payload->rows, payload->cols, payload->col_grains));
    return op_convert(env->dev, t, payload, 1);
}

/* Logits, their statistics on this rank, and those of all ranks: st_all [p M, 3]. */
static enum status logits_stats(struct tp_env *env, const struct ends *w, const struct tensor *h,
                                const struct tensor *targets, struct tensor *logits,
                                struct tensor *st_all)
{
    struct vocab_cut cut = {.first = env->tp->rank * w->head.rows, .valid = w->vocab};
    struct gemm g = {.y = *logits, .a = *h, .b = w->head, .kind = GEMM_NT};
    struct tensor st;

    g.a.col_grains = 1; /* the width is whole here: the sum over it is not cut */
    g.b.col_grains = 1;
    TRY(op_gemm(env->dev, &g, 1)); /* [M, V_l] */
    if (env->tp->size == 1)
        return op_ce_stats(env->dev, st_all, logits, targets, cut);
    TRY(scratch_tokens(env, &st, env->dev->wide, h->rows, 3, 1));
    TRY(op_ce_stats(env->dev, &st, logits, targets, cut)); /* [M, 3] */
    ledger_for(env->ledger, LEDGER_HEAD);
    return comm_all_gather(env->tp, st_all, &st); /* [p M, 3] */
}

enum status head_loss(struct tp_env *env, const struct ends *w, struct ends *dw,
                      const struct tensor *h, const struct head_io *io, struct tensor *dh)
{
    int64_t m = h->rows, v_l = w->head.rows;
    struct vocab_cut cut = {.first = env->tp->rank * v_l, .valid = w->vocab};
    struct tensor logits, st_all;
    struct gemm g;

    TRY(scratch_tokens(env, &logits, env->act, m, v_l, w->head.row_grains));
    TRY(scratch_tensor(env, &st_all, env->dev->wide, m * env->tp->size, 3));
    TRY(logits_stats(env, w, h, io->targets, &logits, &st_all));
    TRY(op_ce_grad(env->dev, io->loss, &logits, &st_all, io->targets, cut, io->scale));
    if (io->scale != 0.0) { /* logits are now their gradient */
        g = (struct gemm){.y = *dh, .a = logits, .b = w->head, .kind = GEMM_NN};
        g.y.col_grains = g.b.col_grains = 1;
        TRY(op_gemm(env->dev, &g, 1));                       /* [M, d], partial: V is cut */
        TRY(wgrad_push(&env->wgrad, &dw->head, &logits, h)); /* [V_l, d] */
    }
    return ST_OK;
}
