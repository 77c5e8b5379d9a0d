#include "common/train/step_graph.h"
#include "common/train/step_read.h"

#include "common/backend/planted.h"
#include "common/backend/trace.h"

struct micro_batch step_micro_batch(const struct step *s, int index, double scale)
{
    int64_t first = index * s->micro, left = step_samples(s) - first;
    int64_t samples = left < s->micro ? left : s->micro, seq = s->cfg->train.seq;
    struct micro_batch mb = {.samples = samples, .seq = seq, .scale = scale};

    mb.tokens = tensor_rows(&s->tokens, first * seq, samples * seq, (int32_t)samples);
    mb.targets = tensor_rows(&s->targets, first * seq, samples * seq, (int32_t)samples);
    if (s->cfg->data.reset_documents)
        mb.starts = tensor_rows(&s->starts, first * seq, samples * seq, (int32_t)samples);
    mb.loss = tensor_rows(&s->loss, first * seq, samples * seq, (int32_t)samples);
    mb.head_chunk = s->head_chunk;
    if (s->head_plan)
        mb.head_plan = &s->head_plan[(s->probing ? s->micro_batches : index) * s->head_chunks];
    return mb;
}

static enum status upload(struct step *s, const int32_t *tokens, const int32_t *targets)
{
    size_t bytes = (size_t)tensor_count(&s->tokens) * sizeof *tokens;

    TRY(device_upload(s->at.dev, s->tokens.data, tokens, bytes));
    return device_upload(s->at.dev, s->targets.data, targets, bytes);
}

enum status step_documents(struct step *s, const int32_t *starts)
{
    FAIL_IF(!s->cfg->data.reset_documents, ST_EINTERNAL);
    return device_upload(s->at.dev, s->starts.data, starts,
                         (size_t)tensor_count(&s->starts) * sizeof *starts);
}

static enum status update(struct step *s, int64_t t, double lr)
{
    TRY(optimizer_norm(&s->optimizer, s->at.dev, s->cfg->train.clip));
    return optimizer_update(&s->optimizer, s->at.dev, t, lr);
}

/* keep: backward follows. */
static enum status run_forward(struct step *s, const struct instruction *in, int keep)
{
    struct stage *chunk = &s->chunk[in->chunk];
    struct micro_batch mb = step_micro_batch(s, in->micro, 0.0);
    struct tensor *x;

    stage_use(chunk, in->slot);
    switch (in->kind) {
    case INSTR_RECV_FORWARD:
        TRY(stage_begin(chunk, &mb, keep, &x));
        return pipe_receive(&s->pipe, x, PIPE_FORWARD);
    case INSTR_FORWARD:
        TRY(stage_forward(chunk, &mb, keep));
        return !keep && chunk->heads ? stage_loss(chunk, &mb) : ST_OK;
    default:
        return pipe_send(&s->pipe, s->at.dev, &chunk->x_end, PIPE_FORWARD);
    }
}

static enum status run_backward(struct step *s, const struct instruction *in, double scale)
{
    struct stage *chunk = &s->chunk[in->chunk];
    struct micro_batch mb = step_micro_batch(s, in->micro, scale);
    const struct sample_plan *plan = &s->plan[s->probing ? s->micro_batches : in->micro];

    stage_use(chunk, in->slot);
    chunk->watch = s->reducing && in->micro == s->micro_batches - 1 ? &s->watch : NULL;
    switch (in->kind) {
    case INSTR_RECV_BACKWARD:
        TRY(stage_gradient(chunk));
        return pipe_receive(&s->pipe, &chunk->dx, PIPE_BACKWARD);
    case INSTR_BACKWARD:
        return stage_backward(chunk, &mb, plan);
    case INSTR_BACKWARD_INPUT:
        return stage_backward_input(chunk, &mb, plan);
    case INSTR_BACKWARD_WEIGHT:
        return stage_backward_weight(chunk, plan);
    default:
        return pipe_send(&s->pipe, s->at.dev, &chunk->dx, PIPE_BACKWARD);
    }
}

/* An instruction begins, for a profile. */
static void traced(struct step *s, const struct instruction *in)
{
    static const char *const names[] = {[INSTR_RECV_FORWARD] = "receive forward",
                                        [INSTR_FORWARD] = "forward",
                                        [INSTR_SEND_FORWARD] = "send forward",
                                        [INSTR_RECV_BACKWARD] = "receive backward",
                                        [INSTR_BACKWARD] = "backward",
                                        [INSTR_BACKWARD_INPUT] = "backward, inputs",
                                        [INSTR_BACKWARD_WEIGHT] = "backward, weights",
                                        [INSTR_SEND_BACKWARD] = "send backward",
                                        [INSTR_REDUCE] = "reduce",
                                        [INSTR_UPDATE] = "update"};

    trace_open(s->at.dev, (struct trace_span){.name = names[in->kind],
                                              .kind = "instruction",
                                              .key = {"micro-batch", "chunk"},
                                              .value = {in->micro, in->chunk}});
}

/* All forward and backward passes of a list. scale 0: an evaluation. */
static enum status run_passes(struct step *s, const struct schedule *list, double scale)
{
    for (int i = 0; i < list->n; i++) {
        const struct instruction *in = &list->list[i];

        if (in->kind >= INSTR_REDUCE)
            continue;
        traced(s, in);
        TRY(in->kind <= INSTR_SEND_FORWARD ? run_forward(s, in, scale != 0.0)
                                           : run_backward(s, in, scale));
        trace_close(s->at.dev);
    }
    return pipe_flush(&s->pipe);
}

/* The one instruction of a kind that follows the passes. */
static enum status run_last(struct step *s, enum instruction_kind kind, int64_t t, double lr)
{
    for (int i = 0; i < s->schedule.n; i++) {
        const struct instruction *in = &s->schedule.list[i];

        if (in->kind != kind)
            continue;
        traced(s, in);
        TRY(kind == INSTR_REDUCE ? optimizer_reduce(&s->optimizer, s->at.dev) : update(s, t, lr));
        trace_close(s->at.dev);
    }
    return ST_OK;
}

/* All that a step does before the update: the same calls whatever the tokens are. */
static enum status run_gradients(struct step *s, double scale)
{
    optimizer_start(&s->optimizer);
    s->reducing = 1;
    TRY(run_passes(s, &s->schedule, scale));
    return run_last(s, INSTR_REDUCE, 0, 0.0);
}

enum status step_issue(struct step *s, const int32_t *tokens, const int32_t *targets, int64_t valid,
                       int64_t t, double lr)
{
    double scale = 1.0 / (double)valid;

    if (valid < 1)
        return fail(ST_EFORMAT, "a global batch has no target to learn from: every one is padding");
    TRY(upload(s, tokens, targets));
    if (PLANTED(PLANTED_RANK_MEANS))
        scale = 1.0 / (double)(planted_valid(targets, s->tokens.rows) * s->at.dp->size);
    TRY(step_graph_run(s, run_gradients, scale));
    TRY(run_last(s, INSTR_UPDATE, t, lr));
    return step_keep(s, valid);
}

enum status step_train(struct step *s, const int32_t *tokens, const int32_t *targets, int64_t valid,
                       int64_t t, double lr, struct step_result *r)
{
    FAIL_IF(s->kept.n != 0, ST_EINTERNAL);
    TRY(step_issue(s, tokens, targets, valid, t, lr));
    return step_read(s, r);
}

enum status step_gradients(struct step *s, const int32_t *tokens, const int32_t *targets,
                           int64_t valid, double *loss_sum)
{
    if (valid < 1)
        return fail(ST_EFORMAT, "a batch has no target to learn from: every one is padding");
    TRY(upload(s, tokens, targets));
    s->reducing = 0;
    TRY(run_passes(s, &s->schedule, 1.0 / (double)valid));
    TRY(optimizer_join_tied(&s->optimizer, s->at.dev));
    return step_total_loss(s, loss_sum);
}

/* Of the first micro-batch, where it was computed; tokens in their order. */
static enum status probe_loss(struct step *s, double *sum)
{
    int64_t rows = s->micro * s->cfg->train.seq;
    enum dtype wide = s->at.dev->wide;

    *sum = 0.0;
    if (!step_is_last(s))
        return ST_OK;
    TRY(device_download(s->at.dev, s->host_loss, s->loss.data, (size_t)rows * dtype_size(wide)));
    for (int64_t i = 0; i < rows; i++)
        *sum += dtype_load(s->host_loss, wide, i);
    return ST_OK;
}

enum status step_probe(struct step *s, const int32_t *tokens, const int32_t *targets, int64_t valid,
                       double *loss_sum)
{
    enum status st;

    FAIL_IF(s->probe.n == 0 || valid < 1, ST_EINTERNAL);
    TRY(upload(s, tokens, targets));
    s->reducing = 0;
    s->probing = 1;
    st = run_passes(s, &s->probe, 1.0 / (double)valid);
    s->probing = 0;
    TRY(st);
    TRY(optimizer_join_tied(&s->optimizer, s->at.dev));
    if (PLANTED(PLANTED_BACKEND) && s->training == STEP_TRAINS)
        TRY(planted_scale(s->at.dev, &s->model.params.item[s->model.params.n / 2].g, 0, 1.01,
                          NULL));
    return probe_loss(s, loss_sum);
}

enum status step_evaluate(struct step *s, const int32_t *tokens, const int32_t *targets,
                          double *sum)
{
    TRY(upload(s, tokens, targets));
    TRY(run_passes(s, &s->evaluation, 0.0));
    return step_total_loss(s, sum);
}
