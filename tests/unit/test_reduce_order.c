/* When gradients set out: the calls of a step on the recording backend, in their order. A bucket
 * begins its sum over replicas when all of its gradients are complete and while those of lower
 * layers are still to come, in the last micro-batch alone. */
#include "common/backend/record.h"
#include "common/train/step.h"
#include "tests/unit/check_unit.h"
#include "tests/unit/tiny_model.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#undef fail
#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

enum { EVENTS = 4096, LAYERS = 4 };

/* A gradient that was added to (its layer), or what the replicas' communicator did. */
struct event {
    enum { ADDED, BEGUN, WAITED } kind;
    int layer;
};

struct trace {
    struct event event[EVENTS];
    int n;
    const struct step *step;
    struct comm *dp;
};
static struct trace trace;

static void note(int kind, int layer)
{
    ck_assert_int_lt(trace.n, EVENTS);
    trace.event[trace.n++] = (struct event){.kind = kind, .layer = layer};
}

static void note_gradient(const struct tensor *dw)
{
    const struct params *p = &trace.step->model.params;

    for (int i = 0; i < p->n; i++) {
        const struct tensor *g = &p->item[i].g;
        const char *at = dw->data, *begin = g->data;

        if (at >= begin && at < begin + (size_t)tensor_count(g) * dtype_size(g->dtype)) {
            note(ADDED, p->item[i].layer);
            return;
        }
    }
    ck_abort_msg("a gradient of no parameter");
}

/* ---- the recording backend, with an ear at some calls ---- */

static enum status heard_weight_grad(struct device *dev, const struct weight_grad *w, int n,
                                     const struct sample_plan *plan)
{
    for (int i = 0; i < n; i++)
        note_gradient(&w[i].dw);
    return record_backend.math->weight_grad(dev, w, n, plan);
}

static enum status heard_rms(struct device *dev, const struct rms_grad *g,
                             const struct tensor *coef, const struct sample_plan *plan)
{
    note_gradient(&g->dgain);
    return record_backend.math->rms_backward(dev, g, coef, plan);
}

static enum status heard_embed(struct device *dev, struct tensor *dw, const struct tensor *dy,
                               const struct tensor *tokens, int64_t row0,
                               const struct sample_plan *plan)
{
    note_gradient(dw);
    return record_backend.math->embed_backward(dev, dw, dy, tokens, row0, plan);
}

static enum status heard_all_reduce(struct comm *c, struct tensor *t, int n)
{
    if (c == trace.dp)
        note(BEGUN, 0);
    return record_backend.comm->all_reduce_begin(c, t, n);
}

static enum status heard_reduce_scatter(struct comm *c, struct tensor *out, const struct tensor *in)
{
    if (c == trace.dp)
        note(BEGUN, 0);
    return record_backend.comm->reduce_scatter_begin(c, out, in);
}

static enum status heard_wait(struct comm *c)
{
    if (c == trace.dp)
        note(WAITED, 0);
    return record_backend.comm->wait(c);
}

/* ---- a step ---- */

struct rig {
    struct config cfg;
    struct math_ops math;
    struct comm_ops comm;
    struct backend be;
    struct ledger ledger;
    struct step_place at;
    struct step step;
};

static void open_group(struct rig *r, struct comm **c, int rank, int size)
{
    OK(record_comm(c, r->at.dev, rank, size, &r->ledger));
    (*c)->be = &r->be;
}

/* Replica 0 of two, stage 1 of `stages`, rehearsed with an ear at it. */
static void open_rig(struct rig *r, const char *const *words, int stages)
{
    memset(r, 0, sizeof *r);
    tiny_model_config(&r->cfg, words, 2 * stages);
    r->math = *record_backend.math;
    r->math.weight_grad = heard_weight_grad;
    r->math.rms_backward = heard_rms;
    r->math.embed_backward = heard_embed;
    r->comm = *record_backend.comm;
    r->comm.all_reduce_begin = heard_all_reduce;
    r->comm.reduce_scatter_begin = heard_reduce_scatter;
    r->comm.wait = heard_wait;
    r->be = (struct backend){
        .name = "heard", .device = record_backend.device, .math = &r->math, .comm = &r->comm};
    OK(record_open(&r->at.dev, DT_F32));
    r->at.dev->be = &r->be;
    r->at.ledger = &r->ledger;
    open_group(r, &r->at.tp, 0, 1);
    open_group(r, &r->at.dp, 0, 2);
    open_group(r, &r->at.pp, stages - 1, stages);
    for (int d = 0; stages > 1 && d < PIPE_DIRECTIONS; d++)
        open_group(r, &r->at.edges.prev[d], 1, 2);
    trace = (struct trace){.step = &r->step, .dp = r->at.dp};
    OK(step_open(&r->step, &r->cfg, &r->at, NULL, 1));
}

static void close_rig(struct rig *r)
{
    step_close(&r->step);
    comm_destroy(r->at.tp);
    comm_destroy(r->at.dp);
    comm_destroy(r->at.pp);
    for (int d = 0; d < PIPE_DIRECTIONS; d++)
        comm_destroy(r->at.edges.prev[d]);
    device_close(r->at.dev);
}

/* Gradients of layers from `lowest` up, or below it, that were added from event `from` on. */
static int added(int from, int to, int lowest, int below)
{
    int n = 0;

    for (int i = from; i < to; i++)
        n += trace.event[i].kind == ADDED && (trace.event[i].layer < lowest) == below;
    return n;
}

static const struct {
    const char *words[12];
    int stages, lowest; /* layer of the stage: -1 is the embedding */
} manners[] = {
    {{"parallel.zero=0", "train.micro_batch=1"}, 1, -1},
    {{"parallel.zero=1", "train.micro_batch=1"}, 1, -1},
    {{"parallel.zero=0", "train.micro_batch=2"}, 1, -1},
    {{"parallel.zero=1", "train.micro_batch=2", "model.layer=full"}, 1, -1},
    {{"parallel.zero=0", "train.micro_batch=1", "parallel.pp=2", "parallel.schedule=zb-h1",
      "parallel.stage_layers=1,3"},
     2,
     1},
    {{"parallel.zero=1", "train.micro_batch=1", "parallel.pp=2", "parallel.stage_layers=1,3"},
     2,
     1},
};

/* One bucket a layer, from the head down: when it begins, half of what the last micro-batch adds
 * below, or more, is still to come (ZB-H1 has the gains' gradients before). */
static void check_buckets(int lowest, int sharded)
{
    int buckets = LAYERS - lowest + 1, k = 0, end = trace.n, micros = trace.step->micro_batches;

    while (end > 0 && trace.event[end - 1].kind != ADDED)
        end--; /* the last gradient */
    for (int i = 0; i < trace.n; i++) {
        int layer = LAYERS - k;

        ck_assert(sharded || trace.event[i].kind != WAITED || i >= end);
        if (trace.event[i].kind != BEGUN || k == buckets)
            continue; /* what follows is no bucket: weights */
        ck_assert_msg(added(i, trace.n, layer, 0) == 0,
                      "the bucket of layer %d begins before its last gradient", layer);
        ck_assert_msg(2 * micros * added(i, trace.n, layer, 1) >= added(0, trace.n, layer, 1),
                      "the bucket of layer %d begins when those below are done", layer);
        if (layer > lowest)
            ck_assert_msg(i < end, "the bucket of layer %d begins after backward", layer);
        k++;
    }
    ck_assert_int_eq(k, buckets);
}

START_TEST(buckets_begin_during_backward)
{
    const char *words[16] = {"model.layers=4", "parallel.dp=2", "parallel.bucket=0",
                             "train.batch=8"};
    struct step_result result;
    struct rig r;
    int n = 4;

    for (int i = 0; manners[_i].words[i]; i++)
        words[n++] = manners[_i].words[i];
    open_rig(&r, words, manners[_i].stages);
    OK(step_train(&r.step, NULL, NULL, 1, 1, 0.0, &result));
    check_buckets(manners[_i].lowest, (int)r.cfg.parallel.zero);
    close_rig(&r);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reduce order");
    TCase *tc = tcase_create("all");

    tcase_add_loop_test(tc, buckets_begin_during_backward, 0, sizeof manners / sizeof *manners);
    suite_add_tcase(suite, tc);
    return check_unit(suite);
}
