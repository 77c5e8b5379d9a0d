/* What a step consists of: arenas, the part of the model, groups, order of instructions. */
#include "common/train/step_graph.h"
#include "common/train/step_read.h"
#include "common/train/step_sums.h"

#include "common/model/runs.h"

#include <stdlib.h>
#include <string.h>

int64_t step_samples(const struct step *s)
{
    return s->end - s->begin;
}

int64_t step_room(const struct step *s)
{
    return (s->cfg->train.batch + s->at.dp->size - 1) / s->at.dp->size;
}

static void set_share(struct step *s)
{
    const struct config *c = s->cfg;

    sample_share(c->train.batch, s->at.dp->rank, s->at.dp->size, &s->begin, &s->end);
    s->micro = c->train.micro_batch ? c->train.micro_batch : step_samples(s);
    if (s->micro > step_samples(s))
        s->micro = step_samples(s);
    s->positions = c->train.seq;
}

static enum status batch_tensor(struct step *s, struct tensor *t, enum dtype dt)
{
    int64_t rows = step_samples(s) * s->cfg->train.seq;
    void *p;

    TRY(arena_take(&s->batch, &p, (size_t)rows * dtype_size(dt)));
    *t = tensor_view(p, dt, rows, 1);
    return ST_OK;
}

static enum status carve_batch(struct step *s)
{
    size_t rows = (size_t)(step_samples(s) * s->cfg->train.seq);

    TRY(batch_tensor(s, &s->tokens, DT_I32));
    TRY(batch_tensor(s, &s->targets, DT_I32));
    if (s->cfg->data.reset_documents)
        TRY(batch_tensor(s, &s->starts, DT_I32));
    TRY(batch_tensor(s, &s->loss, s->at.dev->wide));
    TRY(step_kept_open(s));
    s->host_loss = malloc((size_t)step_slots(s) * rows * dtype_size(s->at.dev->wide));
    s->sample_loss = calloc((size_t)(s->cfg->train.batch + (s->at.dp->size + 1) * step_room(s)),
                            sizeof *s->sample_loss);
    if (!s->host_loss || !s->sample_loss)
        return fail(ST_ENOMEM, "no memory for the losses of %zu tokens", rows);
    return ST_OK;
}

/* space: of the addresses of a planning arena. */
static enum status arena_open(struct step *s, struct arena *a, const char *name,
                              enum arena_space space, size_t bytes)
{
    void *p;

    if (s->planned) {
        *a = arena_plan_in(name, space);
        return ST_OK;
    }
    TRY(device_alloc(s->at.dev, &p, bytes ? bytes : ARENA_ALIGN));
    *a = arena_over(name, p, bytes);
    return device_zero(s->at.dev, p, bytes); /* touched once, now, not in the first steps */
}

static enum status reserve_pipeline(struct step *s)
{
    struct comm *c[STEP_PIPELINE_COMMS];
    int n = step_pipeline_comms(c, &s->at);

    for (int i = 0; i < n; i++)
        TRY(comm_reserve(c[i], s->memory.pp_staging));
    return ST_OK;
}

static enum status arenas_open(struct step *s)
{
    TRY(arena_open(s, &s->state, "weights and optimiser", ARENA_STATE, s->memory.state));
    TRY(arena_open(s, &s->grads, "gradients", ARENA_GRADIENTS, s->memory.grads));
    TRY(arena_open(s, &s->acts, "activations", ARENA_ALONE, s->memory.acts));
    TRY(arena_open(s, &s->scratch, "scratch", ARENA_SCRATCH, s->memory.scratch));
    TRY(arena_open(s, &s->batch, "batch", ARENA_BATCH, s->memory.batch));
    if (s->planned)
        return ST_OK;
    TRY(comm_reserve(s->at.tp, s->memory.tp_staging));
    if (s->at.second)
        TRY(comm_reserve(s->at.second, s->memory.second_staging));
    TRY(comm_reserve(s->at.dp, s->memory.dp_staging));
    return reserve_pipeline(s);
}

int step_stage(const struct step *s)
{
    return s->at.pp ? s->at.pp->rank : 0;
}

int step_stages(const struct step *s)
{
    return s->at.pp ? s->at.pp->size : 1;
}

int step_is_last(const struct step *s)
{
    return step_stage(s) == step_stages(s) - 1;
}

static struct schedule_shape shape_of(const struct step *s)
{
    return (struct schedule_shape){.order = runs_order(s->cfg),
                                   .stage = step_stage(s),
                                   .stages = step_stages(s),
                                   .chunks = s->chunks,
                                   .micro_batches = s->micro_batches};
}

static enum status open_model(struct step *s)
{
    const struct config *c = s->cfg;
    struct model_part part = {.tp_rank = s->at.tp->rank,
                              .tp_size = s->at.tp->size,
                              .stage = step_stage(s),
                              .stages = step_stages(s),
                              .chunks = s->chunks};
    int sharded = s->training == STEP_TRAINS && c->parallel.zero && s->at.dp->size > 1;
    struct grad_slots slots = step_sums_slots(s);
    struct params *p = &s->model.params;

    TRY(model_open_part(&s->model, c, &part, s->at.dev->wide));
    p->pp = s->at.pp_host;
    TRY(params_carve(p, &s->state, s->training == STEP_TRAINS && !sharded));
    if (!s->training)
        return ST_OK;
    TRY(grains_open(&s->pieces, p, s->at.dp->rank, s->at.dp->size, sharded,
                    (size_t)c->parallel.bucket << 20));
    p->pieces = sharded ? &s->pieces : NULL;
    p->dp = s->at.dp_host;
    TRY(params_carve_grads(p, &s->grads, &slots));
    step_sums_place(s);
    TRY(grains_carve(&s->pieces, p, &s->state));
    return grains_carve_grads(&s->pieces, p, &s->grads);
}

/* What goes through a pipeline: a stream of one micro-batch. */
static enum status open_pipe(struct step *s)
{
    size_t bytes = (size_t)(s->micro * s->cfg->train.seq * s->model.shape.stream) *
                   dtype_size(s->model.params.work);

    if (step_stages(s) == 1)
        return ST_OK;
    TRY(arena_take(&s->batch, &s->dx, bytes));
    return pipe_open(&s->pipe, &s->at.edges, &s->batch, bytes);
}

static enum status open_chunks(struct step *s)
{
    struct tp_env env = {
        .dev = s->at.dev, .tp = s->at.tp, .ledger = s->at.ledger, .scratch = &s->scratch};

    s->chunk = calloc((size_t)s->chunks, sizeof *s->chunk);
    if (!s->chunk)
        return fail(ST_ENOMEM, "no memory for a table of %d runs of blocks", s->chunks);
    for (int i = 0; i < s->chunks; i++) {
        struct stage_run run = {.chunk = i,
                                .slots = s->schedule.slots[i],
                                .put_off = s->cfg->parallel.schedule == PIPELINE_ZB_H1,
                                .table = i > 0 ? &s->chunk[0].rope_table : NULL,
                                .acts = &s->acts,
                                .slot_bytes = s->memory.slot,
                                .halves = {.second = s->at.second, .bytes = s->memory.half}};

        TRY(stage_open_run(&s->chunk[i], &s->model, &env, &s->state, &run, s->positions));
        s->chunk[i].dx_memory = s->dx;
    }
    return ST_OK;
}

static enum status layer_done(void *context, int layer)
{
    struct step *s = context;

    return optimizer_layer_done(&s->optimizer, s->at.dev, layer);
}

static enum status build(struct step *s)
{
    struct optimizer_groups on = {
        .tp = s->at.tp, .dp = s->at.dp, .pp = s->at.pp, .ends = s->at.ends};
    struct schedule_shape shape;

    s->chunks = step_stages(s) > 1 ? (int)s->cfg->parallel.virtual_stages : 1;
    s->micro_batches = (int)((step_samples(s) + s->micro - 1) / s->micro);
    s->watch = (struct stage_watch){.layer_done = layer_done, .context = s};
    shape = shape_of(s);
    TRY(schedule_open(&s->schedule, &shape));
    TRY(schedule_open_forward(&s->evaluation, &shape));
    shape.micro_batches = 1;
    if (s->chunks == 1)
        TRY(schedule_open(&s->probe, &shape));
    TRY(arenas_open(s));
    TRY(step_sums_open(s));
    TRY(open_model(s));
    TRY(open_pipe(s));
    TRY(open_chunks(s));
    if (s->training)
        TRY(optimizer_open(&s->optimizer, &s->model, &s->pieces, &on, &s->state, &s->grads));
    return carve_batch(s);
}

enum status step_open(struct step *s, const struct config *cfg, const struct step_place *at,
                      const struct step_memory *memory, int training)
{
    enum status st;

    memset(s, 0, sizeof *s);
    s->cfg = cfg;
    s->at = *at;
    s->training = training;
    s->planned = memory == NULL;
    if (memory)
        s->memory = *memory;
    set_share(s);
    st = build(s);
    if (st != ST_OK)
        step_close(s);
    return st;
}

void step_close(struct step *s)
{
    struct arena *arenas[] = {&s->state, &s->grads, &s->acts, &s->scratch, &s->batch};

    step_graph_close(s);
    optimizer_close(&s->optimizer);
    for (int i = 0; s->chunk && i < s->chunks; i++)
        stage_close(&s->chunk[i]);
    free(s->chunk);
    s->chunk = NULL;
    grains_close(&s->pieces);
    model_close(&s->model);
    schedule_close(&s->schedule);
    schedule_close(&s->evaluation);
    schedule_close(&s->probe);
    step_sums_close(s);
    free(s->host_loss);
    free(s->sample_loss);
    s->host_loss = NULL;
    s->sample_loss = NULL;
    step_kept_close(s);
    for (size_t i = 0; i < sizeof arenas / sizeof *arenas; i++) {
        if (!s->planned && arenas[i]->base)
            device_release(s->at.dev, arenas[i]->base);
        arenas[i]->base = NULL;
    }
}

enum status step_init(struct step *s)
{
    TRY(params_init(&s->model.params, s->at.dev, (uint64_t)s->cfg->train.seed));
    return step_warm(s);
}
