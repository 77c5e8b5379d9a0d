/* A step rehearsed on the recording backend: what it needs, and what it sends. */
#include "common/backend/record.h"
#include "common/train/step.h"

#include <stdlib.h>

static size_t pipeline_peak(const struct step_place *at)
{
    const struct comm *all[] = {
        at->pp,           at->ends, at->edges.next[0], at->edges.next[1], at->edges.prev[0],
        at->edges.prev[1]};
    size_t peak = 0;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] && record_comm_peak(all[i]) > peak)
            peak = record_comm_peak(all[i]);
    return peak;
}

/* Payloads lie in staging of their own on ref alone; NCCL keeps its buffers. */
static struct step_memory measured(const struct step *s)
{
    int staged = s->cfg->run.backend == BACKEND_REF;
    size_t slot = 0, slots = 0, half = 0;
    const struct comm *second = s->at.second;

    for (int i = 0; i < s->chunks; i++) {
        size_t peak = stage_slot_peak(&s->chunk[i]);

        slot = peak > slot ? peak : slot;
        slots += (size_t)s->chunk[i].slots;
        half = s->chunk[i].halves.bytes > half ? s->chunk[i].halves.bytes : half;
    }
    return (struct step_memory){.state = s->state.peak,
                                .grads = s->grads.peak,
                                .acts = slot * slots,
                                .slot = slot,
                                .scratch = s->scratch.peak,
                                .half = half,
                                .batch = s->batch.peak,
                                .tp_staging = staged ? record_comm_peak(s->at.tp) : 0,
                                .dp_staging = staged ? record_comm_peak(s->at.dp) : 0,
                                .pp_staging = staged ? pipeline_peak(&s->at) : 0,
                                .second_staging = staged && second ? record_comm_peak(second) : 0,
                                .widened = staged ? record_widened(s->at.dev) : 0};
}

/* Of a rehearsal; ledger may be NULL. */
struct findings {
    struct step_memory memory;
    struct ledger *ledger;
    double flops;
};

/* A step and an evaluation. */
static enum status run_all(struct step *s, struct findings *f)
{
    struct step_result r;
    double sum;

    if (s->training == STEP_GRADIENTS)
        return step_probe(s, NULL, NULL, 1, &sum);
    if (s->training)
        TRY(step_train(s, NULL, NULL, 1, 1, 0.0, &r));
    if (f->ledger)
        *f->ledger = *s->at.ledger;
    f->flops = record_flops(s->at.dev);
    return step_evaluate(s, NULL, NULL, &sum);
}

static enum status rehearse(struct step *s, void *context)
{
    struct findings *f = context;
    enum status st = run_all(s, f);

    f->memory = measured(s);
    return st;
}

/* Communicators of the edge between a stage and the next one on the ring; this rank is `rank`. */
static enum status record_edge(struct comm *c[PIPE_DIRECTIONS], struct step_place *at, int rank)
{
    for (int d = 0; d < PIPE_DIRECTIONS; d++)
        TRY(record_comm(&c[d], at->dev, rank, 2, at->ledger));
    return ST_OK;
}

static enum status record_groups(struct step_place *at, const struct config *cfg,
                                 const struct mesh *m)
{
    int round = cfg->parallel.virtual_stages > 1, last = m->pp - 1;

    TRY(record_comm(&at->tp, at->dev, m->tp_rank, m->tp, at->ledger));
    if (cfg->parallel.overlap == OVERLAP_ALL)
        TRY(record_comm(&at->second, at->dev, m->tp_rank, m->tp, at->ledger));
    TRY(record_comm(&at->dp, at->dev, m->dp_rank, m->dp, at->ledger));
    TRY(record_comm(&at->pp, at->dev, m->pp_rank, m->pp, at->ledger));
    if (m->pp == 1)
        return ST_OK;
    if (cfg->model.tied && (m->pp_rank == 0 || m->pp_rank == last))
        TRY(record_comm(&at->ends, at->dev, m->pp_rank > 0, 2, at->ledger));
    if (m->pp_rank < last || round)
        TRY(record_edge(at->edges.next, at, 0));
    return m->pp_rank > 0 || round ? record_edge(at->edges.prev, at, 1) : ST_OK;
}

static void close_groups(struct step_place *at)
{
    comm_destroy(at->tp);
    comm_destroy(at->second);
    comm_destroy(at->dp);
    comm_destroy(at->pp);
    comm_destroy(at->ends);
    for (int d = 0; d < PIPE_DIRECTIONS; d++) {
        comm_destroy(at->edges.next[d]);
        comm_destroy(at->edges.prev[d]);
    }
}

static enum status run_on(const struct config *cfg, const struct step_place *at, int training,
                          enum status (*run)(struct step *s, void *context), void *context)
{
    struct step *s = malloc(sizeof *s);
    enum status st;

    if (!s)
        return fail(ST_ENOMEM, "no memory for a rehearsal");
    st = step_open(s, cfg, at, NULL, training);
    if (st == ST_OK) {
        st = run(s, context);
        step_close(s);
    }
    free(s);
    return st;
}

enum status step_rehearse(const struct config *cfg, const struct mesh *mesh, enum dtype wide,
                          int training, enum status (*run)(struct step *s, void *context),
                          void *context)
{
    struct ledger counted = {0};
    struct step_place at = {.ledger = &counted};
    enum status st;

    TRY(record_open(&at.dev, wide));
    st = record_groups(&at, cfg, mesh);
    if (st == ST_OK)
        st = run_on(cfg, &at, training, run, context);
    close_groups(&at);
    device_close(at.dev);
    return st;
}

enum status step_plan_at(struct step_memory *memory, struct ledger *ledger, double *flops,
                         const struct config *cfg, const struct mesh *mesh, enum dtype wide,
                         int training)
{
    struct findings f = {.ledger = ledger};
    enum status st = step_rehearse(cfg, mesh, wide, training, rehearse, &f);

    *memory = f.memory;
    if (flops)
        *flops = f.flops;
    return st;
}

enum status step_plan(struct step_memory *memory, struct ledger *ledger, double *flops,
                      const struct config *cfg, enum dtype wide, int training)
{
    const struct config_parallel *p = &cfg->parallel;
    struct mesh at = {
        .tp = (int)p->tp, .dp = (int)p->dp, .pp = (int)p->pp, .dp_rank = (int)p->dp - 1};

    return step_plan_at(memory, ledger, flops, cfg, &at, wide, training);
}
