/* A pass before the first step, on a device that chooses its kernels at first use. */
#include "common/train/place.h"
#include "common/train/step.h"

#include <stdlib.h>

/* Micro-batches that the pass runs: the first writes gradients, the second adds to them. */
enum { WARM_MICROS = 2 };

/* What a neighbour would send. */
static enum status fill(struct step *s, const struct tensor *t)
{
    return place_fill_random(s->at.dev, t->data, t->dtype,
                             (size_t)tensor_count(t) * dtype_size(t->dtype));
}

static enum status run(struct step *s, const struct instruction *in)
{
    struct stage *chunk = &s->chunk[in->chunk];
    struct micro_batch mb = step_micro_batch(s, in->micro, 1e-4);
    struct tensor *x;

    stage_use(chunk, in->slot);
    chunk->watch = NULL; /* no gradient is complete */
    switch (in->kind) {
    case INSTR_RECV_FORWARD:
        TRY(stage_begin(chunk, &mb, 1, &x));
        return fill(s, x);
    case INSTR_FORWARD:
        return stage_forward(chunk, &mb, 1);
    case INSTR_RECV_BACKWARD:
        TRY(stage_gradient(chunk));
        return fill(s, &chunk->dx);
    case INSTR_BACKWARD:
        return stage_backward(chunk, &mb, &s->plan[in->micro]);
    case INSTR_BACKWARD_INPUT:
        return stage_backward_input(chunk, &mb, &s->plan[in->micro]);
    case INSTR_BACKWARD_WEIGHT:
        return stage_backward_weight(chunk, &s->plan[in->micro]);
    default: /* sends; and what follows the passes */
        return ST_OK;
    }
}

/* Tokens of all kinds, each its own target. */
static enum status fill_tokens(struct step *s)
{
    size_t n = (size_t)tensor_count(&s->tokens), bytes = n * sizeof(int32_t);
    int32_t *ids = malloc(bytes);
    enum status st = ids ? ST_OK : fail(ST_ENOMEM, "no memory for %zu tokens", n);

    for (size_t i = 0; ids && i < n; i++)
        ids[i] = (int32_t)((int64_t)i % s->cfg->model.vocab);
    if (st == ST_OK)
        st = device_upload(s->at.dev, s->tokens.data, ids, bytes);
    if (st == ST_OK)
        st = device_upload(s->at.dev, s->targets.data, ids, bytes);
    free(ids);
    return st;
}

enum status step_warm(struct step *s)
{
    struct ledger *counts = s->at.ledger, kept;

    if (!s->at.dev->warms || s->training != STEP_TRAINS || step_stages(s) == 1)
        return ST_OK;
    if (counts)
        kept = *counts;
    TRY(fill_tokens(s));
    for (int i = 0; i < s->schedule.n; i++)
        if (s->schedule.list[i].kind < INSTR_REDUCE && s->schedule.list[i].micro < WARM_MICROS)
            TRY(run(s, &s->schedule.list[i]));
    TRY(device_sync(s->at.dev));
    if (counts)
        *counts = kept;
    return ST_OK;
}
