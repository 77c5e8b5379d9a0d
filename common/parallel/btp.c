/* Bottleneck-aware tensor parallelism (BOOST, arXiv 2512.12131).
 *
 * The residual stream is cut along the model width: each rank holds x_l [M, d_l]. A projection
 * y = B act(A x) is cut so that the sum over ranks falls on the narrow bottleneck, never on the
 * wide stream:
 *
 *     x_l [M, d_l] --A_l--> partial z [M, n r] ==all-reduce==> z [M, n r]
 *     z --act, B_l--> y_l [M, out_l]                           (no communication)
 *
 * The n projections that read one input (q, k, v; gate, up) are grouped: one message.
 *
 * Online-RMSNorm rides in that message: with h = x * gain and s = sum of x^2, both this rank's
 * part, z = (sum over ranks of h A') / rms(sum over ranks of s). Backward has one all-reduce too,
 * of the latents' gradient; the norm's own gradient needs only <dz, z>, which every rank knows.
 */
#include "common/backend/planted.h"
#include "common/parallel/btp_ends.h"

#include <string.h>

static enum cut btp_cut(enum param_role role, int tied)
{
    switch (role) {
    case ROLE_EMBED:
        return tied ? CUT_ROWS : CUT_COLS;
    case ROLE_HEAD:
    case ROLE_IN_B:
    case ROLE_OUT_B:
        return CUT_ROWS;
    default: /* gains, and A of both kinds */
        return CUT_COLS;
    }
}

static int always(const struct tp_env *env)
{
    (void)env;
    return 1;
}

/* Begins the sum over ranks of the n members of z and, when s is given, of s: one message with
 * grouping, else one a member, s in the first. z_i are packed slices of their own then. */
static enum status reduce_latents(struct tp_env *env, struct tensor *z, int n, struct tensor *s,
                                  enum ledger_purpose purpose)
{
    struct tensor group[2];
    int calls = env->grouping ? 1 : n;

    for (int i = 0; i < calls; i++) {
        int members = 1;

        group[0] = z[i];
        if (s && i == 0)
            group[members++] = *s;
        TRY(reduce_begin(env, group, members, purpose));
    }
    return ST_OK;
}

/* Latents on their way: with grouping one tensor [M, n r], which is `final` itself where types
 * allow, else n packed ones [M, r]. */
static enum status latent_buffers(struct tp_env *env, struct tensor *z, int n,
                                  const struct tensor *final)
{
    z[0] = *final;
    if (env->grouping && env->payload == final->dtype)
        return ST_OK;
    if (env->grouping)
        return scratch_tokens(env, &z[0], env->payload, final->rows, final->cols, 1);
    for (int i = 0; i < n; i++)
        TRY(scratch_tokens(env, &z[i], env->payload, final->rows, final->cols / n, 1));
    return ST_OK;
}

/* Member i of such buffers. */
static struct tensor latent_member(const struct tp_env *env, const struct tensor *z, int i, int n)
{
    return env->grouping ? member_cols(&z[0], i, n, 1) : z[i];
}

/* This rank's normalised input and statistic: h [M, d_l], s [M, 1], and for the local form l. */
static enum status norm_input(struct tp_env *env, const struct proj *w, const struct tensor *x,
                              struct tensor *h, struct tensor *s, struct tensor *l)
{
    if (env->norm_form != NORM_FORM_SYNC)
        return op_rms_partial(env->dev, h, s, l, x, &w->gain, env->norm);
    TRY(op_rms_stat(env->dev, s, x));
    TRY(reduce_begin(env, s, 1, forward_purpose(env, LEDGER_NORM_FORWARD)));
    TRY(comm_wait(env->tp));
    return op_rms_apply(env->dev, h, x, &w->gain, s, env->norm);
}

/* z and act from the arrived sum; nothing is written that stands there already. */
static enum status finish_latents(struct tp_env *env, struct tensor *z, struct tensor *act,
                                  const struct tensor *zsum, const struct tensor *s)
{
    struct tensor *other = act->data == z->data ? NULL : act;

    if (s || zsum->data != z->data)
        return op_latent_forward(env->dev, z, other, zsum, s, env->lat);
    return other ? op_latent_act(env->dev, act, z, env->lat) : ST_OK;
}

/* Begins z = sum over ranks of x A', with f->s, if there is one, in the first message.
 * x [M, in_l]. */
static enum status down_begin(struct tp_env *env, const struct proj *w, const struct tensor *x,
                              struct proj_acts *a, struct proj_flight *f)
{
    const struct tensor *own = f->local.data ? &f->local : NULL;
    struct gemm g[PROJ_MAX] = {0};

    TRY(latent_buffers(env, f->sum, w->n, &a->z));
    for (int i = 0; i < w->n; i++)
        g[i] = (struct gemm){.y = latent_member(env, f->sum, i, w->n),
                             .a = *x,
                             .b = w->a[i],
                             .kind = GEMM_NT,
                             .k_scale = PLANTED(PLANTED_OWN_SCALE) ? NULL : own};
    TRY(op_gemm(env->dev, g, w->n)); /* partial */
    return reduce_latents(env, f->sum, w->n,
                          f->s.data && !PLANTED(PLANTED_SHARD_NORM) ? &f->s : NULL,
                          forward_purpose(env, LEDGER_TP_FORWARD));
}

/* Ends it: z scaled by 1/rms(s) when there is a statistic, and act(z). */
static enum status down_end(struct tp_env *env, const struct proj *w, struct proj_acts *a,
                            struct proj_flight *f)
{
    struct tensor *s = f->s.data ? &f->s : NULL;

    TRY(comm_wait(env->tp));
    if (PLANTED(PLANTED_SHARD_NORM) && s)
        TRY(planted_scale(env->dev, s, 0, env->tp->size, NULL));
    if (PLANTED(PLANTED_OWN_SCALE) && f->local.data)
        TRY(planted_scale(env->dev, &f->sum[0], 0, 1.0, &f->local));
    for (int i = 0; i < (env->grouping ? 1 : w->n); i++) {
        struct tensor z = env->grouping ? a->z : member_cols(&a->z, i, w->n, 1);
        struct tensor o = env->grouping ? f->act : member_cols(&f->act, i, w->n, 1);

        TRY(finish_latents(env, &z, &o, &f->sum[i], s)); /* [M, n r] */
    }
    return ST_OK;
}

/* Norm, A, one message. */
static enum status norm_down_begin(struct tp_env *env, const struct proj *w, const struct tensor *x,
                                   struct proj_acts *a, struct proj_flight *f)
{
    struct tensor h, *local = env->norm_form == NORM_FORM_LOCAL ? &f->local : NULL;

    if (env->norm_form != NORM_FORM_SYNC)
        f->s = a->s;
    TRY(normed_input(env, &h, a, x));
    if (local)
        TRY(scratch_tokens(env, local, env->dev->wide, x->rows, env->grains, 1));
    TRY(norm_input(env, w, x, &h, &a->s, local));
    return down_begin(env, w, &h, a, f);
}

/* Nothing is sent when z was kept: neither A nor the message is needed. */
static enum status in_begin(struct tp_env *env, const struct proj *w, struct proj_acts *a,
                            const struct proj_io *io, struct proj_flight *f)
{
    *f = (struct proj_flight){.mark = arena_mark(env->scratch)};
    TRY(lowrank_act(env, &f->act, a, a->z_known));
    return a->z_known ? ST_OK : norm_down_begin(env, w, io->x, a, f);
}

static enum status in_end(struct tp_env *env, const struct proj *w, struct proj_acts *a,
                          const struct proj_io *io, struct proj_flight *f)
{
    if (!a->z_known)
        TRY(down_end(env, w, a, f));
    TRY(lowrank_up(env, w, &f->act, NULL, io->y, io->f)); /* y_i [M, out_l] */
    arena_release(env->scratch, f->mark);
    return ST_OK;
}

static enum status out_begin(struct tp_env *env, const struct proj *w, struct proj_acts *a,
                             const struct proj_io *io, struct proj_flight *f)
{
    *f = (struct proj_flight){.mark = arena_mark(env->scratch)};
    TRY(lowrank_act(env, &f->act, a, a->z_known));
    return a->z_known ? ST_OK : down_begin(env, w, io->x, a, f);
}

static enum status out_end(struct tp_env *env, const struct proj *w, struct proj_acts *a,
                           const struct proj_io *io, struct proj_flight *f)
{
    if (!a->z_known)
        TRY(down_end(env, w, a, f));
    TRY(lowrank_up(env, w, &f->act, io->resid, io->y, NULL)); /* [M, d_l] */
    arena_release(env->scratch, f->mark);
    return ST_OK;
}

/* u = gradient of the latents' sum, from dy; coef as op_latent_backward says (NULL without a
 * statistic). Queues dB; whatever is queued runs while the message flies. u [M, n r]. */
static enum status up_backward(struct tp_env *env, const struct proj *w, struct proj *dw,
                               const struct proj_acts *a, const struct tensor *dy, struct tensor *u,
                               struct tensor *coef)
{
    struct tensor da[PROJ_MAX], members[PROJ_MAX], act;
    struct gemm g[PROJ_MAX] = {0};

    TRY(latent_buffers(env, da, w->n, u));
    for (int i = 0; i < w->n; i++)
        g[i] = (struct gemm){
            .y = latent_member(env, da, i, w->n), .a = dy[i], .b = w->b[i], .kind = GEMM_NN};
    TRY(op_gemm(env->dev, g, w->n)); /* partial */
    TRY(reduce_latents(env, da, w->n, NULL, LEDGER_TP_BACKWARD));
    TRY(lowrank_act_again(env, &act, a));
    for (int i = 0; i < w->n; i++) {
        struct tensor act_i = member_cols(&act, i, w->n, 1);

        TRY(wgrad_push(&env->wgrad, &dw->b[i], &dy[i], &act_i)); /* [out_l, r] */
    }
    TRY(wgrad_run(&env->wgrad, env->dev, env->plan));
    TRY(comm_wait(env->tp));
    for (int i = 0; !env->grouping && i < w->n; i++)
        members[i] = member_cols(u, i, w->n, 1);
    if (!env->grouping) /* <dz, z> runs over the whole group: gather the members first */
        TRY(op_convert(env->dev, members, da, w->n));
    return op_latent_backward(env->dev, u, coef, env->grouping ? &da[0] : u, &a->z,
                              coef ? &a->s : NULL, env->lat);
}

/* y [M, in_l] = sum over members of u_i A_i (and what io's glu wants of it), and dA_i joins u_i' x:
 * soon, or, with io's room, which lets it be late, with the block's last message. */
static enum status down_backward(struct tp_env *env, const struct proj *w, struct proj *dw,
                                 const struct proj_grad_io *io, const struct tensor *u,
                                 const struct tensor *x, struct tensor *y)
{
    struct gemm g = {.y = *y, .b = w->a[0], .kind = GEMM_NN, .more = w->n - 1};

    g.a = member_cols(u, 0, w->n, 1);
    for (int i = 0; i < w->n; i++) {
        struct tensor u_i = member_cols(u, i, w->n, 1);

        if (i > 0)
            g.part[i - 1] = (struct gemm_part){.a = u_i, .b = w->a[i]};
        TRY((io->room ? wgrad_hold : wgrad_push)(&env->wgrad, &dw->a[i], &u_i, x)); /* [r, in_l] */
    }
    return product_back(env, &g, io->glu);
}

/* The sync form's coefficients: c = sum over ranks of t gain x; one more message. dA runs
 * meanwhile. */
static enum status sync_coef(struct tp_env *env, const struct proj *w, const struct proj_acts *a,
                             const struct tensor *t, const struct tensor *x, struct tensor *coef)
{
    struct tensor c;

    TRY(scratch_tokens(env, &c, env->dev->wide, x->rows, 1, 1));
    TRY(op_rms_dot(env->dev, &c, t, x, &w->gain));
    TRY(reduce_begin(env, &c, 1, LEDGER_NORM_BACKWARD));
    TRY(wgrad_run(&env->wgrad, env->dev, env->plan));
    TRY(comm_wait(env->tp));
    return op_rms_coef(env->dev, coef, &c, &a->s, env->norm);
}

/* From u back through A and the norm; adds to dx. coef: of the online forms, already known. */
static enum status norm_down_backward(struct tp_env *env, const struct proj *w, struct proj *dw,
                                      const struct proj_acts *a, const struct proj_grad_io *io,
                                      const struct tensor *u, struct tensor *coef)
{
    int64_t m = io->x->rows, d_l = io->x->cols;
    struct tensor h, t, s_l;
    struct rms_grad g;

    TRY(normed_input(env, &h, a, io->x));
    TRY(scratch_tokens(env, &t, env->act, m, d_l, env->grains));
    TRY(scratch_tokens(env, &s_l, env->dev->wide, m, 1, 1));
    if (!a->h.data && env->norm_form == NORM_FORM_SYNC) /* redo h */
        TRY(op_rms_apply(env->dev, &h, io->x, &w->gain, &a->s, env->norm));
    else if (!a->h.data)
        TRY(op_rms_partial(env->dev, &h, &s_l, NULL, io->x, &w->gain, env->norm));
    TRY(down_backward(env, w, dw, io, u, &h, &t)); /* t [M, d_l] */
    if (env->norm_form == NORM_FORM_SYNC)
        TRY(sync_coef(env, w, a, &t, io->x, coef));
    g = (struct rms_grad){.dx = *io->dx, .dgain = dw->gain, .t = t, .x = *io->x, .gain = w->gain};
    TRY(op_rms_backward(env->dev, &g, coef, env->plan));
    return wgrad_run(&env->wgrad, env->dev, env->plan);
}

/* u [M, n r]: the room, or scratch. */
static enum status latent_gradient(struct tp_env *env, struct tensor *u, const struct proj_acts *a,
                                   const struct proj_grad_io *io)
{
    if (!io->room)
        return scratch_tokens(env, u, env->act, a->z.rows, a->z.cols, 1);
    *u = *io->room;
    return ST_OK;
}

static enum status in_backward(struct tp_env *env, const struct proj *w, struct proj *dw,
                               const struct proj_acts *a, const struct proj_grad_io *io)
{
    size_t mark = arena_mark(env->scratch);
    int online = env->norm_form != NORM_FORM_SYNC;
    struct tensor u, coef;

    TRY(latent_gradient(env, &u, a, io));
    TRY(scratch_tokens(env, &coef, env->dev->wide, a->z.rows, 2, 1));
    TRY(up_backward(env, w, dw, a, io->dy, &u, online ? &coef : NULL));
    if (PLANTED(PLANTED_DETACHED) && online)
        TRY(planted_scale(env->dev, &coef, 1, 0.0, NULL)); /* beta = 0 */
    TRY(norm_down_backward(env, w, dw, a, io, &u, &coef));
    arena_release(env->scratch, mark);
    return ST_OK;
}

static enum status out_backward(struct tp_env *env, const struct proj *w, struct proj *dw,
                                const struct proj_acts *a, const struct proj_grad_io *io)
{
    size_t mark = arena_mark(env->scratch);
    struct tensor u;

    TRY(latent_gradient(env, &u, a, io));
    TRY(up_backward(env, w, dw, a, io->dy, &u, NULL));
    TRY(down_backward(env, w, dw, io, &u, io->x, io->dx)); /* [M, in_l] */
    TRY(wgrad_run(&env->wgrad, env->dev, env->plan));
    arena_release(env->scratch, mark);
    return ST_OK;
}

const struct tp_strategy btp_strategy = {
    .name = "btp",
    .low_rank = 1,
    .stream_cut = 1,
    .late = 1,
    .cut = btp_cut,
    .heads_cut = always,
    .ffn_cut = 1,
    .in_begin = in_begin,
    .in_end = in_end,
    .in_backward = in_backward,
    .out_begin = out_begin,
    .out_end = out_end,
    .out_backward = out_backward,
    .embed_forward = btp_embed_forward,
    .embed_backward = btp_embed_backward,
    .head_input = btp_head_input,
    .head_input_backward = btp_head_input_backward,
};
