#include "common/train/step_sums.h"

#include <stdlib.h>

/* Where the sums of micro-batches, and those of the head's chunks, stand. */
struct trees {
    struct sample_tree blocks, head;
};

static struct trees start(const struct step *s, int64_t begin, int64_t end)
{
    struct trees t;

    sample_tree_start(&t.blocks, begin, end, s->cfg->parallel.layout_exact);
    sample_tree_start(&t.head, begin, end, s->cfg->parallel.layout_exact);
    return t;
}

/* The plans of micro-batch i, which has `samples`. */
static void plan(struct step *s, struct trees *t, int i, int64_t samples)
{
    struct sample_plan *chunk = s->head_plan ? s->head_plan + i * s->head_chunks : NULL;

    sample_plan_next(&s->plan[i], &t->blocks, samples);
    for (; chunk && samples > 0; samples -= s->head_chunk, chunk++)
        sample_plan_next(chunk, &t->head, samples < s->head_chunk ? samples : s->head_chunk);
}

enum status step_sums_open(struct step *s)
{
    size_t plans = (size_t)s->micro_batches + 1;
    int heads = s->training && step_is_last(s);
    struct trees t;

    s->head_chunk = config_head_chunk(s->cfg);
    s->head_chunk = s->head_chunk < s->micro ? s->head_chunk : s->micro;
    s->head_chunks = (int)((s->micro + s->head_chunk - 1) / s->head_chunk);
    s->plan = calloc(plans, sizeof *s->plan);
    s->head_plan = heads ? calloc(plans * (size_t)s->head_chunks, sizeof *s->plan) : NULL;
    if (!s->plan || (heads && !s->head_plan))
        return fail(ST_ENOMEM, "no memory for the plans of %d micro-batches in %d chunks each",
                    s->micro_batches, s->head_chunks);
    t = start(s, s->begin, s->begin + s->micro);
    plan(s, &t, s->micro_batches, s->micro);
    t = start(s, s->begin, s->end);
    for (int i = 0; i < s->micro_batches; i++) {
        int64_t left = step_samples(s) - i * s->micro;

        plan(s, &t, i, left < s->micro ? left : s->micro);
    }
    return ST_OK;
}

void step_sums_close(struct step *s)
{
    free(s->plan);
    free(s->head_plan);
    s->plan = s->head_plan = NULL;
}

struct grad_slots step_sums_slots(const struct step *s)
{
    int plans = s->micro_batches + 1;

    return (struct grad_slots){
        .blocks = sample_plan_slots(s->plan, plans),
        .head = s->head_plan ? sample_plan_slots(s->head_plan, (int64_t)plans * s->head_chunks) : 1,
        .head_layer = (int)s->cfg->model.layers};
}

void step_sums_place(struct step *s)
{
    const struct params *p = &s->model.params;

    for (int i = 0; i <= s->micro_batches; i++)
        s->plan[i].plane = p->plane;
    for (int i = 0; s->head_plan && i < (s->micro_batches + 1) * s->head_chunks; i++)
        s->head_plan[i].plane = p->head_plane;
}
