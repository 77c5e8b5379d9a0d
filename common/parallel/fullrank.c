/* Megatron's tensor parallelism for full-rank layers, the baseline.
 *
 * The stream is whole on every rank. W of an in-projection is cut over its outputs, W of an
 * out-projection over its inputs: one all-reduce of [M, d] for each half of the block, forward
 * (after out) and backward (before the norm).
 */
#include "common/parallel/vocab.h"

static enum cut fullrank_cut(enum param_role role, int tied)
{
    (void)tied;
    if (role == ROLE_IN_B)
        return CUT_ROWS;
    if (role == ROLE_OUT_B)
        return CUT_COLS;
    return vocab_cut_of(role);
}

static int always(const struct tp_env *env)
{
    (void)env;
    return 1;
}

/* Sends nothing: the end has nothing to do. */
static enum status in_begin(struct tp_env *env, const struct proj *w, struct proj_acts *a,
                            const struct proj_io *io, struct proj_flight *f)
{
    size_t mark = arena_mark(env->scratch);
    struct gemm g[PROJ_MAX] = {0};
    struct tensor h;

    (void)f;
    TRY(normed_input(env, &h, a, io->x));
    TRY(op_rms_norm(env->dev, &h, &a->s, io->x, &w->gain, env->norm));
    for (int i = 0; i < w->n; i++)
        g[i] = (struct gemm){.y = io->y[i], .a = h, .b = w->b[i], .kind = GEMM_NT};
    TRY(products_to(env, g, w->n, io->f)); /* y_i [M, out_l] */
    arena_release(env->scratch, mark);
    return ST_OK;
}

static enum status in_end(struct tp_env *env, const struct proj *w, struct proj_acts *a,
                          const struct proj_io *io, struct proj_flight *f)
{
    (void)env, (void)w, (void)a, (void)io, (void)f;
    return ST_OK;
}

/* t = sum over members of dy_i W_i, partial; dW_i joins dy_i' h while it travels, and before them
 * what out_backward queued. */
static enum status in_backward(struct tp_env *env, const struct proj *w, struct proj *dw,
                               const struct proj_acts *a, const struct proj_grad_io *io)
{
    size_t mark = arena_mark(env->scratch);
    int64_t m = io->x->rows, d = io->x->cols;
    struct gemm g = {.a = io->dy[0], .b = w->b[0], .kind = GEMM_NN, .more = w->n - 1};
    struct tensor h, t, sum;
    struct rms_grad rg;

    TRY(normed_input(env, &h, a, io->x));
    TRY(scratch_tokens(env, &sum, env->payload, m, d, 1));
    g.y = sum;
    for (int i = 1; i < w->n; i++)
        g.part[i - 1] = (struct gemm_part){.a = io->dy[i], .b = w->b[i]};
    TRY(op_gemm(env->dev, &g, 1));
    TRY(reduce_begin(env, &sum, 1, LEDGER_TP_BACKWARD)); /* [M, d] */
    if (!a->h.data)
        TRY(op_rms_apply(env->dev, &h, io->x, &w->gain, &a->s, env->norm)); /* redo h */
    for (int i = 0; i < w->n; i++)
        TRY(wgrad_push(&env->wgrad, &dw->b[i], &io->dy[i], &h));
    TRY(wgrad_run(&env->wgrad, env->dev, env->plan));
    TRY(comm_wait(env->tp));
    TRY(to_act(env, &t, &sum));
    rg = (struct rms_grad){.dx = *io->dx, .dgain = dw->gain, .t = t, .x = *io->x, .gain = w->gain};
    TRY(op_rms_norm_backward(env->dev, &rg, &a->s, env->norm, env->plan));
    arena_release(env->scratch, mark);
    return ST_OK;
}

/* One rank: the residual joins in the product. Same bits as below: both add once, round once. */
static enum status out_forward_alone(struct tp_env *env, const struct proj *w,
                                     const struct proj_io *io)
{
    struct gemm g = {.y = *io->y, .a = *io->x, .b = w->b[0], .kind = GEMM_NT, .c = io->resid};

    return op_gemm(env->dev, &g, 1);
}

static enum status out_begin(struct tp_env *env, const struct proj *w, struct proj_acts *a,
                             const struct proj_io *io, struct proj_flight *f)
{
    struct tensor *sum = &f->sum[0];
    struct gemm g = {.a = *io->x, .b = w->b[0], .kind = GEMM_NT};

    (void)a;
    f->mark = arena_mark(env->scratch);
    if (env->tp->size == 1)
        return out_forward_alone(env, w, io);
    TRY(scratch_tokens(env, sum, env->payload, io->y->rows, io->y->cols, 1));
    g.y = *sum;
    TRY(op_gemm(env->dev, &g, 1)); /* [M, d], partial */
    return reduce_begin(env, sum, 1, forward_purpose(env, LEDGER_TP_FORWARD));
}

static enum status out_end(struct tp_env *env, const struct proj *w, struct proj_acts *a,
                           const struct proj_io *io, struct proj_flight *f)
{
    (void)w, (void)a;
    if (env->tp->size == 1)
        return ST_OK;
    TRY(comm_wait(env->tp));
    TRY(op_add(env->dev, io->y, io->resid, &f->sum[0]));
    arena_release(env->scratch, f->mark);
    return ST_OK;
}

static enum status out_backward(struct tp_env *env, const struct proj *w, struct proj *dw,
                                const struct proj_acts *a, const struct proj_grad_io *io)
{
    struct gemm g = {.y = *io->dx, .a = *io->dy, .b = w->b[0], .kind = GEMM_NN};

    (void)a;
    TRY(product_back(env, &g, io->glu));                      /* [M, in_l] */
    return wgrad_push(&env->wgrad, &dw->b[0], io->dy, io->x); /* [d, in_l] */
}

const struct tp_strategy fullrank_strategy = {
    .name = "full",
    .low_rank = 0,
    .stream_cut = 0,
    .cut = fullrank_cut,
    .heads_cut = always,
    .ffn_cut = 1,
    .in_begin = in_begin,
    .in_end = in_end,
    .in_backward = in_backward,
    .out_begin = out_begin,
    .out_end = out_end,
    .out_backward = out_backward,
    .embed_forward = vocab_embed_forward,
    .embed_backward = vocab_embed_backward,
    .head_input = vocab_head_input,
    .head_input_backward = vocab_head_input_backward,
};
