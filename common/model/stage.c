#include "common/model/stage.h"

#include "common/backend/planted.h"
#include "common/parallel/head.h"

#include <stdlib.h>
#include <string.h>

static void set_env(struct stage *s, struct model *m, const struct tp_env *from)
{
    memset(s, 0, sizeof *s);
    s->model = m;
    model_env(&s->env, m);
    s->env.tp.dev = from->dev;
    s->env.tp.tp = from->tp;
    s->env.tp.ledger = from->ledger;
    s->env.tp.scratch = from->scratch;
}

/* Takes the rotary table from state and fills it, unless that arena only plans. */
static enum status make_table(struct stage *s, const struct tp_env *from, struct arena *state,
                              int64_t positions)
{
    struct model *m = s->model;
    enum dtype wide = m->params.wide;
    size_t bytes = (size_t)(positions * m->shape.head_dim) * dtype_size(wide);
    void *table, *host;
    enum status st;

    TRY(arena_take(state, &table, bytes));
    s->rope_table = tensor_view(table, wide, positions, m->shape.head_dim);
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

static enum status open_slots(struct stage *s, int slots)
{
    s->slot = calloc((size_t)slots, sizeof *s->slot);
    for (s->slots = 0; s->slot && s->slots < slots; s->slots++) {
        struct stage_slot *slot = &s->slot[s->slots];

        slot->block = calloc((size_t)s->model->cfg->model.layers, sizeof *slot->block);
        if (!slot->block)
            break;
    }
    return s->slots == slots ? ST_OK : fail(ST_ENOMEM, "no memory for the activations' table");
}

enum status stage_open(struct stage *s, struct model *m, const struct tp_env *from,
                       struct arena *state, struct arena *acts, int64_t positions)
{
    set_env(s, m, from);
    s->end = (int)m->cfg->model.layers;
    s->embeds = s->heads = 1;
    TRY(open_slots(s, 1));
    s->slot[0].acts = acts;
    s->env.rope_table = &s->rope_table;
    stage_use(s, 0);
    return make_table(s, from, state, positions);
}

/* A slot's memory: all the room when planning, else its part. */
static enum status slot_memory(struct stage *s, struct stage_slot *slot,
                               const struct stage_run *run)
{
    void *p = NULL;

    if (run->slot_bytes)
        TRY(arena_take(run->acts, &p, run->slot_bytes));
    slot->own =
        run->slot_bytes ? arena_over("activations", p, run->slot_bytes) : arena_plan("activations");
    slot->acts = &slot->own;
    return run->put_off ? wgrad_later_open(&slot->later, (s->end - s->begin) * WGRAD_MAX) : ST_OK;
}

enum status stage_open_run(struct stage *s, struct model *m, const struct tp_env *from,
                           struct arena *state, const struct stage_run *run, int64_t positions)
{
    set_env(s, m, from);
    s->halves = run->halves;
    model_chunk(m, run->chunk, &s->begin, &s->end);
    s->embeds = s->begin == 0;
    s->heads = s->end == m->cfg->model.layers;
    TRY(open_slots(s, run->slots));
    for (int i = 0; i < run->slots; i++)
        TRY(slot_memory(s, &s->slot[i], run));
    s->env.rope_table = &s->rope_table;
    stage_use(s, 0);
    if (!run->table)
        return make_table(s, from, state, positions);
    s->rope_table = *run->table;
    return ST_OK;
}

void stage_close(struct stage *s)
{
    for (int i = 0; s->slot && i < s->slots; i++) {
        free(s->slot[i].block);
        wgrad_later_close(&s->slot[i].later);
    }
    free(s->slot);
    s->slot = NULL;
    s->block = NULL;
    s->slots = 0;
}

size_t stage_slot_peak(const struct stage *s)
{
    size_t peak = 0;

    for (int i = 0; i < s->slots; i++)
        if (s->slot[i].acts->peak > peak)
            peak = s->slot[i].acts->peak;
    return peak;
}

void stage_use(struct stage *s, int slot)
{
    s->acts = s->slot[slot].acts;
    s->block = s->slot[slot].block;
    s->x_end = s->block[s->end - 1].x2;
}

/* Whoever looks at a block's activations wants all of them at once. */
static int in_halves(const struct stage *s)
{
    return !s->sight && halves_apply(&s->halves, &s->env, s->env.tp.samples);
}

static enum status forward_blocks(struct stage *s)
{
    struct halves_run run = {
        .block = &s->model->blocks[s->begin], .acts = &s->block[s->begin], .n = s->end - s->begin};

    if (in_halves(s)) {
        run.seq = run.acts->x0.rows / s->env.tp.samples;
        return halves_forward(&s->halves, &s->env, &run);
    }
    for (int64_t i = s->begin; i < s->end; i++) {
        TRY(block_forward(&s->env, &s->model->blocks[i], &s->block[i]));
        if (s->sight)
            TRY(s->sight->see(s->sight->context, i, &s->block[i]));
    }
    return ST_OK;
}

enum status stage_forward(struct stage *s, const struct micro_batch *mb, int keep)
{
    struct tensor *x = NULL;

    if (s->embeds) {
        TRY(stage_begin(s, mb, keep, &x));
        TRY(s->env.strategy->embed_forward(&s->env.tp, &s->model->ends, x, &mb->tokens));
    }
    TRY(forward_blocks(s));
    if (PLANTED(PLANTED_RESIDUAL) && s->heads)
        TRY(planted_subtract(s->env.tp.dev, &s->x_end,
                             &s->block[s->model->cfg->model.layers - 1].x1));
    return ST_OK;
}

enum status stage_blocks_forward(struct stage *s, const struct micro_batch *mb, int embed)
{
    struct tensor *x = NULL;

    TRY(stage_begin(s, mb, 1, &x));
    if (embed)
        TRY(s->env.strategy->embed_forward(&s->env.tp, &s->model->ends, x, &mb->tokens));
    return forward_blocks(s);
}

/* The head on samples [first, first + n) of mb. */
static enum status run_chunk(struct stage *s, const struct micro_batch *mb, int64_t first,
                             int64_t n, double scale)
{
    int64_t row = first * mb->seq, rows = n * mb->seq;
    int32_t samples = (int32_t)n;
    struct tensor x = tensor_rows(&s->x_end, row, rows, samples), dx = {0};
    struct tensor targets = tensor_rows(&mb->targets, row, rows, samples);
    struct tensor loss = tensor_rows(&mb->loss, row, rows, samples);
    struct head_io io = {.x = &x, .targets = &targets, .loss = &loss, .dx = &dx, .scale = scale};

    if (scale != 0.0)
        dx = tensor_rows(&s->dx, row, rows, samples);
    s->env.tp.samples = samples;
    return head_run(s->env.strategy, &s->env.tp, &s->model->ends, &s->model->dends, &io);
}

/* Chunk after chunk, each from the norm to the gradient of the stream, so that one chunk's logits
 * live. A chunk is whole samples: its rows and leaves of sums are those of the micro-batch. */
static enum status run_head(struct stage *s, const struct micro_batch *mb, double scale)
{
    int64_t chunk = mb->head_chunk ? mb->head_chunk : mb->samples;
    const struct sample_plan *plan = s->env.tp.plan;

    FAIL_IF(scale != 0.0 && !mb->head_plan, ST_EINTERNAL);
    for (int64_t first = 0, i = 0; first < mb->samples; first += chunk, i++) {
        int64_t left = mb->samples - first;

        s->env.tp.plan = scale != 0.0 ? &mb->head_plan[i] : NULL;
        TRY(run_chunk(s, mb, first, left < chunk ? left : chunk, scale));
    }
    s->env.tp.samples = (int32_t)mb->samples;
    s->env.tp.plan = plan;
    return ST_OK;
}

enum status stage_loss(struct stage *s, const struct micro_batch *mb)
{
    return run_head(s, mb, 0.0);
}

static enum status done(struct stage *s, int layer)
{
    FAIL_IF(s->env.tp.wgrad.n > 0 || s->env.tp.wgrad.holds > 0, ST_EINTERNAL);
    return s->watch ? s->watch->layer_done(s->watch->context, layer) : ST_OK;
}

/* Makes again what backward of layer i needs and forward did not keep. */
static enum status recompute(struct stage *s, int64_t i)
{
    enum recompute_kind mode = s->model->cfg->parallel.recompute;
    struct block_acts *a = &s->block[i];
    int known = mode == RECOMPUTE_BOTTLENECK;

    if (mode == RECOMPUTE_NONE || mode == RECOMPUTE_ELEMENTWISE)
        return ST_OK;
    a->qkv_a.z_known = a->wo_a.z_known = a->gate_up_a.z_known = a->down_a.z_known = known;
    return block_recompute(&s->env, &s->model->blocks[i], a);
}

static enum status take_gradient(struct stage *s)
{
    if (s->dx_memory) {
        s->dx = s->x_end;
        s->dx.data = s->dx_memory;
        return ST_OK;
    }
    return scratch_tokens(&s->env.tp, &s->dx, s->env.tp.act, s->x_end.rows, s->x_end.cols,
                          s->x_end.col_grains);
}

static enum status backward_blocks(struct stage *s)
{
    for (int64_t i = s->end - 1; i >= s->begin; i--) {
        TRY(recompute(s, i));
        TRY(block_backward(&s->env, &s->model->blocks[i], &s->model->dblocks[i], &s->block[i],
                           &s->dx));
        if (!s->env.tp.wgrad.later)
            TRY(done(s, (int)i));
    }
    return ST_OK;
}

enum status stage_gradient(struct stage *s)
{
    FAIL_IF(!s->dx_memory, ST_EINTERNAL);
    return take_gradient(s);
}

static enum status backward_head(struct stage *s, const struct micro_batch *mb)
{
    if (!s->heads)
        return ST_OK;
    TRY(take_gradient(s));
    TRY(run_head(s, mb, mb->scale));
    return done(s, (int)s->model->cfg->model.layers);
}

static enum status backward_embedding(struct stage *s, const struct micro_batch *mb)
{
    if (!s->embeds)
        return ST_OK;
    TRY(s->env.strategy->embed_backward(&s->env.tp, &s->model->dends, &s->dx, &mb->tokens));
    return done(s, -1);
}

enum status stage_backward(struct stage *s, const struct micro_batch *mb,
                           const struct sample_plan *plan)
{
    struct tp_env *env = &s->env.tp;
    size_t mark = arena_mark(env->scratch);

    env->plan = plan;
    TRY(backward_head(s, mb));
    TRY(backward_blocks(s));
    TRY(backward_embedding(s, mb));
    arena_release(env->scratch, mark);
    return ST_OK;
}

static struct wgrad_later *later_of(struct stage *s)
{
    for (int i = 0; i < s->slots; i++)
        if (s->slot[i].block == s->block)
            return &s->slot[i].later;
    return NULL;
}

/* Temporaries of the blocks go behind the slot's activations and stay: weight gradients read them.
 * The head's and the embedding's weight gradients are not put off: the head's would keep the
 * logits. */
enum status stage_backward_input(struct stage *s, const struct micro_batch *mb,
                                 const struct sample_plan *plan)
{
    struct tp_env *env = &s->env.tp;
    struct arena *scratch = env->scratch;
    size_t mark = arena_mark(scratch);
    enum status st;

    env->plan = plan;
    TRY(backward_head(s, mb));
    env->wgrad.later = later_of(s);
    s->acts->keeps = 1;
    env->scratch = s->acts;
    st = backward_blocks(s);
    env->scratch = scratch;
    env->wgrad.later = NULL;
    TRY(st);
    TRY(backward_embedding(s, mb));
    arena_release(scratch, mark);
    return ST_OK;
}

/* Block by block, the last first: the sum over replicas of one sets out while the others' products
 * run. */
enum status stage_backward_weight(struct stage *s, const struct sample_plan *plan)
{
    struct wgrad_later *later = later_of(s);
    int blocks = s->end - s->begin, each = later->n / blocks;

    FAIL_IF(later->n % blocks, ST_EINTERNAL);
    for (int i = s->end - 1; i >= s->begin; i--) {
        TRY(wgrad_later_run(later, s->env.tp.dev, plan, each));
        TRY(done(s, i));
    }
    return ST_OK;
}

enum status stage_blocks_backward(struct stage *s, const struct sample_plan *plan)
{
    size_t mark = arena_mark(s->env.tp.scratch);

    s->env.tp.plan = plan;
    TRY(take_gradient(s));
    TRY(op_convert(s->env.tp.dev, &s->dx, &s->x_end, 1));
    TRY(backward_blocks(s));
    arena_release(s->env.tp.scratch, mark);
    return ST_OK;
}
