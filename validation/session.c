#include "validation/session.h"

#include "validation/cases.h"

#include <stdlib.h>
#include <string.h>

static enum status open_step(struct session *s, struct host *job)
{
    struct step_memory memory;

    TRY(place_open(&s->place, &s->cfg, job));
    TRY(step_plan_at(&memory, NULL, NULL, &s->cfg, &s->place.mesh, place_wide(&s->cfg), 1));
    TRY(step_open(&s->step, &s->cfg, &s->place.at, &memory, 1));
    return step_init(&s->step);
}

static enum status open_batch(struct session *s)
{
    const struct params *p = &s->step.model.params;
    size_t n = (size_t)(s->cfg.train.batch * s->cfg.train.seq), most = 1;

    for (int i = 0; i < p->n; i++) {
        size_t count = (size_t)tensor_count(&p->item[i].w);

        most = count > most ? count : most;
    }
    s->tokens = malloc(n * sizeof *s->tokens);
    s->targets = malloc(n * sizeof *s->targets);
    s->values = malloc(most * sizeof *s->values);
    if (!s->tokens || !s->targets || !s->values)
        return fail(ST_ENOMEM, "no memory for a batch of %zu tokens", n);
    s->valid = case_batch(s->tokens, s->targets, &s->cfg, 0, 0, s->cfg.train.batch);
    return ST_OK;
}

enum status session_open(struct session *s, struct host *job, const char *words)
{
    enum status st;

    memset(s, 0, sizeof *s);
    st = case_config(&s->cfg, words);
    if (st == ST_OK)
        st = open_step(s, job);
    if (st == ST_OK)
        st = open_batch(s);
    if (st != ST_OK)
        session_close(s);
    return st;
}

void session_close(struct session *s)
{
    if (s->step.cfg)
        step_close(&s->step);
    if (s->place.job)
        place_close(&s->place);
    free(s->tokens);
    free(s->targets);
    free(s->values);
    memset(s, 0, sizeof *s);
}

enum status session_loss(struct session *s, double *loss)
{
    TRY(step_evaluate(&s->step, s->tokens, s->targets, loss));
    *loss /= (double)s->valid;
    return ST_OK;
}

enum status session_gradients(struct session *s, double *loss)
{
    TRY(step_gradients(&s->step, s->tokens, s->targets, s->valid, loss));
    *loss /= (double)s->valid;
    return ST_OK;
}

enum status session_read(struct session *s, double *out, const struct tensor *t)
{
    int64_t n = tensor_count(t);
    void *host = malloc((size_t)n * dtype_size(t->dtype));
    enum status st;

    if (!host)
        return fail(ST_ENOMEM, "no memory to read %lld values", (long long)n);
    st = device_download(s->place.at.dev, host, t->data, (size_t)n * dtype_size(t->dtype));
    for (int64_t i = 0; st == ST_OK && i < n; i++)
        out[i] = dtype_load(host, t->dtype, i);
    free(host);
    return st;
}

enum status session_write(struct session *s, struct param *row, const double *values)
{
    struct params *p = &s->step.model.params;
    int64_t n = tensor_count(&row->w);
    void *host = malloc((size_t)n * dtype_size(p->wide));
    enum status st;

    if (!host)
        return fail(ST_ENOMEM, "no memory to set %lld values", (long long)n);
    for (int64_t i = 0; i < n; i++)
        dtype_store(host, p->wide, i, values[i]);
    st = param_set(p, row, s->place.at.dev, host);
    free(host);
    return st;
}
