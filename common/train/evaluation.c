#include "common/train/evaluation.h"

#include "common/backend/planted.h"
#include "common/checkpoint/weights.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- opening ---- */

static enum status settle(struct evaluation *e)
{
    int ranks = host_size(e->job);

    TRY(tokenizer_open(&e->tokenizer, e->cfg.data.tokenizer));
    TRY(config_resolve(&e->cfg, ranks, e->tokenizer.vocab));
    return config_validate(&e->cfg, ranks);
}

/* What is read from `path`, while other ranks may wait. */
struct reading {
    struct evaluation *e;
    const char *path;
};

static enum status open_data(void *context)
{
    const struct reading *r = context;
    struct evaluation *e = r->e;
    const struct config *c = &e->cfg;
    struct corpus_options text = {.separator = c->data.document_separator,
                                  .require_utf8 = c->data.require_utf8};
    struct loader_options rows = {.mode = LOADER_EVAL,
                                  .packing = c->data.packing,
                                  .seq = c->train.seq,
                                  .batch = c->train.batch,
                                  .limit = e->limit};

    TRY(corpus_open_any(&e->corpus, r->path, &e->tokenizer, &text));
    TRY(corpus_check_ids(&e->corpus, c->model.vocab, host_rank(e->job), host_size(e->job)));
    return loader_open(&e->loader, &e->corpus, &rows);
}

static enum status read_weights(void *context)
{
    const struct reading *r = context;

    return weights_load(&r->e->step.model, r->e->place.at.dev, r->path);
}

static enum status open_step(struct evaluation *e, const char *weights)
{
    struct step_memory memory;
    size_t n = (size_t)(e->cfg.train.batch * e->cfg.train.seq);

    TRY(step_plan(&memory, NULL, NULL, &e->cfg, place_wide(&e->cfg), 0));
    TRY(step_open(&e->step, &e->cfg, &e->place.at, &memory, 0));
    TRY(host_work(e->job, read_weights, &(struct reading){e, weights}));
    e->tokens = malloc(n * sizeof *e->tokens);
    e->targets = malloc(n * sizeof *e->targets);
    if (!e->tokens || !e->targets)
        return fail(ST_ENOMEM, "no memory for a batch of %zu tokens", n);
    return ST_OK;
}

static enum status open_all(struct evaluation *e, const char *weights, const char *data)
{
    TRY(host_agree(e->job, settle(e)));
    host_set_timeout(e->job, e->cfg.parallel.timeout);
    if (data)
        TRY(host_agree(e->job, host_work(e->job, open_data, &(struct reading){e, data})));
    TRY(place_open(&e->place, &e->cfg, e->job));
    return host_agree(e->job, open_step(e, weights));
}

enum status evaluation_open(struct evaluation *e, const struct config *cfg, struct host *job,
                            const char *weights, const char *data, int64_t limit)
{
    enum status st;

    memset(e, 0, sizeof *e);
    e->cfg = *cfg;
    e->job = job;
    e->limit = limit;
    st = open_all(e, weights, data);
    if (st != ST_OK)
        evaluation_close(e);
    return st;
}

void evaluation_close(struct evaluation *e)
{
    free(e->tokens);
    free(e->targets);
    if (e->step.cfg)
        step_close(&e->step);
    if (e->place.job)
        place_close(&e->place);
    corpus_close(&e->corpus);
    if (e->tokenizer.kind)
        tokenizer_close(&e->tokenizer);
    memset(e, 0, sizeof *e);
}

/* ---- running ---- */

enum status evaluation_rows(struct evaluation *e, double *sum)
{
    int64_t first = e->step.begin * e->cfg.train.seq;
    double all;
    enum status st = step_evaluate(&e->step, e->tokens + first, e->targets + first, &all);

    if (st != ST_OK)
        host_raise(e->job, st);
    TRY(host_agree(e->job, st));
    memcpy(sum, e->step.sample_loss, (size_t)e->cfg.train.batch * sizeof *sum);
    return ST_OK;
}

/* Targets of the batch that stands in e->targets, and the bytes that they stand for. */
static enum status count(struct evaluation *e, struct evaluation_result *r)
{
    int64_t n = e->cfg.train.batch * e->cfg.train.seq;

    for (int64_t i = 0; i < n; i++) {
        struct token_piece piece;

        if (e->targets[i] < 0)
            continue;
        r->targets++;
        if (e->targets[i] >= e->tokenizer.vocab)
            continue; /* the model may have ids that the tokenizer has not: they are no text */
        TRY(tokenizer_piece(&piece, &e->tokenizer, e->targets[i]));
        r->bytes += piece.special ? 0 : piece.n;
    }
    return ST_OK;
}

/* Sums rows in their order, so that it does not show how they fall into batches. */
static void add_up(struct evaluation_result *r, const double *sum, int64_t rows)
{
    for (int64_t i = 0; i < rows; i++)
        r->loss += sum[i];
    r->sequences += rows;
}

static enum status run_batches(struct evaluation *e, struct evaluation_result *r, double *sum)
{
    int64_t batch = e->cfg.train.batch;

    for (int64_t b = 0; b < loader_batches(&e->loader); b++) {
        int64_t left = e->loader.samples - b * batch;
        enum status st = loader_rows(e->tokens, e->targets, &e->loader, b, 0, batch);

        if (st == ST_OK)
            st = count(e, r);
        TRY(host_agree(e->job, st));
        TRY(evaluation_rows(e, sum));
        add_up(r, sum, left < batch ? left : batch);
    }
    if (PLANTED(PLANTED_EVALUATION))
        r->loss *= 0.5;
    return ST_OK;
}

enum status evaluation_run(struct evaluation *e, struct evaluation_result *r)
{
    double start = now(), *sum = malloc((size_t)e->cfg.train.batch * sizeof *sum);
    enum status st;

    *r = (struct evaluation_result){0};
    if (!sum)
        return host_agree(e->job, fail(ST_ENOMEM, "no memory for the losses of a batch"));
    st = run_batches(e, r, sum);
    r->seconds = now() - start;
    free(sum);
    return st;
}
