#include "common/train/step.h"

#include "common/backend/planted.h"
#include "common/backend/record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

static int64_t local_samples(const struct step *s)
{
    return s->end - s->begin;
}

/* The most samples that a replica may have. */
static int64_t share_room(const struct step *s)
{
    return (s->cfg->train.batch + s->at.dp->size - 1) / s->at.dp->size;
}

static void set_share(struct step *s)
{
    const struct config *c = s->cfg;

    sample_share(c->train.batch, s->at.dp->rank, s->at.dp->size, &s->begin, &s->end);
    s->micro = c->train.micro_batch ? c->train.micro_batch : local_samples(s);
    if (s->micro > local_samples(s))
        s->micro = local_samples(s);
    s->positions = c->train.seq;
}

static enum status batch_tensor(struct step *s, struct tensor *t, enum dtype dt)
{
    int64_t rows = local_samples(s) * s->cfg->train.seq;
    void *p;

    TRY(arena_take(&s->batch, &p, (size_t)rows * dtype_size(dt)));
    *t = tensor_view(p, dt, rows, 1);
    return ST_OK;
}

static enum status carve_batch(struct step *s)
{
    size_t rows = (size_t)(local_samples(s) * s->cfg->train.seq);

    TRY(batch_tensor(s, &s->tokens, DT_I32));
    TRY(batch_tensor(s, &s->targets, DT_I32));
    TRY(batch_tensor(s, &s->loss, s->at.dev->wide));
    s->host_loss = malloc(rows * dtype_size(s->at.dev->wide));
    s->sample_loss = calloc((size_t)(s->cfg->train.batch + (s->at.dp->size + 1) * share_room(s)),
                            sizeof *s->sample_loss);
    if (!s->host_loss || !s->sample_loss)
        return fail(ST_ENOMEM, "no memory for the losses of %zu tokens", rows);
    return ST_OK;
}

static enum status arena_open(struct step *s, struct arena *a, const char *name, size_t bytes)
{
    void *p;

    if (s->planned) {
        *a = arena_plan(name);
        return ST_OK;
    }
    TRY(device_alloc(s->at.dev, &p, bytes ? bytes : ARENA_ALIGN));
    *a = arena_over(name, p, bytes);
    return device_zero(s->at.dev, p, bytes); /* touched once, now, not in the first steps */
}

static enum status arenas_open(struct step *s)
{
    TRY(arena_open(s, &s->state, "weights and optimiser", s->memory.state));
    TRY(arena_open(s, &s->grads, "gradients", s->memory.grads));
    TRY(arena_open(s, &s->acts, "activations", s->memory.acts));
    TRY(arena_open(s, &s->scratch, "scratch", s->memory.scratch));
    TRY(arena_open(s, &s->batch, "batch", s->memory.batch));
    if (s->planned)
        return ST_OK;
    TRY(comm_reserve(s->at.tp, s->memory.tp_staging));
    return comm_reserve(s->at.dp, s->memory.dp_staging);
}

static enum status build(struct step *s)
{
    const struct config *c = s->cfg;
    int exact = c->parallel.layout_exact;
    struct schedule_shape shape = {.order = ORDER_1F1B,
                                   .stages = 1,
                                   .chunks = 1,
                                   .micro_batches =
                                       (int)((local_samples(s) + s->micro - 1) / s->micro)};
    struct tp_env env = {
        .dev = s->at.dev, .tp = s->at.tp, .ledger = s->at.ledger, .scratch = &s->scratch};

    TRY(arenas_open(s));
    TRY(model_open(&s->model, c, s->at.tp->rank, s->at.tp->size, s->at.dev->wide));
    TRY(params_carve(&s->model.params, &s->state, s->training));
    if (s->training)
        TRY(params_carve_grads(&s->model.params, &s->grads,
                               sample_slots(s->begin, s->end, s->micro, exact)));
    TRY(stage_open(&s->stage, &s->model, &env, &s->state, &s->acts, s->positions));
    if (s->training)
        TRY(optimizer_open(&s->optimizer, &s->model, &s->state));
    TRY(carve_batch(s));
    return schedule_open(&s->schedule, &shape);
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

    optimizer_close(&s->optimizer);
    stage_close(&s->stage);
    model_close(&s->model);
    schedule_close(&s->schedule);
    free(s->host_loss);
    free(s->sample_loss);
    s->host_loss = NULL;
    s->sample_loss = NULL;
    for (size_t i = 0; i < sizeof arenas / sizeof *arenas; i++) {
        if (!s->planned && arenas[i]->base)
            device_release(s->at.dev, arenas[i]->base);
        arenas[i]->base = NULL;
    }
}

enum status step_init(struct step *s)
{
    return params_init(&s->model.params, s->at.dev, (uint64_t)s->cfg->train.seed);
}

/* ---- running ---- */

static struct micro_batch micro_batch(struct step *s, int index, double scale)
{
    int64_t first = index * s->micro, left = local_samples(s) - first;
    int64_t samples = left < s->micro ? left : s->micro, seq = s->cfg->train.seq;
    struct micro_batch mb = {.samples = samples, .seq = seq, .scale = scale};

    mb.tokens = tensor_rows(&s->tokens, first * seq, samples * seq, (int32_t)samples);
    mb.targets = tensor_rows(&s->targets, first * seq, samples * seq, (int32_t)samples);
    mb.loss = tensor_rows(&s->loss, first * seq, samples * seq, (int32_t)samples);
    return mb;
}

static enum status upload(struct step *s, const int32_t *tokens, const int32_t *targets)
{
    size_t bytes = (size_t)tensor_count(&s->tokens) * sizeof *tokens;

    TRY(device_upload(s->at.dev, s->tokens.data, tokens, bytes));
    return device_upload(s->at.dev, s->targets.data, targets, bytes);
}

/* Summed loss of each of this rank's samples, in token order, in float64. */
static enum status sample_losses(struct step *s, double *out)
{
    int64_t seq = s->cfg->train.seq;
    enum dtype wide = s->at.dev->wide;

    TRY(device_download(s->at.dev, s->host_loss, s->loss.data,
                        (size_t)tensor_count(&s->loss) * dtype_size(wide)));
    for (int64_t i = 0; i < local_samples(s); i++) {
        out[i] = 0.0;
        for (int64_t j = 0; j < seq; j++)
            out[i] += dtype_load(s->host_loss, wide, i * seq + j);
    }
    return ST_OK;
}

/* The loss of the global batch: samples added in their order, whoever computed them. */
static enum status total_loss(struct step *s, double *sum)
{
    int dp = s->at.dp->size;
    int64_t room = share_room(s), begin, end;
    double *all = s->sample_loss + s->cfg->train.batch, *mine = all + dp * room;

    TRY(sample_losses(s, mine));
    if (dp > 1 && s->at.dp_host)
        TRY(host_gather(s->at.dp_host, all, mine, (size_t)room * sizeof *mine));
    else
        memcpy(all, mine, (size_t)local_samples(s) * sizeof *mine);
    *sum = 0.0;
    for (int r = 0; r < dp; r++) {
        sample_share(s->cfg->train.batch, r, dp, &begin, &end);
        for (int64_t i = begin; i < end; i++)
            *sum += s->sample_loss[i] = all[r * room + i - begin];
    }
    return ST_OK;
}

static enum status update(struct step *s, int64_t t, double lr)
{
    TRY(optimizer_norm(&s->optimizer, s->at.dev, s->at.tp, s->cfg->train.clip));
    return optimizer_update(&s->optimizer, s->at.dev, t, lr);
}

static enum status run(struct step *s, const struct instruction *in, double scale, int64_t t,
                       double lr)
{
    struct micro_batch mb = micro_batch(s, in->micro, scale);

    switch (in->kind) {
    case INSTR_FORWARD:
        return stage_forward(&s->stage, &mb, 1);
    case INSTR_BACKWARD:
        sample_plan_next(&s->plan, &s->tree, mb.samples);
        s->plan.plane = (int64_t)s->model.params.plane;
        return stage_backward(&s->stage, &mb, &s->plan);
    case INSTR_REDUCE:
        return optimizer_reduce(&s->optimizer, s->at.dev, s->at.dp);
    case INSTR_UPDATE:
        return update(s, t, lr);
    default:
        break;
    }
    return ST_EINTERNAL;
}

/* Runs the instructions up to (not including) the first of kind `stop`. */
static enum status run_until(struct step *s, enum instruction_kind stop, double scale, int64_t t,
                             double lr)
{
    sample_tree_start(&s->tree, s->begin, s->end, s->cfg->parallel.layout_exact);
    for (int i = 0; i < s->schedule.n && s->schedule.list[i].kind != stop; i++)
        TRY(run(s, &s->schedule.list[i], scale, t, lr));
    return ST_OK;
}

enum status step_train(struct step *s, const int32_t *tokens, const int32_t *targets, int64_t valid,
                       int64_t t, double lr, struct step_result *r)
{
    double norm_scale[2], sum, scale = 1.0 / (double)valid;

    if (valid < 1)
        return fail(ST_EFORMAT, "a global batch has no target to learn from: every one is padding");
    TRY(upload(s, tokens, targets));
    if (PLANTED(PLANTED_RANK_MEANS))
        scale = 1.0 / (double)(planted_valid(targets, s->tokens.rows) * s->at.dp->size);
    TRY(run_until(s, (enum instruction_kind) - 1, scale, t, lr));
    TRY(total_loss(s, &sum));
    TRY(device_download(s->at.dev, norm_scale, s->optimizer.norm_scale.data, sizeof norm_scale));
    *r = (struct step_result){.loss = sum / (double)valid,
                              .grad_norm = norm_scale[0],
                              .scale = norm_scale[1],
                              .valid = valid};
    return ST_OK;
}

enum status step_gradients(struct step *s, const int32_t *tokens, const int32_t *targets,
                           int64_t valid, double *loss_sum)
{
    if (valid < 1)
        return fail(ST_EFORMAT, "a batch has no target to learn from: every one is padding");
    TRY(upload(s, tokens, targets));
    TRY(run_until(s, INSTR_REDUCE, 1.0 / (double)valid, 0, 0.0));
    TRY(optimizer_join_tied(&s->optimizer, s->at.dev));
    return total_loss(s, loss_sum);
}

enum status step_evaluate(struct step *s, const int32_t *tokens, const int32_t *targets,
                          double *sum)
{
    int64_t micro_batches = (local_samples(s) + s->micro - 1) / s->micro;

    TRY(upload(s, tokens, targets));
    for (int i = 0; i < micro_batches; i++) {
        struct micro_batch mb = micro_batch(s, i, 0.0);

        TRY(stage_forward(&s->stage, &mb, 0));
        TRY(stage_loss(&s->stage, &mb));
    }
    return total_loss(s, sum);
}

/* ---- rehearsal ---- */

static enum status rehearse(struct step *s, struct ledger *ledger, double *flops)
{
    struct step_result r;
    double sum;

    if (s->training)
        TRY(step_train(s, NULL, NULL, 1, 1, 0.0, &r));
    if (ledger)
        *ledger = *s->at.ledger;
    if (flops)
        *flops = record_flops(s->at.dev);
    return step_evaluate(s, NULL, NULL, &sum);
}

static struct step_memory measured(const struct step *s)
{
    return (struct step_memory){.state = s->state.peak,
                                .grads = s->grads.peak,
                                .acts = s->acts.peak,
                                .scratch = s->scratch.peak,
                                .batch = s->batch.peak,
                                .tp_staging = record_comm_peak(s->at.tp),
                                .dp_staging = record_comm_peak(s->at.dp)};
}

static enum status plan_on(struct step_memory *memory, struct ledger *ledger, double *flops,
                           const struct config *cfg, const struct step_place *at, int training)
{
    struct step *s = malloc(sizeof *s);
    enum status st;

    if (!s)
        return fail(ST_ENOMEM, "no memory for a rehearsal");
    st = step_open(s, cfg, at, NULL, training);
    if (st == ST_OK) {
        st = rehearse(s, ledger, flops);
        *memory = measured(s);
        step_close(s);
    }
    free(s);
    return st;
}

enum status step_plan(struct step_memory *memory, struct ledger *ledger, double *flops,
                      const struct config *cfg, enum dtype wide, int training)
{
    int tp = (int)cfg->parallel.tp, dp = (int)cfg->parallel.dp;
    struct ledger counted = {0};
    struct step_place at = {.ledger = &counted};
    enum status st;

    TRY(record_open(&at.dev, wide));
    st = record_comm(&at.tp, at.dev, 0, tp, &counted);
    if (st == ST_OK) /* the last replica has the largest share of an uneven batch */
        st = record_comm(&at.dp, at.dev, dp - 1, dp, &counted);
    if (st == ST_OK)
        st = plan_on(memory, ledger, flops, cfg, &at, training);
    comm_destroy(at.tp);
    comm_destroy(at.dp);
    device_close(at.dev);
    return st;
}
