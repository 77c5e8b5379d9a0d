#include "common/model/model.h"

#include "common/backend/planted.h"
#include "common/base/elementary.h"
#include "common/base/hash.h"
#include "common/model/runs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One projection of a block, as the table of parameters sees it. */
struct linear {
    const char *name; /* "self_attn.q_proj" */
    int64_t in, out;
    enum param_role role_a, role_b;
};

const struct tp_strategy *model_strategy(const struct config *cfg)
{
    switch (cfg->parallel.strategy) {
    case STRATEGY_FULL:
        return &fullrank_strategy;
    case STRATEGY_VANILLA:
        return &vanilla_strategy;
    default:
        return &btp_strategy;
    }
}

int model_embeds(const struct model *m)
{
    return m->part.stage == 0;
}

int model_heads(const struct model *m)
{
    return m->part.stage == m->part.stages - 1;
}

void model_chunk(const struct model *m, int c, int *begin, int *end)
{
    int run = c * m->part.stages + m->part.stage;

    *begin = m->first[run];
    *end = m->first[run + 1];
}

int model_stage_of(const struct model *m, int layer)
{
    int run = 0;

    if (layer < 0)
        return 0;
    if (layer == m->cfg->model.layers)
        return m->part.stages - 1;
    while (layer >= m->first[run + 1])
        run++;
    return run % m->part.stages;
}

static int holds_layer(const struct model *m, int layer)
{
    for (int c = 0; c < m->part.chunks; c++) {
        int begin, end;

        model_chunk(m, c, &begin, &end);
        if (layer >= begin && layer < end)
            return 1;
    }
    return 0;
}

/* A tied matrix stands on the first and on the last stage. */
static int holds(const struct model *m, const struct param *row)
{
    if (row->layer < 0)
        return model_embeds(m) || (row->twice && model_heads(m));
    if (row->layer == m->cfg->model.layers)
        return model_heads(m);
    return holds_layer(m, row->layer);
}

/* Counts the whole model, whoever holds it. */
static void count(struct model *m, const struct param *row)
{
    double n = (double)row->real_rows * (double)row->cols;

    m->params_all += row->real_rows * row->cols;
    if (param_is_vector(row) || (row->role == ROLE_EMBED && !row->twice))
        return;
    if (PLANTED(PLANTED_FLOPS) && m->strategy->low_rank &&
        (row->role == ROLE_IN_B || row->role == ROLE_OUT_B))
        return;
    m->weights += n;
}

static enum status add_param(struct model *m, struct param row, struct tensor *w, struct tensor *g)
{
    int matrix = !param_is_vector(&row);

    if (row.role != ROLE_BIAS)
        row.cut = m->strategy->cut(row.role, m->cfg->model.tied);
    row.grains = row.cut == CUT_NONE ? 1 : (int32_t)m->cfg->parallel.grains;
    row.decay = matrix || m->cfg->train.decay_on == DECAY_ALL;
    row.use_w[0] = w;
    row.use_g[0] = g;
    if (!row.real_rows)
        row.real_rows = row.rows;
    row.layer = m->building;
    row.index = m->params.all++;
    m->params.known[row.index] = hash_text(row.name);
    row.entry = row.cut == CUT_NONE ? m->params.all_whole++ : m->params.all_cut++;
    count(m, &row);
    return holds(m, &row) ? params_add(&m->params, &row) : ST_OK;
}

static enum status add_gain(struct model *m, const char *name, struct tensor *w, struct tensor *g)
{
    struct param row = {.role = ROLE_GAIN, .rows = 1, .cols = m->cfg->model.width};

    snprintf(row.name, sizeof row.name, "%s", name);
    return add_param(m, row, w, g);
}

/* sigma of a factor (or of W): CoLA's gives Var((A B)_ij) = 1 / (in + out). */
static double factor_sigma(const struct model *m, const struct linear *l)
{
    double r = (double)m->cfg->model.rank, io = (double)(l->in + l->out);

    if (m->cfg->model.init != INIT_COLA || !config_low_rank(m->cfg))
        return m->cfg->model.init_std;
    return 1.0 / sqrt(sqrt(r * io)); /* r^(-1/4) (in + out)^(-1/4) */
}

static enum status add_factor(struct model *m, int layer, const struct linear *l, int factor_b,
                              struct tensor *const slot[2])
{
    int low = config_low_rank(m->cfg);
    int64_t r = m->cfg->model.rank;
    struct param row = {.role = factor_b ? l->role_b : l->role_a, .sigma = factor_sigma(m, l)};

    row.rows = factor_b ? l->out : r;
    row.cols = factor_b && low ? r : l->in;
    snprintf(row.name, sizeof row.name, "model.layers.%d.%s%s.weight", layer, l->name,
             !low       ? ""
             : factor_b ? ".up"
                        : ".down");
    return add_param(m, row, slot[0], slot[1]);
}

/* A group: all A one after the other, then all B. */
static enum status add_group(struct model *m, int layer, const struct linear *l, int n,
                             struct proj *const group[2])
{
    group[0]->n = group[1]->n = n;
    for (int i = 0; config_low_rank(m->cfg) && i < n; i++) {
        struct tensor *const slot[2] = {&group[0]->a[i], &group[1]->a[i]};

        TRY(add_factor(m, layer, &l[i], 0, slot));
    }
    for (int i = 0; i < n; i++) {
        struct tensor *const slot[2] = {&group[0]->b[i], &group[1]->b[i]};

        TRY(add_factor(m, layer, &l[i], 1, slot));
    }
    return ST_OK;
}

/* Biases of q, k and v: each rank has those of the heads that it computes. */
static enum status add_biases(struct model *m, int layer, const struct linear *l,
                              struct proj *const group[2])
{
    for (int i = 0; m->cfg->model.qkv_bias && i < PROJ_MAX; i++) {
        struct param row = {.role = ROLE_BIAS, .rows = 1, .cols = l[i].out};

        row.cut = m->shape.heads_cut ? CUT_COLS : CUT_NONE;
        snprintf(row.name, sizeof row.name, "model.layers.%d.%s.bias", layer, l[i].name);
        TRY(add_param(m, row, &group[0]->bias[i], &group[1]->bias[i]));
    }
    return ST_OK;
}

static enum status add_block(struct model *m, int layer)
{
    const struct config_model *c = &m->cfg->model;
    int64_t d = c->width, kv = c->kv_heads * m->shape.head_dim, f = c->ffn;
    struct block *w = &m->blocks[layer], *g = &m->dblocks[layer];
    const struct linear qkv[] = {{"self_attn.q_proj", d, d, ROLE_IN_A, ROLE_IN_B},
                                 {"self_attn.k_proj", d, kv, ROLE_IN_A, ROLE_IN_B},
                                 {"self_attn.v_proj", d, kv, ROLE_IN_A, ROLE_IN_B}};
    const struct linear o = {"self_attn.o_proj", d, d, ROLE_OUT_A, ROLE_OUT_B};
    const struct linear gu[] = {{"mlp.gate_proj", d, f, ROLE_IN_A, ROLE_IN_B},
                                {"mlp.up_proj", d, f, ROLE_IN_A, ROLE_IN_B}};
    const struct linear down = {"mlp.down_proj", f, d, ROLE_OUT_A, ROLE_OUT_B};
    struct proj *const groups[4][2] = {
        {&w->qkv, &g->qkv}, {&w->wo, &g->wo}, {&w->gate_up, &g->gate_up}, {&w->down, &g->down}};
    char name[96];

    snprintf(name, sizeof name, "model.layers.%d.input_layernorm.weight", layer);
    TRY(add_gain(m, name, &w->qkv.gain, &g->qkv.gain));
    TRY(add_group(m, layer, qkv, 3, groups[0]));
    TRY(add_biases(m, layer, qkv, groups[0]));
    TRY(add_group(m, layer, &o, 1, groups[1]));
    snprintf(name, sizeof name, "model.layers.%d.post_attention_layernorm.weight", layer);
    TRY(add_gain(m, name, &w->gate_up.gain, &g->gate_up.gain));
    TRY(add_group(m, layer, gu, 2, groups[2]));
    return add_group(m, layer, &down, 1, groups[3]);
}

static enum status add_ends(struct model *m, int head)
{
    struct param row = {.role = head ? ROLE_HEAD : ROLE_EMBED,
                        .rows = m->shape.vocab_padded,
                        .cols = m->cfg->model.width,
                        .real_rows = m->cfg->model.vocab,
                        .sigma = m->cfg->model.init_std};

    snprintf(row.name, sizeof row.name, "%s",
             head ? "lm_head.weight" : "model.embed_tokens.weight");
    if (head)
        return add_param(m, row, &m->ends.head, &m->dends.head);
    if (m->cfg->model.tied) { /* the head reads the same memory and has a gradient of its own */
        row.twice = 1;
        row.copy = !model_embeds(m);
        row.use_w[1] = model_heads(m) ? &m->ends.head : NULL;
        row.use_g[1] = model_heads(m) ? &m->dends.head : NULL;
    }
    return add_param(m, row, model_embeds(m) ? &m->ends.embed : NULL,
                     model_embeds(m) ? &m->dends.embed : NULL);
}

static void set_shape(struct model *m)
{
    const struct config *c = m->cfg;
    struct model_shape *s = &m->shape;
    struct tp_env probe = {0};
    int p = m->tp_size;

    probe.vanilla_form =
        c->parallel.vanilla == VANILLA_STRONG ? VANILLA_FORM_STRONG : VANILLA_FORM_RELEASED;

    int heads_cut = m->strategy->heads_cut(&probe), ffn_cut = m->strategy->ffn_cut;
    int latent_cut = m->strategy->low_rank && !m->strategy->stream_cut;

    s->width = c->model.width;
    s->head_dim = c->model.width / c->model.heads;
    s->vocab_padded = config_vocab_padded(c);
    s->grains = (int32_t)c->parallel.grains / p;
    s->stream = m->strategy->stream_cut ? s->width / p : s->width;
    s->stream_grains = m->strategy->stream_cut ? s->grains : 1;
    s->heads_cut = heads_cut;
    s->heads_l = heads_cut ? c->model.heads / p : c->model.heads;
    s->kv_heads_l = heads_cut ? c->model.kv_heads / p : c->model.kv_heads;
    s->head_grains = heads_cut ? s->grains : 1;
    s->ffn_l = ffn_cut ? c->model.ffn / p : c->model.ffn;
    s->ffn_grains = ffn_cut ? s->grains : 1;
    s->latent_l = latent_cut ? c->model.rank / p : c->model.rank;
    s->latent_grains = latent_cut ? s->grains : 1;
}

static enum status build(struct model *m)
{
    int layers = (int)m->cfg->model.layers;

    m->blocks = calloc((size_t)layers, sizeof *m->blocks);
    m->dblocks = calloc((size_t)layers, sizeof *m->dblocks);
    if (!m->blocks || !m->dblocks)
        return fail(ST_ENOMEM, "no memory for the table of %d layers", layers);
    TRY(params_open(&m->params, layers * 19 + 3, m->tp_rank, m->tp_size));
    m->building = -1;
    TRY(add_ends(m, 0));
    for (m->building = 0; m->building < layers; m->building++)
        TRY(add_block(m, m->building));
    TRY(add_gain(m, "model.norm.weight", &m->ends.gain, &m->dends.gain));
    return m->cfg->model.tied ? ST_OK : add_ends(m, 1);
}

enum status model_open(struct model *m, const struct config *cfg, int tp_rank, int tp_size,
                       enum dtype wide)
{
    struct model_part all = {.tp_rank = tp_rank, .tp_size = tp_size, .stages = 1, .chunks = 1};

    return model_open_part(m, cfg, &all, wide);
}

/* Which blocks are whose. A whole model asks nothing of the configuration's pipeline. */
static enum status deal(struct model *m)
{
    int runs = m->part.stages * m->part.chunks;

    m->first = calloc((size_t)runs + 1, sizeof *m->first);
    if (!m->first)
        return fail(ST_ENOMEM, "no memory for a table of %d runs of blocks", runs);
    m->first[1] = (int)m->cfg->model.layers;
    return runs > 1 ? runs_deal(m->first, m->cfg, runs) : ST_OK;
}

enum status model_open_part(struct model *m, const struct config *cfg,
                            const struct model_part *part, enum dtype wide)
{
    int tp_rank = part->tp_rank, tp_size = part->tp_size;
    enum status st;

    memset(m, 0, sizeof *m);
    m->cfg = cfg;
    m->strategy = model_strategy(cfg);
    m->tp_rank = tp_rank;
    m->tp_size = tp_size;
    m->part = *part;
    m->ends.tied = m->dends.tied = cfg->model.tied;
    m->ends.vocab = m->dends.vocab = cfg->model.vocab;
    set_shape(m);
    st = deal(m);
    if (st == ST_OK)
        st = build(m);
    if (st != ST_OK) {
        model_close(m);
        return st;
    }
    params_types(&m->params, cfg, wide);
    return ST_OK;
}

void model_close(struct model *m)
{
    free(m->blocks);
    free(m->dblocks);
    free(m->first);
    m->first = NULL;
    m->blocks = m->dblocks = NULL;
    params_close(&m->params);
}

void model_env(struct block_env *env, const struct model *m)
{
    static const enum norm_form forms[] = {[NORM_ONLINE] = NORM_FORM_ONLINE,
                                           [NORM_ONLINE_LOCAL] = NORM_FORM_LOCAL,
                                           [NORM_SYNC] = NORM_FORM_SYNC};
    const struct config *c = m->cfg;
    struct norm norm = {.width = c->model.width, .eps = c->model.norm_eps};

    memset(env, 0, sizeof *env);
    env->strategy = m->strategy;
    env->tp.act = m->params.work;
    env->tp.payload = c->parallel.tp_payload == PAYLOAD_BF16 ? DT_BF16 : m->params.wide;
    env->tp.norm = norm;
    env->tp.lat.norm = norm;
    env->tp.lat.act = c->model.layer == LAYER_COLA ? ACT_SILU : ACT_NONE;
    env->tp.swiglu = c->model.outer_silu == SILU_ON ? SWIGLU_SILU : SWIGLU_PRODUCT;
    env->tp.norm_form = forms[c->parallel.norm];
    env->tp.vanilla_form =
        c->parallel.vanilla == VANILLA_STRONG ? VANILLA_FORM_STRONG : VANILLA_FORM_RELEASED;
    env->tp.grouping = c->parallel.grouping;
    env->tp.exposed = c->parallel.overlap == OVERLAP_OFF;
    env->tp.grains = m->shape.grains;
}

void model_rope_table(void *table, enum dtype dt, const struct model *m, int64_t positions)
{
    const double two_pi = 6.283185307179586476925286766559;
    int64_t hd = m->shape.head_dim, half = hd / 2;
    double log_theta = elementary_log(m->cfg->model.rope_theta);

    for (int64_t j = 0; j < half; j++) {
        double frequency = elementary_exp(-log_theta * (double)(2 * j) / (double)hd);

        for (int64_t i = 0; i < positions; i++) {
            double sine, cosine;

            elementary_sincos_turns(&sine, &cosine, (double)i * frequency / two_pi);
            dtype_store(table, dt, i * hd + j, cosine);
            dtype_store(table, dt, i * hd + half + j, sine);
        }
    }
}

double model_flops_per_token(const struct model *m)
{
    const struct config *c = m->cfg;

    return 6.0 * m->weights +
           6.0 * (double)c->model.layers * (double)c->model.width * (double)(c->train.seq + 1);
}
