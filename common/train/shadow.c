#include "common/train/shadow.h"

#include "common/train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Relative differences that a right backend stays within. The reference beside itself is the same
 * code: not a bit may differ. Else as validation/bounds.def has them for one step of a small model
 * (fp32 2e-6 and 1e-4, bf16 2e-4 and 3e-2), with room for deeper ones, whose roundings add up. */
static double bound_of(const struct config *cfg, double given, double fp32, double bf16)
{
    if (given > 0.0)
        return given;
    if (cfg->run.backend == BACKEND_REF)
        return 0.0;
    return cfg->train.precision == PRECISION_BF16 ? bf16 : fp32;
}

static void set_config(struct shadow *s, const struct config *cfg)
{
    s->loss_most = bound_of(cfg, cfg->shadow.loss, 1e-5, 1e-3);
    s->gradient_most = bound_of(cfg, cfg->shadow.gradient, 1e-3, 1e-1);
    s->cfg = *cfg;
    config_on_ref(&s->cfg);
    s->cfg.parallel.zero = 0; /* there are no moments to share */
    s->cfg.train.batch = cfg->train.micro_batch * cfg->parallel.dp;
}

static enum status take_host(struct shadow *s)
{
    const struct params *p = &s->step.model.params;
    size_t largest = (size_t)params_largest(p) * dtype_size(p->wide);
    size_t ranks = (size_t)s->place.at.tp->size + 1;

    s->live = malloc(largest);
    s->own = malloc(largest);
    s->sums = malloc(ranks * 2 * (size_t)p->n * sizeof *s->sums);
    if (!s->live || !s->own || !s->sums)
        return fail(ST_ENOMEM, "no host memory to compare tensors of %zu bytes with a shadow's",
                    largest);
    return ST_OK;
}

static enum status open_all(struct shadow *s, struct host *job)
{
    struct step_memory memory;

    TRY(place_open(&s->place, &s->cfg, job));
    TRY(step_plan_at(&memory, NULL, NULL, &s->cfg, &s->place.mesh, place_wide(&s->cfg),
                     STEP_GRADIENTS));
    TRY(host_agree(job, step_open(&s->step, &s->cfg, &s->place.at, &memory, STEP_GRADIENTS)));
    return host_agree(job, take_host(s));
}

enum status shadow_open(struct shadow *s, const struct config *cfg, struct host *job)
{
    enum status st;

    memset(s, 0, sizeof *s);
    set_config(s, cfg);
    st = open_all(s, job);
    if (st != ST_OK)
        shadow_close(s);
    return st;
}

void shadow_close(struct shadow *s)
{
    free(s->live);
    free(s->own);
    free(s->sums);
    s->live = s->own = NULL;
    s->sums = NULL;
    if (s->step.cfg)
        step_close(&s->step);
    s->step.cfg = NULL;
    if (s->place.job)
        place_close(&s->place);
    s->place.job = NULL;
}

/* Both models have one table of parameters and, of one precision, the same types. */
static enum status copy_weights(struct shadow *s, struct step *live)
{
    struct params *from = &live->model.params, *to = &s->step.model.params;

    FAIL_IF(from->n != to->n || from->work != to->work, ST_EINTERNAL);
    for (int i = 0; i < from->n; i++) {
        const struct tensor *w = &from->item[i].w;
        size_t bytes = (size_t)tensor_count(w) * dtype_size(w->dtype);

        TRY(device_download(live->at.dev, s->live, w->data, bytes));
        TRY(device_upload(s->place.at.dev, to->item[i].w.data, s->live, bytes));
    }
    return ST_OK;
}

/* sums[2 i], sums[2 i + 1]: squares of the difference and of the reference, of this rank's part of
 * gradient i. */
static enum status square(struct shadow *s, struct step *live, double *sums)
{
    struct params *from = &live->model.params, *own = &s->step.model.params;

    for (int i = 0; i < own->n; i++) {
        const struct tensor *a = &from->item[i].g, *b = &own->item[i].g;
        size_t bytes = (size_t)tensor_count(b) * dtype_size(b->dtype);
        double off = 0.0, all = 0.0;

        FAIL_IF(a->dtype != b->dtype || tensor_count(a) != tensor_count(b), ST_EINTERNAL);
        TRY(device_download(live->at.dev, s->live, a->data, bytes));
        TRY(device_download(s->place.at.dev, s->own, b->data, bytes));
        for (int64_t j = 0; j < tensor_count(b); j++) {
            double x = dtype_load(s->live, a->dtype, j), y = dtype_load(s->own, b->dtype, j);

            off += (x - y) * (x - y);
            all += y * y;
        }
        sums[2 * i] = off;
        sums[2 * i + 1] = all;
    }
    return ST_OK;
}

static double apart(double off, double all)
{
    return off == 0.0 ? 0.0 : all == 0.0 ? INFINITY : sqrt(off / all);
}

/* Nonzero when a is worse than b; a NaN is worse than all. */
static int worse(double a, double b)
{
    return !(a <= b) && !isnan(b);
}

/* Counts one comparison; `most` may be reached. */
static void count(struct shadow_result *r, double difference, double most)
{
    r->tensors++;
    r->missed += !(difference <= most);
}

static enum status compare_gradients(struct shadow *s, struct step *live, struct shadow_result *r)
{
    const struct params *p = &s->step.model.params;
    int ranks = s->place.at.tp->size;
    size_t n = 2 * (size_t)p->n;
    double *mine = s->sums + (size_t)ranks * n;

    TRY(square(s, live, mine));
    if (ranks > 1)
        TRY(host_gather(s->place.at.tp_host, s->sums, mine, n * sizeof *mine));
    else
        memcpy(s->sums, mine, n * sizeof *mine);
    for (int i = 0; i < p->n; i++) {
        double off = 0.0, all = 0.0, one;

        for (int k = 0; k < ranks; k++) {
            off += s->sums[(size_t)k * n + 2 * (size_t)i];
            all += s->sums[(size_t)k * n + 2 * (size_t)i + 1];
        }
        one = apart(off, all);
        count(r, one, s->gradient_most);
        if (i > 0 && !worse(one, r->gradient))
            continue;
        r->gradient = one;
        snprintf(r->tensor, sizeof r->tensor, "%s", p->item[i].name);
    }
    return ST_OK;
}

/* What any rank found worst; counts of the TP ranks are one, so that each replica's stages add. */
static enum status join(struct shadow *s, struct shadow_result *r)
{
    int n = host_size(s->place.job);
    struct shadow_result mine = *r, *all = malloc((size_t)n * sizeof *all);
    enum status st = all ? ST_OK : fail(ST_ENOMEM, "no memory for the findings of %d ranks", n);

    if (s->place.mesh.tp_rank > 0)
        mine.tensors = mine.missed = 0;
    if (st == ST_OK)
        st = host_gather(s->place.job, all, &mine, sizeof mine);
    for (int i = 0; st == ST_OK && i < n; i++) {
        if (i == 0)
            *r = all[0];
        if (i > 0 && worse(all[i].gradient, r->gradient)) {
            r->gradient = all[i].gradient;
            memcpy(r->tensor, all[i].tensor, sizeof r->tensor);
        }
        r->loss = worse(all[i].loss, r->loss) ? all[i].loss : r->loss;
        r->seconds = fmax(all[i].seconds, r->seconds);
        r->tensors += i > 0 ? all[i].tensors : 0;
        r->missed += i > 0 ? all[i].missed : 0;
    }
    free(all);
    return st;
}

static enum status replay(struct shadow *s, struct step *live, const int32_t *tokens,
                          const int32_t *targets, const int32_t *starts, struct shadow_result *r)
{
    int64_t n = s->cfg.train.micro_batch * s->cfg.train.seq, valid = 0;
    double loss, own;

    for (int64_t i = 0; i < n; i++)
        valid += targets[i] >= 0;
    if (valid == 0)
        return ST_OK; /* all padding: both sides would say zero */
    TRY(copy_weights(s, live));
    if (starts)
        TRY(step_documents(&s->step, starts));
    TRY(step_probe(live, tokens, targets, valid, &loss));
    TRY(step_probe(&s->step, tokens, targets, valid, &own));
    r->loss = apart((loss - own) * (loss - own), own * own);
    if (step_stage(live) == step_stages(live) - 1)
        count(r, r->loss, s->loss_most);
    return compare_gradients(s, live, r);
}

enum status shadow_look(struct shadow *s, struct step *live, const int32_t *tokens,
                        const int32_t *targets, const int32_t *starts, struct shadow_result *r)
{
    double start = trainer_now();

    memset(r, 0, sizeof *r);
    TRY(replay(s, live, tokens, targets, starts, r));
    r->seconds = trainer_now() - start;
    TRY(join(s, r));
    s->looks++;
    s->missed += shadow_missed(r);
    s->seconds += r->seconds;
    return ST_OK;
}

int shadow_missed(const struct shadow_result *r)
{
    return r->missed > 0;
}
