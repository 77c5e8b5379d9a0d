#include "common/model/block.h"

/* q and k, or their gradients, which lie side by side in qkv. */
static enum status rotate(struct block_env *env, const struct attention *at,
                          const struct tensor *qkv, int inverse)
{
    struct tensor qk = tensor_cols(qkv, 0, (at->heads + at->kv_heads) * at->head_dim, 1);
    struct rope rope = {.seq = at->seq,
                        .head_dim = at->head_dim,
                        .pos0 = at->pos0,
                        .starts = at->starts,
                        .inverse = inverse};

    return op_rope(env->tp.dev, &qk, env->rope_table, rope);
}

/* q, k and v get the biases that the model may have; or, from their gradients, db gets its own. */
static enum status add_biases(struct block_env *env, const struct block *b, struct block_acts *a)
{
    struct tensor *const y[PROJ_MAX] = {&a->q, &a->k, &a->v};

    for (int i = 0; i < PROJ_MAX && b->qkv.bias[i].rows; i++)
        TRY(op_bias_forward(env->tp.dev, y[i], &b->qkv.bias[i]));
    return ST_OK;
}

static enum status biases_backward(struct block_env *env, struct block *db,
                                   const struct tensor dy[PROJ_MAX])
{
    for (int i = 0; i < PROJ_MAX && db->qkv.bias[i].rows; i++)
        TRY(op_bias_backward(env->tp.dev, &db->qkv.bias[i], &dy[i], env->tp.plan));
    return ST_OK;
}

/* Operands of a projection. y: room for a group's slices. */
static struct proj_io operands(struct block_acts *a, int projection, struct tensor y[PROJ_MAX],
                               struct tensor *y_all)
{
    switch (projection) {
    case BLOCK_QKV: /* q, k, v = W norm(x0) */
        y[0] = a->q, y[1] = a->k, y[2] = a->v, *y_all = a->qkv;
        return (struct proj_io){.x = &a->x0, .y = y, .y_all = y_all};
    case BLOCK_WO: /* x1 = x0 + Wo o */
        y[0] = a->x1;
        return (struct proj_io){.x = &a->at.o, .resid = &a->x0, .y = y};
    case BLOCK_GATE_UP: /* gate, up = W norm(x1); f = swiglu(gate, up) */
        y[0] = a->gate, y[1] = a->up, *y_all = a->gu;
        return (struct proj_io){.x = &a->x1, .y = y, .y_all = y_all, .f = &a->f};
    default: /* x2 = x1 + Wd f */
        y[0] = a->x2;
        return (struct proj_io){.x = &a->f, .resid = &a->x1, .y = y};
    }
}

/* A projection's weights, and what it keeps. */
static const struct proj *weights_of(const struct block *b, int projection)
{
    const struct proj *const all[] = {&b->qkv, &b->wo, &b->gate_up, &b->down};

    return all[projection];
}

static struct proj_acts *kept_by(struct block_acts *a, int projection)
{
    struct proj_acts *const all[] = {&a->qkv_a, &a->wo_a, &a->gate_up_a, &a->down_a};

    return all[projection];
}

static int is_in(int projection)
{
    return projection == BLOCK_QKV || projection == BLOCK_GATE_UP;
}

enum status block_begin(struct block_env *env, const struct block *b, struct block_acts *a,
                        int projection, struct proj_flight *f)
{
    const struct tp_strategy *s = env->strategy;
    struct tensor y[PROJ_MAX], y_all;
    struct proj_io io = operands(a, projection, y, &y_all);

    return (is_in(projection) ? s->in_begin : s->out_begin)(&env->tp, weights_of(b, projection),
                                                            kept_by(a, projection), &io, f);
}

/* What stands between the projections of the block's first half: o of q, k, v. */
static enum status attend(struct block_env *env, const struct block *b, struct block_acts *a)
{
    TRY(add_biases(env, b, a));
    TRY(rotate(env, &a->at, &a->qkv, 0));
    return op_attention_forward(env->tp.dev, &a->at);
}

enum status block_end(struct block_env *env, const struct block *b, struct block_acts *a,
                      int projection, struct proj_flight *f)
{
    const struct tp_strategy *s = env->strategy;
    struct tensor y[PROJ_MAX], y_all;
    struct proj_io io = operands(a, projection, y, &y_all);

    TRY((is_in(projection) ? s->in_end : s->out_end)(&env->tp, weights_of(b, projection),
                                                     kept_by(a, projection), &io, f));
    return projection == BLOCK_QKV ? attend(env, b, a) : ST_OK;
}

static enum status project(struct block_env *env, const struct block *b, struct block_acts *a,
                           int projection)
{
    struct proj_flight f = {0};

    TRY(block_begin(env, b, a, projection, &f));
    return block_end(env, b, a, projection, &f);
}

enum status block_forward(struct block_env *env, const struct block *b, struct block_acts *a)
{
    for (int i = 0; i < BLOCK_PROJECTIONS; i++)
        TRY(project(env, b, a, i));
    return ST_OK;
}

enum status block_recompute(struct block_env *env, const struct block *b, struct block_acts *a)
{
    int needs_latents = env->strategy->low_rank && !a->down_a.z_known;

    env->tp.recomputing = 1;
    for (int i = BLOCK_QKV; i <= BLOCK_GATE_UP; i++)
        TRY(project(env, b, a, i));
    if (needs_latents) /* x2 gets the bits that it already has */
        TRY(project(env, b, a, BLOCK_DOWN));
    env->tp.recomputing = 0;
    return ST_OK;
}

/* The stream's gradient as an operand of weight gradients: dx itself, or, where they are put off
 * until dx has moved on, a copy. */
static enum status stream_gradient(struct block_env *env, struct tensor *dy, struct tensor *dx)
{
    *dy = *dx;
    if (!env->tp.wgrad.later)
        return ST_OK;
    TRY(scratch_tokens(&env->tp, dy, dx->dtype, dx->rows, dx->cols, dx->col_grains));
    return op_convert(env->tp.dev, dy, dx, 1);
}

/* Rooms of a block's projections but the last of backward, in that order; data NULL: none. */
struct rooms {
    struct tensor down, gate_up, wo;
};

static const struct tensor *room_of(const struct tensor *t)
{
    return t->data ? t : NULL;
}

static enum status take_room(struct block_env *env, struct tensor *room, const struct proj_acts *a)
{
    return scratch_tokens(&env->tp, room, env->tp.act, a->z.rows, a->z.cols, 1);
}

/* Rooms where a strategy has use for them and ranks send messages that something could run beside;
 * products that are put off are not held back, too. That of gate and up is of use with their
 * normalised input alone. */
static enum status take_rooms(struct block_env *env, const struct block_acts *a, struct rooms *r)
{
    *r = (struct rooms){0};
    if (!env->strategy->late || env->tp.tp->size == 1 || env->tp.exposed || env->tp.wgrad.later)
        return ST_OK;
    TRY(take_room(env, &r->down, &a->down_a));
    TRY(take_room(env, &r->wo, &a->wo_a));
    return a->gate_up_a.h.data ? take_room(env, &r->gate_up, &a->gate_up_a) : ST_OK;
}

static enum status ffn_backward(struct block_env *env, const struct block *b, struct block *db,
                                struct block_acts *a, const struct rooms *r, struct tensor *dx)
{
    size_t mark = arena_mark(env->tp.scratch);
    struct tensor df, dgu, dx2, dy[PROJ_MAX];
    struct swiglu_grad g;
    struct proj_grad_io out = {
        .x = &a->f, .dy = &dx2, .dx = &df, .glu = &g, .room = room_of(&r->down)};
    struct proj_grad_io in = {
        .x = &a->x1, .dy = dy, .dy_all = &dgu, .dx = dx, .room = room_of(&r->gate_up)};
    int64_t m = a->f.rows, f = a->f.cols;
    int32_t grains = a->f.col_grains;

    TRY(stream_gradient(env, &dx2, dx));
    TRY(scratch_tokens(&env->tp, &df, env->tp.act, m, f, grains));
    TRY(scratch_tokens(&env->tp, &dgu, env->tp.act, m, 2 * f, 1));
    dy[0] = tensor_cols(&dgu, 0, f, grains);
    dy[1] = tensor_cols(&dgu, f, f, grains);
    g = (struct swiglu_grad){.dg = dy[0], .du = dy[1], .df = df, .g = a->gate, .u = a->up};
    TRY(env->strategy->out_backward(&env->tp, &b->down, &db->down, &a->down_a, &out));
    TRY(env->strategy->in_backward(&env->tp, &b->gate_up, &db->gate_up, &a->gate_up_a, &in));
    arena_release(env->tp.scratch, mark);
    return ST_OK;
}

static enum status attention_half_backward(struct block_env *env, const struct block *b,
                                           struct block *db, struct block_acts *a,
                                           const struct rooms *r, struct tensor *dx)
{
    size_t mark = arena_mark(env->tp.scratch);
    struct attention dat = a->at;
    struct tensor dqkv, dx1, dy[PROJ_MAX];
    struct proj_grad_io out = {.x = &a->at.o, .dy = &dx1, .dx = &dat.o, .room = room_of(&r->wo)};
    struct proj_grad_io in = {.x = &a->x0, .dy = dy, .dy_all = &dqkv, .dx = dx};
    int64_t m = a->q.rows, q = a->q.cols, k = a->k.cols;

    TRY(stream_gradient(env, &dx1, dx));
    TRY(scratch_tokens(&env->tp, &dat.o, env->tp.act, m, q, a->at.o.col_grains));
    TRY(scratch_tokens(&env->tp, &dqkv, env->tp.act, m, q + 2 * k, 1));
    dy[0] = dat.q = tensor_cols(&dqkv, 0, q, a->q.col_grains);
    dy[1] = dat.k = tensor_cols(&dqkv, q, k, a->k.col_grains);
    dy[2] = dat.v = tensor_cols(&dqkv, q + k, k, a->v.col_grains);
    TRY(env->strategy->out_backward(&env->tp, &b->wo, &db->wo, &a->wo_a, &out));
    TRY(op_attention_backward(env->tp.dev, &a->at, &dat));
    TRY(rotate(env, &a->at, &dqkv, 1));
    TRY(biases_backward(env, db, dy));
    /* The widest message is next, with little of its own beside it. */
    TRY(wgrad_let_go(&env->tp.wgrad));
    TRY(env->strategy->in_backward(&env->tp, &b->qkv, &db->qkv, &a->qkv_a, &in));
    arena_release(env->tp.scratch, mark);
    return ST_OK;
}

enum status block_backward(struct block_env *env, const struct block *b, struct block *db,
                           struct block_acts *a, struct tensor *dx)
{
    size_t mark = arena_mark(env->tp.scratch);
    struct rooms r;

    TRY(take_rooms(env, a, &r));
    TRY(ffn_backward(env, b, db, a, &r, dx));
    TRY(attention_half_backward(env, b, db, a, &r, dx));
    arena_release(env->tp.scratch, mark);
    return ST_OK;
}
