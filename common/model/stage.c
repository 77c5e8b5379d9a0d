#include "common/model/stage.h"

#include "common/backend/planted.h"

#include <stdlib.h>
#include <string.h>

enum status stage_open(struct stage *s, struct model *m, const struct tp_env *from,
                       struct arena *state, struct arena *acts, int64_t positions)
{
    enum dtype wide = m->params.wide;
    size_t bytes = (size_t)(positions * m->shape.head_dim) * dtype_size(wide);
    void *table, *host;
    enum status st;

    memset(s, 0, sizeof *s);
    s->model = m;
    s->acts = acts;
    model_env(&s->env, m);
    s->env.tp.dev = from->dev;
    s->env.tp.tp = from->tp;
    s->env.tp.ledger = from->ledger;
    s->env.tp.scratch = from->scratch;
    s->block = calloc((size_t)m->cfg->model.layers, sizeof *s->block);
    if (!s->block)
        return fail(ST_ENOMEM, "no memory for the activations' table");
    TRY(arena_take(state, &table, bytes));
    s->rope_table = tensor_view(table, wide, positions, m->shape.head_dim);
    s->env.rope_table = &s->rope_table;
    if (state->planning)
        return ST_OK;
    host = malloc(bytes);
    if (!host)
        return fail(ST_ENOMEM, "no memory for %lld rotary positions", (long long)positions);
    model_rope_table(host, wide, m, positions);
    st = device_upload(from->dev, table, host, bytes);
    free(host);
    return st;
}

void stage_close(struct stage *s)
{
    free(s->block);
    s->block = NULL;
}

/* [M, cols] token rows from the arena of activations. */
static enum status take(struct stage *s, struct tensor *t, enum dtype dt, int64_t rows,
                        int64_t cols, int32_t grains)
{
    void *p;

    TRY(arena_take(s->acts, &p, (size_t)(rows * cols) * dtype_size(dt)));
    *t = tensor_grained(tensor_view(p, dt, rows, cols), s->env.tp.samples, grains);
    return ST_OK;
}

static enum status carve_stream(struct stage *s, struct tensor *t, int64_t m)
{
    const struct model_shape *sh = &s->model->shape;

    return take(s, t, s->env.tp.act, m, sh->stream, sh->stream_grains);
}

/* Latents [M, n r_l] of one projection. */
static enum status carve_latents(struct stage *s, struct proj_acts *a, int64_t m, int n)
{
    const struct model_shape *sh = &s->model->shape;
    int32_t grains = sh->latent_grains > 1 ? n * sh->latent_grains : 1;

    if (!s->env.strategy->low_rank)
        return ST_OK;
    return take(s, &a->z, s->env.tp.act, m, n * sh->latent_l, grains);
}

/* What recompute: bottleneck keeps beside the stream: latents and statistics. */
static enum status carve_bottleneck(struct stage *s, struct block_acts *a, int64_t m)
{
    TRY(take(s, &a->qkv_a.s, s->model->params.wide, m, 1, 1));
    TRY(take(s, &a->gate_up_a.s, s->model->params.wide, m, 1, 1));
    TRY(carve_latents(s, &a->qkv_a, m, 3));
    TRY(carve_latents(s, &a->wo_a, m, 1));
    TRY(carve_latents(s, &a->gate_up_a, m, 2));
    return carve_latents(s, &a->down_a, m, 1);
}

static enum status carve_attention(struct stage *s, struct block_acts *a,
                                   const struct micro_batch *mb)
{
    const struct model_shape *sh = &s->model->shape;
    int64_t m = mb->samples * mb->seq;
    int64_t q = sh->heads_l * sh->head_dim, k = sh->kv_heads_l * sh->head_dim;

    TRY(take(s, &a->qkv, s->env.tp.act, m, q + 2 * k, 1));
    a->q = tensor_cols(&a->qkv, 0, q, sh->head_grains);
    a->k = tensor_cols(&a->qkv, q, k, sh->head_grains);
    a->v = tensor_cols(&a->qkv, q + k, k, sh->head_grains);
    a->at = (struct attention){.batch = mb->samples,
                               .seq = mb->seq,
                               .kv_rows = mb->seq,
                               .heads = sh->heads_l,
                               .kv_heads = sh->kv_heads_l,
                               .head_dim = sh->head_dim,
                               .q = a->q,
                               .k = a->k,
                               .v = a->v};
    TRY(take(s, &a->at.o, s->env.tp.act, m, q, sh->head_grains));
    TRY(take(s, &a->at.lse, s->model->params.wide, m, sh->heads_l, 1));
    if (!s->env.strategy->stream_cut && s->env.strategy->low_rank &&
        sh->heads_l * sh->head_dim < sh->width)
        TRY(take(s, &a->wo_a.xg, s->env.tp.act, m, sh->width, 1));
    return ST_OK;
}

/* What recomputation makes again: all but the stream's entrances and the bottleneck. */
static enum status carve_rest(struct stage *s, struct block_acts *a, const struct micro_batch *mb)
{
    const struct model_shape *sh = &s->model->shape;
    int64_t m = mb->samples * mb->seq, f = sh->ffn_l;

    TRY(carve_attention(s, a, mb));
    TRY(carve_stream(s, &a->x1, m));
    TRY(take(s, &a->gu, s->env.tp.act, m, 2 * f, 1));
    a->gate = tensor_cols(&a->gu, 0, f, sh->ffn_grains);
    a->up = tensor_cols(&a->gu, f, f, sh->ffn_grains);
    return take(s, &a->f, s->env.tp.act, m, f, sh->ffn_grains);
}

/* Lays out all activations of a micro-batch. One set of `rest` serves all layers when they are
 * computed again; one of everything and two streams when nothing is kept. */
static enum status carve(struct stage *s, const struct micro_batch *mb, int keep)
{
    enum recompute_kind mode = keep ? s->model->cfg->parallel.recompute : RECOMPUTE_BLOCK;
    int64_t layers = s->model->cfg->model.layers, m = mb->samples * mb->seq;
    struct block_acts shared = {0};
    struct tensor x[2];

    arena_release(s->acts, 0);
    if (mode == RECOMPUTE_BLOCK)
        TRY(carve_bottleneck(s, &shared, m));
    if (mode != RECOMPUTE_NONE)
        TRY(carve_rest(s, &shared, mb));
    TRY(carve_stream(s, &x[0], m));
    if (!keep)
        TRY(carve_stream(s, &x[1], m));
    for (int64_t i = 0; i < layers; i++) {
        struct block_acts *a = &s->block[i];

        *a = shared;
        if (mode != RECOMPUTE_BLOCK)
            TRY(carve_bottleneck(s, a, m));
        if (mode == RECOMPUTE_NONE)
            TRY(carve_rest(s, a, mb));
        a->x0 = keep && i > 0 ? s->block[i - 1].x2 : x[keep ? 0 : i % 2];
        if (keep)
            TRY(carve_stream(s, &a->x2, m));
        else
            a->x2 = x[(i + 1) % 2];
    }
    s->x_end = s->block[layers - 1].x2;
    return ST_OK;
}

static enum status forward_blocks(struct stage *s)
{
    for (int64_t i = 0; i < s->model->cfg->model.layers; i++)
        TRY(block_forward(&s->env, &s->model->blocks[i], &s->block[i]));
    return ST_OK;
}

enum status stage_forward(struct stage *s, const struct micro_batch *mb, int keep)
{
    s->env.tp.samples = (int32_t)mb->samples;
    TRY(carve(s, mb, keep));
    TRY(s->env.strategy->embed_forward(&s->env.tp, &s->model->ends, &s->block[0].x0, &mb->tokens));
    TRY(forward_blocks(s));
    if (PLANTED(PLANTED_RESIDUAL))
        TRY(planted_subtract(s->env.tp.dev, &s->x_end,
                             &s->block[s->model->cfg->model.layers - 1].x1));
    return ST_OK;
}

enum status stage_blocks_forward(struct stage *s, const struct micro_batch *mb, int embed)
{
    struct tensor *x = &s->block[0].x0;

    s->env.tp.samples = (int32_t)mb->samples;
    TRY(carve(s, mb, 1));
    if (embed)
        TRY(s->env.strategy->embed_forward(&s->env.tp, &s->model->ends, x, &mb->tokens));
    return forward_blocks(s);
}

static enum status run_head(struct stage *s, const struct micro_batch *mb, double scale)
{
    struct tensor loss = mb->loss;
    struct head_io io = {
        .x = &s->x_end, .targets = &mb->targets, .loss = &loss, .dx = &s->dx, .scale = scale};

    return s->env.strategy->head(&s->env.tp, &s->model->ends, &s->model->dends, &io);
}

enum status stage_loss(struct stage *s, const struct micro_batch *mb)
{
    return run_head(s, mb, 0.0);
}

/* Makes again what backward of layer i needs and forward did not keep. */
static enum status recompute(struct stage *s, int64_t i)
{
    enum recompute_kind mode = s->model->cfg->parallel.recompute;
    struct block_acts *a = &s->block[i];
    int known = mode == RECOMPUTE_BOTTLENECK;

    if (mode == RECOMPUTE_NONE)
        return ST_OK;
    a->qkv_a.z_known = a->wo_a.z_known = a->gate_up_a.z_known = a->down_a.z_known = known;
    return block_recompute(&s->env, &s->model->blocks[i], a);
}

static enum status take_gradient(struct stage *s)
{
    return scratch_tokens(&s->env.tp, &s->dx, s->env.tp.act, s->x_end.rows, s->x_end.cols,
                          s->x_end.col_grains);
}

static enum status backward_blocks(struct stage *s)
{
    for (int64_t i = s->model->cfg->model.layers - 1; i >= 0; i--) {
        TRY(recompute(s, i));
        TRY(block_backward(&s->env, &s->model->blocks[i], &s->model->dblocks[i], &s->block[i],
                           &s->dx));
    }
    return ST_OK;
}

enum status stage_backward(struct stage *s, const struct micro_batch *mb,
                           const struct sample_plan *plan)
{
    struct tp_env *env = &s->env.tp;
    size_t mark = arena_mark(env->scratch);

    env->plan = plan;
    TRY(take_gradient(s));
    TRY(run_head(s, mb, mb->scale));
    TRY(backward_blocks(s));
    TRY(s->env.strategy->embed_backward(env, &s->model->dends, &s->dx, &mb->tokens));
    arena_release(env->scratch, mark);
    return ST_OK;
}

enum status stage_blocks_backward(struct stage *s, const struct sample_plan *plan)
{
    size_t mark = arena_mark(s->env.tp.scratch);

    s->env.tp.plan = plan;
    TRY(take_gradient(s));
    TRY(op_convert(s->env.tp.dev, &s->dx, &s->x_end));
    TRY(backward_blocks(s));
    arena_release(s->env.tp.scratch, mark);
    return ST_OK;
}
