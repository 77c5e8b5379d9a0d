/* Ordinary tensor parallelism applied to low-rank layers, the baseline that BTP is measured
 * against. Each pair (A, B) is cut like a Megatron pair: A over its outputs (r), B over its inputs
 * (r), so that the sum over ranks falls on the wide side: 5 to 6 times the traffic.
 *
 * released  as BOOST's code has it: A grouped, B not; attention on all heads on every rank.
 * strong    reductions grouped; q, k and v reduce-scattered over heads, attention on H/p heads, its
 *           output gathered for A_o. The same volume in all, fewer calls, 1/p of the attention.
 */
#include "common/parallel/vocab.h"

static enum cut vanilla_cut(enum param_role role, int tied)
{
    (void)tied;
    if (role == ROLE_IN_A || role == ROLE_OUT_A)
        return CUT_ROWS;
    if (role == ROLE_IN_B || role == ROLE_OUT_B)
        return CUT_COLS;
    return vocab_cut_of(role);
}

static int heads_cut(const struct tp_env *env)
{
    return env->vanilla_form == VANILLA_FORM_STRONG;
}

/* q, k, v of the strong form travel scattered over heads. */
static int scatters(const struct tp_env *env, const struct proj *w)
{
    return env->tp->size > 1 && w->n == PROJ_MAX && heads_cut(env);
}

/* Begins y_i = act(z_i) B_i' + resid, a sum over ranks; each member [M, out] whole. */
static enum status reduce_up(struct tp_env *env, const struct proj *w, const struct proj_acts *a,
                             const struct proj_io *io, struct proj_flight *f)
{
    enum ledger_purpose purpose = forward_purpose(env, LEDGER_TP_FORWARD);
    int grouped = env->vanilla_form == VANILLA_FORM_STRONG;
    struct tensor *sum = f->sum;

    TRY(lowrank_act(env, &f->act, a, 1));
    if (env->tp->size == 1) { /* straight to y: each value is rounded once here as below */
        for (int i = 0; i < w->n; i++)
            sum[i] = tensor_grained(io->y[i], io->y[i].row_grains, 1);
        return lowrank_up(env, w, &f->act, io->resid, sum, NULL);
    }
    for (int i = 0; i < w->n; i++)
        TRY(scratch_tokens(env, &sum[i], env->payload, io->y[i].rows, w->b[i].rows, 1));
    TRY(lowrank_up(env, w, &f->act, NULL, sum, NULL)); /* partial */
    for (int i = 0; i < (grouped ? 1 : w->n); i++)
        TRY(reduce_begin(env, &sum[i], grouped ? w->n : 1, purpose));
    return ST_OK;
}

static enum status reduced(struct tp_env *env, const struct proj *w, const struct proj_io *io,
                           const struct proj_flight *f)
{
    if (env->tp->size == 1)
        return ST_OK;
    TRY(comm_wait(env->tp));
    if (!io->resid)
        return op_convert(env->dev, io->y, f->sum, w->n);
    for (int i = 0; i < w->n; i++)
        TRY(op_add(env->dev, &io->y[i], io->resid, &f->sum[i]));
    return ST_OK;
}

/* Begins this rank's heads of y_i: one reduce-scatter of [M, sum of outs] / p. */
static enum status scatter_up(struct tp_env *env, const struct proj *w, const struct proj_acts *a,
                              const struct proj_io *io, struct proj_flight *f)
{
    int64_t m = io->y_all->rows, begin = 0;
    struct tensor whole[PROJ_MAX], parts;

    for (int i = 0; i < w->n; i++)
        TRY(scratch_tokens(env, &whole[i], env->payload, m, w->b[i].rows, 1));
    TRY(lowrank_act(env, &f->act, a, 1));
    TRY(lowrank_up(env, w, &f->act, NULL, whole, NULL)); /* partial */
    TRY(scratch_tensor(env, &parts, env->payload, m * env->tp->size, io->y_all->cols));
    TRY(scratch_tokens(env, &f->sum[0], env->payload, m, io->y_all->cols, 1));
    for (int i = 0; i < w->n; begin += io->y[i].cols, i++) {
        struct tensor part = tensor_cols(&parts, begin, io->y[i].cols, 1);

        TRY(op_cols_split(env->dev, &part, &whole[i]));
    }
    return scatter_begin(env, &f->sum[0], &parts, forward_purpose(env, LEDGER_TP_FORWARD));
}

static enum status scattered(struct tp_env *env, const struct proj_io *io,
                             const struct proj_flight *f)
{
    TRY(comm_wait(env->tp));
    return op_convert(env->dev, io->y_all, &f->sum[0], 1);
}

/* z_i = h A_i' on this rank's part of r: no communication. */
static enum status down(struct tp_env *env, const struct proj *w, const struct tensor *h,
                        struct proj_acts *a)
{
    struct gemm g[PROJ_MAX] = {0};

    for (int i = 0; i < w->n; i++)
        g[i] = (struct gemm){
            .y = member_cols(&a->z, i, w->n, env->grains), .a = *h, .b = w->a[i], .kind = GEMM_NT};
    return op_gemm(env->dev, g, w->n); /* [M, r_l] each */
}

static enum status in_begin(struct tp_env *env, const struct proj *w, struct proj_acts *a,
                            const struct proj_io *io, struct proj_flight *f)
{
    struct tensor h;

    f->mark = arena_mark(env->scratch);
    TRY(normed_input(env, &h, a, io->x));
    TRY(op_rms_norm(env->dev, &h, &a->s, io->x, &w->gain, env->norm));
    TRY(down(env, w, &h, a));
    arena_release(env->scratch, f->mark);
    return scatters(env, w) ? scatter_up(env, w, a, io, f) : reduce_up(env, w, a, io, f);
}

static enum status in_end(struct tp_env *env, const struct proj *w, struct proj_acts *a,
                          const struct proj_io *io, struct proj_flight *f)
{
    (void)a;
    TRY(scatters(env, w) ? scattered(env, io, f) : reduced(env, w, io, f));
    arena_release(env->scratch, f->mark);
    /* Of sums, once there are several ranks: it does not go along with the products. */
    return io->f ? op_swiglu_forward(env->dev, io->f, &io->y[0], &io->y[1], env->swiglu) : ST_OK;
}

/* full [M, p c] = every rank's part [M, c], columns in rank order. */
static enum status gather_cols(struct tp_env *env, struct tensor *full, const struct tensor *part,
                               enum ledger_purpose purpose)
{
    struct tensor parts;

    TRY(scratch_tensor(env, &parts, part->dtype, part->rows * env->tp->size, part->cols));
    ledger_for(env->ledger, purpose);
    TRY(comm_all_gather(env->tp, &parts, part));
    return op_cols_join(env->dev, full, &parts);
}

/* The input of an out-projection, whole: A sums over all of it, however heads fall into grains. */
static struct tensor whole_input(const struct proj_acts *a, const struct tensor *x)
{
    struct tensor whole = a->xg.data ? a->xg : *x;

    whole.col_grains = 1;
    return whole;
}

static enum status out_begin(struct tp_env *env, const struct proj *w, struct proj_acts *a,
                             const struct proj_io *io, struct proj_flight *f)
{
    struct tensor x;

    f->mark = arena_mark(env->scratch);
    if (a->xg.data) /* the input lies scattered over heads */
        TRY(gather_cols(env, &a->xg, io->x, forward_purpose(env, LEDGER_TP_FORWARD)));
    arena_release(env->scratch, f->mark);
    x = whole_input(a, io->x);
    TRY(down(env, w, &x, a));
    return reduce_up(env, w, a, io, f);
}

static enum status out_end(struct tp_env *env, const struct proj *w, struct proj_acts *a,
                           const struct proj_io *io, struct proj_flight *f)
{
    (void)a;
    TRY(reduced(env, w, io, f));
    arena_release(env->scratch, f->mark);
    return ST_OK;
}

/* dz_i [M, r_l] from dy_i [M, out] whole; queues dB. u [M, n r_l]. */
static enum status up_backward(struct tp_env *env, const struct proj *w, struct proj *dw,
                               const struct proj_acts *a, const struct tensor *dy, struct tensor *u)
{
    struct gemm g[PROJ_MAX] = {0};
    struct tensor act;

    for (int i = 0; i < w->n; i++)
        g[i] = (struct gemm){
            .y = member_cols(u, i, w->n, env->grains), .a = dy[i], .b = w->b[i], .kind = GEMM_NN};
    for (int i = 0; i < w->n; i++)
        g[i].a.col_grains = 1; /* the sum runs over all outputs, which are whole here */
    TRY(op_gemm(env->dev, g, w->n));
    TRY(lowrank_act_again(env, &act, a));
    for (int i = 0; i < w->n; i++) {
        struct tensor act_i = member_cols(&act, i, w->n, env->grains);

        TRY(wgrad_push(&env->wgrad, &dw->b[i], &dy[i], &act_i)); /* [out, r_l] */
    }
    return op_latent_backward(env->dev, u, NULL, u, &a->z, NULL, env->lat);
}

/* y [M, in] = sum over members of u_i A_i, partial; queues dA. */
static enum status down_backward(struct tp_env *env, const struct proj *w, struct proj *dw,
                                 const struct tensor *u, const struct tensor *x, struct tensor *y)
{
    struct gemm g = {.y = *y, .b = w->a[0], .kind = GEMM_NN, .more = w->n - 1};

    g.a = member_cols(u, 0, w->n, env->grains);
    for (int i = 0; i < w->n; i++) {
        struct tensor u_i = member_cols(u, i, w->n, env->grains);

        if (i > 0)
            g.part[i - 1] = (struct gemm_part){.a = u_i, .b = w->a[i]};
        TRY(wgrad_push(&env->wgrad, &dw->a[i], &u_i, x)); /* [r_l, in] */
    }
    return op_gemm(env->dev, &g, 1);
}

/* dy_i [M, out] whole: as given, or gathered from this rank's heads. */
static enum status whole_gradients(struct tp_env *env, const struct proj *w,
                                   const struct proj_grad_io *io, struct tensor *dy)
{
    int64_t m = io->dy_all->rows, begin = 0;
    struct tensor parts;

    for (int i = 0; i < w->n; i++)
        dy[i] = io->dy[i];
    if (!scatters(env, w))
        return ST_OK;
    TRY(scratch_tensor(env, &parts, env->act, m * env->tp->size, io->dy_all->cols));
    ledger_for(env->ledger, LEDGER_TP_BACKWARD);
    TRY(comm_all_gather(env->tp, &parts, io->dy_all));
    for (int i = 0; i < w->n; begin += io->dy[i].cols, i++) {
        struct tensor part = tensor_cols(&parts, begin, io->dy[i].cols, 1);

        TRY(scratch_tokens(env, &dy[i], env->act, m, w->b[i].rows, 1));
        TRY(op_cols_join(env->dev, &dy[i], &part));
    }
    return ST_OK;
}

static enum status in_backward(struct tp_env *env, const struct proj *w, struct proj *dw,
                               const struct proj_acts *a, const struct proj_grad_io *io)
{
    size_t mark = arena_mark(env->scratch);
    int64_t m = io->x->rows, d = io->x->cols;
    struct tensor dy[PROJ_MAX], u, h, t, sum;
    struct rms_grad g;

    TRY(whole_gradients(env, w, io, dy));
    TRY(scratch_tokens(env, &u, env->act, m, a->z.cols, a->z.col_grains));
    TRY(normed_input(env, &h, a, io->x));
    TRY(scratch_tokens(env, &sum, env->payload, m, d, 1));
    TRY(up_backward(env, w, dw, a, dy, &u));
    if (!a->h.data)
        TRY(op_rms_apply(env->dev, &h, io->x, &w->gain, &a->s, env->norm)); /* redo h */
    TRY(down_backward(env, w, dw, &u, &h, &sum));
    TRY(reduce_begin(env, &sum, 1, LEDGER_TP_BACKWARD)); /* [M, d] */
    TRY(wgrad_run(&env->wgrad, env->dev, env->plan));
    TRY(comm_wait(env->tp));
    TRY(to_act(env, &t, &sum));
    g = (struct rms_grad){.dx = *io->dx, .dgain = dw->gain, .t = t, .x = *io->x, .gain = w->gain};
    TRY(op_rms_norm_backward(env->dev, &g, &a->s, env->norm, env->plan));
    arena_release(env->scratch, mark);
    return ST_OK;
}

/* dx from its partial sums [M, in]: an all-reduce, or a reduce-scatter where the input was
 * gathered; queued weight gradients run meanwhile. */
static enum status input_gradient(struct tp_env *env, struct tensor *dx, struct tensor *sum,
                                  int scattered)
{
    struct tensor parts, mine = *sum;

    if (scattered) {
        TRY(scratch_tensor(env, &parts, sum->dtype, sum->rows * env->tp->size, dx->cols));
        TRY(scratch_tokens(env, &mine, sum->dtype, sum->rows, dx->cols, 1));
        TRY(op_cols_split(env->dev, &parts, sum));
        TRY(scatter_begin(env, &mine, &parts, LEDGER_TP_BACKWARD));
    } else {
        TRY(reduce_begin(env, sum, 1, LEDGER_TP_BACKWARD));
    }
    TRY(wgrad_run(&env->wgrad, env->dev, env->plan));
    TRY(comm_wait(env->tp));
    return op_convert(env->dev, dx, &mine, 1);
}

static enum status out_backward(struct tp_env *env, const struct proj *w, struct proj *dw,
                                const struct proj_acts *a, const struct proj_grad_io *io)
{
    size_t mark = arena_mark(env->scratch);
    struct tensor x = whole_input(a, io->x), u, sum;

    TRY(scratch_tokens(env, &u, env->act, x.rows, a->z.cols, a->z.col_grains));
    TRY(scratch_tokens(env, &sum, env->payload, x.rows, w->a[0].cols, 1));
    TRY(up_backward(env, w, dw, a, io->dy, &u));
    TRY(down_backward(env, w, dw, &u, &x, &sum)); /* partial */
    TRY(input_gradient(env, io->dx, &sum, a->xg.data != NULL));
    arena_release(env->scratch, mark);
    return io->glu ? op_swiglu_backward(env->dev, io->glu, env->swiglu) : ST_OK;
}

const struct tp_strategy vanilla_strategy = {
    .name = "vanilla",
    .low_rank = 1,
    .stream_cut = 0,
    .cut = vanilla_cut,
    .heads_cut = heads_cut,
    .ffn_cut = 0,
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
