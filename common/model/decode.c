#include "common/model/decode.h"

#include "common/parallel/head.h"

#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

static enum status take(struct tensor *t, struct arena *a, enum dtype dt, int64_t rows,
                        int64_t cols, int32_t grains)
{
    void *p;

    TRY(arena_take(a, &p, (size_t)(rows * cols) * dtype_size(dt)));
    *t = tensor_grained(tensor_view(p, dt, rows, cols), 1, grains);
    return ST_OK;
}

/* Latents of a projection of n members. */
static enum status take_latents(struct decode *d, struct arena *a, struct proj_acts *acts, int n)
{
    const struct model_shape *sh = &d->stage.model->shape;

    if (!d->stage.env.strategy->low_rank)
        return ST_OK;
    return take(&acts->z, a, d->stage.env.tp.act, d->room, n * sh->latent_l,
                sh->latent_grains > 1 ? n * sh->latent_grains : 1);
}

static enum status take_projections(struct decode *d, struct arena *a)
{
    const struct model_shape *sh = &d->stage.model->shape;
    struct block_acts *r = &d->rows;
    const struct tp_strategy *strategy = d->stage.env.strategy;
    int gathers = strategy->low_rank && !strategy->stream_cut &&
                  sh->heads_l * sh->head_dim < sh->width; /* the out-projection its input */

    TRY(take(&r->qkv_a.s, a, d->stage.model->params.wide, d->room, 1, 1));
    TRY(take(&r->gate_up_a.s, a, d->stage.model->params.wide, d->room, 1, 1));
    TRY(take_latents(d, a, &r->qkv_a, 3));
    TRY(take_latents(d, a, &r->wo_a, 1));
    TRY(take_latents(d, a, &r->gate_up_a, 2));
    TRY(take_latents(d, a, &r->down_a, 1));
    return gathers ? take(&r->wo_a.xg, a, d->stage.env.tp.act, d->room, sh->width, 1) : ST_OK;
}

static enum status take_rows(struct decode *d, struct arena *a)
{
    const struct model_shape *sh = &d->stage.model->shape;
    enum dtype act = d->stage.env.tp.act, wide = d->stage.model->params.wide;
    struct block_acts *r = &d->rows;
    int64_t q = sh->heads_l * sh->head_dim;

    for (int i = 0; i < 2; i++)
        TRY(take(&d->x[i], a, act, d->room, sh->stream, sh->stream_grains));
    TRY(take_projections(d, a));
    TRY(take(&r->at.o, a, act, d->room, q, sh->head_grains));
    TRY(take(&r->at.lse, a, wide, d->room, sh->heads_l, 1));
    TRY(take(&r->x1, a, act, d->room, sh->stream, sh->stream_grains));
    TRY(take(&r->gu, a, act, d->room, 2 * sh->ffn_l, 1));
    return take(&r->f, a, act, d->room, sh->ffn_l, sh->ffn_grains);
}

static enum status take_all(struct decode *d, struct arena *a)
{
    const struct model *m = d->stage.model;
    const struct model_shape *sh = &m->shape;
    int64_t qkv = (sh->heads_l + 2 * sh->kv_heads_l) * sh->head_dim;
    int64_t v_l = sh->vocab_padded / m->tp_size;

    for (int64_t i = 0; i < m->cfg->model.layers; i++)
        TRY(take(&d->cache[i], a, d->stage.env.tp.act, d->room, qkv, 1));
    TRY(take_rows(d, a));
    TRY(take(&d->tokens, a, DT_I32, d->room, 1, 1));
    TRY(take(&d->logits_l, a, m->params.wide, 1, v_l, m->ends.head.row_grains));
    if (m->tp_size == 1) {
        d->logits = d->logits_l;
        return ST_OK;
    }
    return take(&d->logits, a, m->params.wide, m->tp_size, v_l, 1);
}

enum status decode_open(struct decode *d, struct model *m, const struct tp_env *from,
                        struct arena *memory, int64_t room)
{
    enum status st;

    memset(d, 0, sizeof *d);
    d->room = room;
    d->cache = calloc((size_t)m->cfg->model.layers, sizeof *d->cache);
    if (!d->cache)
        return fail(ST_ENOMEM, "no memory for a table of caches");
    st = stage_open(&d->stage, m, from, memory, memory, room);
    d->stage.env.rope_table = &d->stage.rope_table;
    d->stage.env.tp.samples = 1;
    if (st == ST_OK)
        st = take_all(d, memory);
    if (st != ST_OK)
        decode_close(d);
    return st;
}

void decode_close(struct decode *d)
{
    stage_close(&d->stage);
    free(d->cache);
    d->cache = NULL;
}

/* ---- running ---- */

/* The first n rows; what is not in use stays so. */
static struct tensor top(const struct tensor *t, int64_t n)
{
    return t->rows ? tensor_rows(t, 0, n, 1) : *t;
}

static struct proj_acts top_acts(const struct proj_acts *a, int64_t n)
{
    return (struct proj_acts){.z = top(&a->z, n), .s = top(&a->s, n), .xg = top(&a->xg, n)};
}

/* q, k, v of the new rows are written where the cache has them; attention reads all up to there. */
static void lay_attention(struct decode *d, struct block_acts *a, const struct tensor *cache,
                          int64_t first, int64_t n)
{
    const struct model_shape *sh = &d->stage.model->shape;
    int64_t q = sh->heads_l * sh->head_dim, k = sh->kv_heads_l * sh->head_dim;

    a->qkv = tensor_rows(cache, first, n, 1);
    a->q = tensor_cols(&a->qkv, 0, q, sh->head_grains);
    a->k = tensor_cols(&a->qkv, q, k, sh->head_grains);
    a->v = tensor_cols(&a->qkv, q + k, k, sh->head_grains);
    a->at = (struct attention){.batch = 1,
                               .seq = n,
                               .kv_rows = d->room,
                               .pos0 = first,
                               .heads = sh->heads_l,
                               .kv_heads = sh->kv_heads_l,
                               .head_dim = sh->head_dim,
                               .q = a->q,
                               .k = tensor_cols(cache, q, k, sh->head_grains),
                               .v = tensor_cols(cache, q + k, k, sh->head_grains),
                               .o = top(&d->rows.at.o, n),
                               .lse = top(&d->rows.at.lse, n)};
}

/* The activations of layer i for n new rows. */
static struct block_acts *lay_out(struct decode *d, int64_t i, int64_t first, int64_t n)
{
    const struct model_shape *sh = &d->stage.model->shape;
    struct block_acts *a = &d->stage.block[i];

    lay_attention(d, a, &d->cache[i], first, n);
    a->x0 = top(&d->x[i % 2], n);
    a->x1 = top(&d->rows.x1, n);
    a->x2 = top(&d->x[(i + 1) % 2], n);
    a->gu = top(&d->rows.gu, n);
    a->gate = tensor_cols(&a->gu, 0, sh->ffn_l, sh->ffn_grains);
    a->up = tensor_cols(&a->gu, sh->ffn_l, sh->ffn_l, sh->ffn_grains);
    a->f = top(&d->rows.f, n);
    a->qkv_a = top_acts(&d->rows.qkv_a, n);
    a->wo_a = top_acts(&d->rows.wo_a, n);
    a->gate_up_a = top_acts(&d->rows.gate_up_a, n);
    a->down_a = top_acts(&d->rows.down_a, n);
    return a;
}

/* Logits after the last of n rows of x. */
static enum status run_head(struct decode *d, const struct tensor *x, int64_t n)
{
    struct block_env *env = &d->stage.env;
    struct tensor last = tensor_rows(x, n - 1, 1, 1);

    TRY(head_logits(env->strategy, &env->tp, &d->stage.model->ends, &last, &d->logits_l));
    if (env->tp.tp->size == 1)
        return ST_OK;
    ledger_for(env->tp.ledger, LEDGER_HEAD);
    return comm_all_gather(env->tp.tp, &d->logits, &d->logits_l);
}

enum status decode_run(struct decode *d, const int32_t *tokens, int64_t first, int64_t n)
{
    struct block_env *env = &d->stage.env;
    const struct model *m = d->stage.model;
    int64_t layers = m->cfg->model.layers;
    struct tensor ids;

    FAIL_IF(n < 1 || first < 0 || first + n > d->room, ST_EINTERNAL);
    ids = top(&d->tokens, n);
    TRY(device_upload(env->tp.dev, ids.data, tokens, (size_t)n * sizeof *tokens));
    for (int64_t i = 0; i < layers; i++) {
        struct block_acts *a = lay_out(d, i, first, n);

        if (i == 0)
            TRY(env->strategy->embed_forward(&env->tp, &m->ends, &a->x0, &ids));
        TRY(block_forward(env, &m->blocks[i], a));
    }
    return run_head(d, &d->stage.block[layers - 1].x2, n);
}
