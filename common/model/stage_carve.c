/* Where the activations of a micro-batch lie. */
#include "common/model/stage.h"

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
                               .starts = mb->starts,
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

/* Nonzero when mode makes whole stretches of a block again, which then share memory. */
static int repeats(enum recompute_kind mode)
{
    return mode == RECOMPUTE_BLOCK || mode == RECOMPUTE_BOTTLENECK;
}

/* What recompute: none keeps beside all that: what backward could make again by itself. The local
 * form of Online-RMSNorm needs another h in forward than in backward. */
static enum status carve_whole(struct stage *s, struct block_acts *a, int64_t m)
{
    struct proj_acts *in[] = {&a->qkv_a, &a->gate_up_a};
    struct proj_acts *all[] = {&a->qkv_a, &a->wo_a, &a->gate_up_a, &a->down_a};

    for (int i = 0; i < 2 && s->env.tp.norm_form != NORM_FORM_LOCAL; i++)
        TRY(carve_stream(s, &in[i]->h, m));
    for (int i = 0; i < 4 && s->env.strategy->low_rank && s->env.tp.lat.act != ACT_NONE; i++)
        TRY(take(s, &all[i]->act, s->env.tp.act, m, all[i]->z.cols, all[i]->z.col_grains));
    return ST_OK;
}

/* Lays out all activations of a micro-batch. One set of `rest` serves all layers when they are
 * computed again; one of everything and two streams when nothing is kept. */
static enum status carve(struct stage *s, const struct micro_batch *mb, int keep)
{
    enum recompute_kind mode = keep ? s->model->cfg->parallel.recompute : RECOMPUTE_BLOCK;
    int64_t m = mb->samples * mb->seq;
    struct block_acts shared = {0};
    struct tensor x[2];

    s->acts->keeps = 0;
    arena_release(s->acts, 0);
    if (mode == RECOMPUTE_BLOCK)
        TRY(carve_bottleneck(s, &shared, m));
    if (repeats(mode))
        TRY(carve_rest(s, &shared, mb));
    TRY(carve_stream(s, &x[0], m));
    if (!keep)
        TRY(carve_stream(s, &x[1], m));
    for (int64_t i = s->begin; i < s->end; i++) {
        struct block_acts *a = &s->block[i];

        *a = shared;
        if (mode != RECOMPUTE_BLOCK)
            TRY(carve_bottleneck(s, a, m));
        if (!repeats(mode))
            TRY(carve_rest(s, a, mb));
        if (mode == RECOMPUTE_NONE)
            TRY(carve_whole(s, a, m));
        a->x0 = keep && i > s->begin ? s->block[i - 1].x2 : x[keep ? 0 : (i - s->begin) % 2];
        if (keep)
            TRY(carve_stream(s, &a->x2, m));
        else
            a->x2 = x[(i - s->begin + 1) % 2];
    }
    s->x_end = s->block[s->end - 1].x2;
    return ST_OK;
}

enum status stage_begin(struct stage *s, const struct micro_batch *mb, int keep, struct tensor **x)
{
    s->env.tp.samples = (int32_t)mb->samples;
    TRY(carve(s, mb, keep));
    *x = &s->block[s->begin].x0;
    return ST_OK;
}
