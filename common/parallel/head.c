/* The model's end: final norm, vocabulary-parallel head and cross-entropy, for every strategy. */
#include "common/parallel/head.h"

/* logits [M, V_l] = h W'; the width is whole here: the sum over it is not cut. */
static enum status project(struct tp_env *env, const struct ends *w, const struct tensor *h,
                           struct tensor *logits)
{
    struct gemm g = {.y = *logits, .a = *h, .b = w->head, .kind = GEMM_NT};

    g.a.col_grains = 1;
    g.b.col_grains = 1;
    return op_gemm(env->dev, &g, 1);
}

/* Logits, their statistics on this rank, and those of all ranks: st_all [p M, 3]. */
static enum status logits_stats(struct tp_env *env, const struct ends *w, const struct tensor *h,
                                const struct tensor *targets, struct tensor *logits,
                                struct tensor *st_all)
{
    struct vocab_cut cut = {.first = env->tp->rank * w->head.rows, .valid = w->vocab};
    struct tensor st;

    TRY(project(env, w, h, logits));
    if (env->tp->size == 1)
        return op_ce_stats(env->dev, st_all, logits, targets, cut);
    TRY(scratch_tokens(env, &st, env->dev->wide, h->rows, 3, 1));
    TRY(op_ce_stats(env->dev, &st, logits, targets, cut)); /* [M, 3] */
    ledger_for(env->ledger, LEDGER_HEAD);
    return comm_all_gather(env->tp, st_all, &st); /* [p M, 3] */
}

/* From the normalised stream h [M, d] to loss and, unless io->scale is 0, dh [M, d], this rank's
 * partial sum. Queues the head's weight gradient on the logits, which lie in scratch. */
static enum status head_loss(struct tp_env *env, const struct ends *w, struct ends *dw,
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

enum status head_run(const struct tp_strategy *st, struct tp_env *env, const struct ends *w,
                     struct ends *dw, const struct head_io *io)
{
    size_t mark = arena_mark(env->scratch);
    int64_t m = io->x->rows;
    struct tensor h, s, dh;

    TRY(scratch_tokens(env, &h, env->act, m, w->head.cols, 1));
    TRY(scratch_tokens(env, &s, env->dev->wide, m, 1, 1));
    if (io->scale != 0.0)
        TRY(scratch_tokens(env, &dh, env->payload, m, w->head.cols, 1));
    TRY(st->head_input(env, w, io->x, &h, &s));
    TRY(head_loss(env, w, dw, &h, io, &dh));
    if (io->scale != 0.0) {
        TRY(device_zero(env->dev, io->dx->data,
                        (size_t)tensor_count(io->dx) * dtype_size(io->dx->dtype)));
        TRY(st->head_input_backward(env, w, dw, io, &dh, &s));
    }
    arena_release(env->scratch, mark);
    return ST_OK;
}

enum status head_logits(const struct tp_strategy *st, struct tp_env *env, const struct ends *w,
                        const struct tensor *x, struct tensor *logits)
{
    size_t mark = arena_mark(env->scratch);
    struct tensor h, s;

    TRY(scratch_tokens(env, &h, env->act, x->rows, w->head.cols, 1));
    TRY(scratch_tokens(env, &s, env->dev->wide, x->rows, 1, 1));
    TRY(st->head_input(env, w, x, &h, &s));
    TRY(project(env, w, &h, logits));
    arena_release(env->scratch, mark);
    return ST_OK;
}
