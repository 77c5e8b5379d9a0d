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
                       const struct tensor *resid, struct tensor *y, struct tensor *f)
{
    struct gemm g[PROJ_MAX] = {0};
    int32_t grains = act->col_grains > 1 ? act->col_grains / w->n : 1; /* when r is cut */

    for (int i = 0; i < w->n; i++)
        g[i] = (struct gemm){.y = y[i],
                             .a = member_cols(act, i, w->n, grains),
                             .b = w->b[i],
                             .kind = GEMM_NT,
                             .c = resid};
    return products_to(env, g, w->n, f);
}

enum status products_to(struct tp_env *env, const struct gemm *g, int n, struct tensor *f)
{
    FAIL_IF(f && n != 2, ST_EINTERNAL);
    return f ? op_gemm_swiglu_forward(env->dev, g, f, env->swiglu) : op_gemm(env->dev, g, n);
}

enum status product_back(struct tp_env *env, const struct gemm *g, const struct swiglu_grad *glu)
{
    return glu ? op_gemm_swiglu_backward(env->dev, g, glu, env->swiglu) : op_gemm(env->dev, g, 1);
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
