/* What makes one tensor-parallel strategy differ from another.
 *
 * The block (model/block.c) is written once. A strategy supplies
 *   in      norm, then project the residual stream to heads or FFN units
 *   out     project heads or FFN units back and add them onto the residual stream
 * with SwiGLU, and its backward, where proj_io and proj_grad_io ask for it;
 *   embed   tokens to the stream
 *   head    the stream to the head's input; the head and the loss are head.c's
 * each forward and backward, and says how each parameter is cut.
 *
 * Sizes in comments: M tokens of this micro-batch, d model width, r rank of the bottleneck, n
 * projections in a group, V padded vocabulary, p ranks; suffix _l: this rank's share. The stream is
 * [M, d_l] under BTP and [M, d] (on every rank the same) under the others. Weights are [out, in].
 */
#ifndef COMMON_PARALLEL_STRATEGY_H
#define COMMON_PARALLEL_STRATEGY_H

#include "common/backend/comm.h"
#include "common/backend/device.h"
#include "common/backend/op.h"
#include "common/base/arena.h"
#include "common/parallel/wgrad.h"

enum { PROJ_MAX = 3 }; /* members of a group: q, k and v */

enum norm_form { NORM_FORM_ONLINE, NORM_FORM_LOCAL, NORM_FORM_SYNC };
enum vanilla_form { VANILLA_FORM_STRONG, VANILLA_FORM_RELEASED };

/* Weights of one group of projections; another one holds their gradients.
 * Low rank: y_i = act(x A_i') B_i', A = a_i [r, in], B = b_i [out, r].  Full rank: W = b_i. */
struct proj {
    int n;                     /* 3 for q, k, v; 2 for gate, up; else 1     */
    struct tensor gain;        /* [1, d or d_l]; in-projections only        */
    struct tensor a[PROJ_MAX]; /* low rank: lie one after the other         */
    struct tensor b[PROJ_MAX];
    struct tensor bias[PROJ_MAX]; /* [1, out or out_l], added by the block; rows 0: none */
};

/* What a projection keeps from forward to backward. */
struct proj_acts {
    struct tensor z;  /* [M, n r (or n r_l)] latents before act; low rank only                */
    struct tensor s;  /* [M, 1] sum of squares of x; in-projections only                      */
    struct tensor xg; /* [M, in] gathered input; strong vanilla's out-projection, p > 1, only */
    /* With recompute: none; data NULL: backward makes them again. */
    struct tensor h;   /* [M, d or d_l] the normalised input; in-projections only             */
    struct tensor act; /* as z: act(z); low rank with an activation only                      */
    int z_known;       /* forward then starts from z: neither A nor a collective is repeated   */
};

/* Operands of a forward call: in: x stream, y_all [M, sum of outs] with slices y[i], and, of gate
 * and up, f for SwiGLU of the two; out: x the [M, in_l] units, resid the stream, y[0] the new
 * stream. */
struct proj_io {
    const struct tensor *x;
    const struct tensor *resid;
    struct tensor *y;
    struct tensor *y_all;
    struct tensor *f; /* [M, f_l], written when the end is done; NULL: none */
};

/* A forward call between its begin and its end: what is on its way, and what the end wants of the
 * begin. Scratch that the begin took is given back by the end. */
struct proj_flight {
    struct tensor sum[PROJ_MAX]; /* partial sums, which a message adds up over ranks       */
    struct tensor act;           /* low rank: act(z)                                       */
    struct tensor s;             /* the norm's statistic in that message; data NULL: none  */
    struct tensor local;         /* the local norm's own scale; data NULL: another form    */
    size_t mark;                 /* of scratch                                             */
};

/* Operands of a backward call: dy[i] gradients of y[i] (dy_all: all of them as one tensor);
 * in: dx the stream's gradient, added to; out: dx [M, in_l], written; with a glu, whose df it is,
 * what it holds is not defined, and the glu's dg and du are written. What out_backward queues may
 * run in the in_backward that follows. With a room, weight gradients from it and x (in: h, which is
 * kept then) may be held back until the block lets them go. */
struct proj_grad_io {
    const struct tensor *x;
    struct tensor *dy;
    struct tensor *dy_all;
    struct tensor *dx;
    const struct swiglu_grad *glu; /* out: SwiGLU stands before it; NULL: none */
    const struct tensor *room; /* as z, until the block is done; NULL: nothing may be held back */
};

/* Everything that a strategy needs of its surroundings. */
struct tp_env {
    struct device *dev;
    struct comm *tp;
    struct ledger *ledger;
    struct arena *scratch;
    enum dtype act, payload; /* of activations; of what travels between ranks           */
    struct norm norm;        /* width d, eps                                            */
    struct latent lat;
    enum swiglu_kind swiglu;
    enum norm_form norm_form;
    enum vanilla_form vanilla_form;
    int grouping;    /* members of a group share a message                      */
    int recomputing; /* forward runs again inside backward                      */
    int exposed;     /* messages are waited for where they begin: none flies    */
    int32_t samples; /* sequences of this micro-batch: row grains of tokens     */
    int32_t grains;  /* of each cut dimension on this rank                      */
    const struct sample_plan *plan;
    struct wgrad_queue wgrad;
};

/* Both ends of the model. dends of the same struct holds gradients. */
struct ends {
    struct tensor embed; /* [V or V_l, d_l or d]                                      */
    struct tensor head;  /* [V_l, d]; tied: the same memory as embed, own gradient    */
    struct tensor gain;  /* [1, d or d_l] of the final norm                           */
    int tied;
    int64_t vocab; /* real entries of the vocabulary */
};

/* The operands of head and loss (head.h). scale: gradient of the summed loss, 1 / valid targets of
 * the global batch; 0 computes the loss alone. */
struct head_io {
    const struct tensor *x;       /* [M, stream]                       */
    const struct tensor *targets; /* [M, 1] i32, negative: ignored     */
    struct tensor *loss;          /* [M, 1] wide, out                  */
    struct tensor *dx;            /* [M, stream], out unless scale = 0 */
    double scale;
};

enum cut { CUT_NONE, CUT_ROWS, CUT_COLS };

enum param_role {
    ROLE_GAIN,
    ROLE_BIAS,
    ROLE_IN_A,
    ROLE_IN_B,
    ROLE_OUT_A,
    ROLE_OUT_B,
    ROLE_EMBED,
    ROLE_HEAD
};

struct tp_strategy {
    const char *name;
    int low_rank;   /* layers have a bottleneck   */
    int stream_cut; /* the stream is [M, d_l]     */
    int late;       /* backward has use for rooms */

    /* How a parameter is cut (not a bias: it follows the heads); tied: one matrix for both ends.
     * Full-rank W count as B. */
    enum cut (*cut)(enum param_role role, int tied);
    /* Nonzero when attention (FFN) sees this rank's share of heads (units), not all of them. */
    int (*heads_cut)(const struct tp_env *env);
    int ffn_cut;

    /* All collective over env->tp. A forward call comes as a begin, after which its message is
     * under way, and an end, which waits for it; between them the caller may do other work that
     * neither touches what these two read and write nor uses env's communicator or scratch. */
    enum status (*in_begin)(struct tp_env *env, const struct proj *w, struct proj_acts *a,
                            const struct proj_io *io, struct proj_flight *f);
    enum status (*in_end)(struct tp_env *env, const struct proj *w, struct proj_acts *a,
                          const struct proj_io *io, struct proj_flight *f);
    enum status (*in_backward)(struct tp_env *env, const struct proj *w, struct proj *dw,
                               const struct proj_acts *a, const struct proj_grad_io *io);
    enum status (*out_begin)(struct tp_env *env, const struct proj *w, struct proj_acts *a,
                             const struct proj_io *io, struct proj_flight *f);
    enum status (*out_end)(struct tp_env *env, const struct proj *w, struct proj_acts *a,
                           const struct proj_io *io, struct proj_flight *f);
    enum status (*out_backward)(struct tp_env *env, const struct proj *w, struct proj *dw,
                                const struct proj_acts *a, const struct proj_grad_io *io);
    enum status (*embed_forward)(struct tp_env *env, const struct ends *w, struct tensor *x,
                                 const struct tensor *tokens);
    enum status (*embed_backward)(struct tp_env *env, struct ends *dw, const struct tensor *dx,
                                  const struct tensor *tokens);
    /* h [M, d] = the final norm of the stream x [M, stream], on every rank whole; s [M, 1] its
     * statistic. */
    enum status (*head_input)(struct tp_env *env, const struct ends *w, const struct tensor *x,
                              struct tensor *h, struct tensor *s);
    /* io->dx, zeros, through that norm from dh [M, d], this rank's partial sum (changed); the
     * queued weight gradient runs while dh travels. */
    enum status (*head_input_backward)(struct tp_env *env, const struct ends *w, struct ends *dw,
                                       const struct head_io *io, struct tensor *dh,
                                       const struct tensor *s);
};

extern const struct tp_strategy btp_strategy;
extern const struct tp_strategy vanilla_strategy;
extern const struct tp_strategy fullrank_strategy;

/* Takes a packed [rows, cols] tensor from the scratch arena; grains one each way. */
enum status scratch_tensor(struct tp_env *env, struct tensor *t, enum dtype dt, int64_t rows,
                           int64_t cols);

/* The same for M token rows: row grains set to the micro-batch's sequences, col_grains given. */
enum status scratch_tokens(struct tp_env *env, struct tensor *t, enum dtype dt, int64_t rows,
                           int64_t cols, int32_t col_grains);

/* t begun with purpose p of the ledger; waits are the caller's (env->exposed: done here before). */
enum status reduce_begin(struct tp_env *env, struct tensor *t, int n, enum ledger_purpose p);

/* The same of a reduce-scatter. */
enum status scatter_begin(struct tp_env *env, struct tensor *out, const struct tensor *in,
                          enum ledger_purpose p);

/* t = what arrived in the payload's type, in the activations' type: the same tensor when they are
 * one type, else a rounded copy in scratch. */
enum status to_act(struct tp_env *env, struct tensor *t, const struct tensor *payload);

/* Forward purposes become LEDGER_TP_RECOMPUTE while env->recomputing. */
enum ledger_purpose forward_purpose(const struct tp_env *env, enum ledger_purpose p);

/* act(z) in forward: z itself without an activation, else a->act where it is kept, else a tensor
 * from scratch; computed when `fill` is set (an op that makes z may fill it instead). [M, n r] */
enum status lowrank_act(struct tp_env *env, struct tensor *act, const struct proj_acts *a,
                        int fill);

/* The same in backward: made again where it was not kept. */
enum status lowrank_act_again(struct tp_env *env, struct tensor *act, const struct proj_acts *a);

/* Where the normalised input of a goes, or stands: a->h where it is kept, else a tensor like x from
 * scratch. */
enum status normed_input(struct tp_env *env, struct tensor *h, const struct proj_acts *a,
                         const struct tensor *x);

/* y_i = act_i B_i' (+ resid), the up-projections of a low-rank group, and f (NULL: none) as
 * products_to says. act [M, n r]. */
enum status lowrank_up(struct tp_env *env, const struct proj *w, const struct tensor *act,
                       const struct tensor *resid, struct tensor *y, struct tensor *f);

/* The n products of g; with f, which is [M, f_l], n is 2 and SwiGLU of their results follows. */
enum status products_to(struct tp_env *env, const struct gemm *g, int n, struct tensor *f);

/* The product g; with glu, whose df is g's y, the backward of SwiGLU follows. */
enum status product_back(struct tp_env *env, const struct gemm *g, const struct swiglu_grad *glu);

/* Columns of member i of n in a tensor of n equal slices; grains: those of one member. */
struct tensor member_cols(const struct tensor *t, int i, int n, int32_t grains);

#endif
