/* The job's side of validation/job.h: one training step, its result in a file. */
#include "common/train/place.h"
#include "common/train/step.h"
#include "validation/cases.h"
#include "validation/job.h"

#include <stdlib.h>
#include <string.h>

struct worker {
    struct config cfg;
    struct host *host;
    struct place place;
    struct step step;
    struct step_result result;
    int32_t *tokens, *targets;
    struct safetensors_writer out;
    int writing;
};

static enum status open_step(struct worker *w)
{
    struct step_memory memory;

    TRY(place_open(&w->place, &w->cfg, w->host));
    TRY(step_plan_at(&memory, NULL, NULL, &w->cfg, &w->place.mesh, place_wide(&w->cfg), 1));
    TRY(step_open(&w->step, &w->cfg, &w->place.at, &memory, 1));
    TRY(step_init(&w->step));
    return case_gains(&w->step.model.params, w->place.at.dev);
}

/* A step with rate 0: the gradients stay where they are, the weights too. */
static enum status one_step(struct worker *w)
{
    int64_t rows = w->step.end - w->step.begin, valid;
    size_t n = (size_t)(w->cfg.train.batch * w->cfg.train.seq);

    w->tokens = malloc(n * sizeof *w->tokens);
    w->targets = malloc(n * sizeof *w->targets);
    if (!w->tokens || !w->targets)
        return fail(ST_ENOMEM, "no memory for a batch of %zu tokens", n);
    valid = case_batch(w->tokens, w->targets, &w->cfg, 0, 0, w->cfg.train.batch);
    case_batch(w->tokens, w->targets, &w->cfg, 0, w->step.begin, rows);
    ledger_clear(&w->place.ledger);
    return step_train(&w->step, w->tokens, w->targets, valid, 1, 0.0, &w->result);
}

/* Every rank of a stage sends the same. */
static enum status same_counts(struct worker *w)
{
    int n = host_size(w->host), stage = n / (int)w->cfg.parallel.pp;
    int64_t mine[LEDGER_COUNT][3], (*all)[LEDGER_COUNT][3] = calloc((size_t)n, sizeof *all);
    enum status st;

    if (!all)
        return fail(ST_ENOMEM, "no memory for the counts of %d ranks", n);
    for (int i = 0; i < LEDGER_COUNT; i++) {
        const struct ledger_row *row = &w->place.ledger.row[i];

        mine[i][0] = row->calls;
        mine[i][1] = row->elements;
        mine[i][2] = row->wire_bytes;
    }
    st = host_gather(w->host, all, mine, sizeof mine);
    for (int i = 1; st == ST_OK && i < n; i++)
        if (memcmp(all[i / stage * stage], all[i], sizeof mine) != 0)
            st = fail(ST_EMISMATCH, "rank %d has sent other calls or sizes than rank %d", i,
                      i / stage * stage);
    free(all);
    return st == ST_OK && w->writing ? safetensors_put(&w->out, "ledger", mine) : st;
}

/* whole [rows, cols] float64 = the shards of all TP ranks, one after the other in `all`. */
static void assemble(double *whole, struct params p, const struct param *row, const char *all)
{
    int64_t rows, cols, row0, col0, count;

    for (p.tp_rank = 0; p.tp_rank < p.tp_size; p.tp_rank++) {
        param_shard(&p, row, &rows, &cols, &row0, &col0);
        count = rows * cols;
        for (int64_t i = 0; i < count; i++)
            if (row0 + i / cols < row->real_rows)
                whole[(row0 + i / cols) * row->cols + col0 + i % cols] =
                    dtype_load(all, p.wide, p.tp_rank * count + i);
    }
}

static enum status put_gradient(struct worker *w, const struct param *row)
{
    const struct params *p = &w->step.model.params;
    size_t bytes = (size_t)tensor_count(&row->g) * dtype_size(p->wide);
    void *mine = malloc(bytes), *all = malloc(bytes * (size_t)p->tp_size);
    double *whole = malloc((size_t)(row->real_rows * row->cols) * sizeof *whole);
    enum status st = mine && all && whole ? ST_OK : fail(ST_ENOMEM, "no memory for a gradient");

    if (st == ST_OK)
        st = device_download(w->place.at.dev, mine, row->g.data, bytes);
    if (st == ST_OK)
        st = host_gather(w->place.at.tp_host, all, mine, bytes);
    if (st == ST_OK && w->writing) {
        assemble(whole, *p, row, all);
        st = safetensors_put(&w->out, row->name, whole);
    }
    free(mine);
    free(all);
    free(whole);
    return st;
}

/* Begins the file on rank 0, with room for what follows. */
static enum status begin_file(struct worker *w, const char *path)
{
    const struct params *p = &w->step.model.params;
    struct safetensors_spec *spec = calloc((size_t)p->n + 2, sizeof *spec);
    enum status st;

    if (!spec)
        return fail(ST_ENOMEM, "no memory for a table of %d tensors", p->n + 2);
    for (int i = 0; i < p->n; i++)
        spec[i] = (struct safetensors_spec){.name = p->item[i].name,
                                            .type = SAFETENSORS_F64,
                                            .rank = 2,
                                            .shape = {p->item[i].real_rows, p->item[i].cols}};
    spec[p->n] = (struct safetensors_spec){"ledger", SAFETENSORS_I64, 2, {LEDGER_COUNT, 3}};
    spec[p->n + 1] = (struct safetensors_spec){"loss_norm", SAFETENSORS_F64, 1, {2}};
    st = safetensors_create(&w->out, path, spec, p->n + 2, NULL);
    w->writing = st == ST_OK;
    free(spec);
    return st;
}

static enum status write_result(struct worker *w)
{
    const struct params *p = &w->step.model.params;
    double loss_norm[2] = {w->result.loss, w->result.grad_norm};

    TRY(same_counts(w));
    for (int i = 0; i < p->n; i++)
        TRY(put_gradient(w, &p->item[i]));
    if (!w->writing)
        return ST_OK;
    TRY(safetensors_put(&w->out, "loss_norm", loss_norm));
    w->writing = 0;
    return safetensors_finish(&w->out);
}

static enum status work(struct worker *w, const char *path, const char *words)
{
    TRY(host_agree(w->host, case_config(&w->cfg, words)));
    TRY(host_agree(w->host, config_validate(&w->cfg, host_size(w->host))));
    TRY(host_agree(w->host, open_step(w)));
    TRY(host_agree(w->host, one_step(w)));
    TRY(host_agree(w->host, host_rank(w->host) == 0 ? begin_file(w, path) : ST_OK));
    return host_agree(w->host, write_result(w));
}

enum status job_main(struct host *job, const char *path, const char *words)
{
    struct worker *w = calloc(1, sizeof *w);
    enum status st;

    if (!w)
        return fail(ST_ENOMEM, "no memory for a job of the validation");
    w->host = job;
    host_set_timeout(job, 60.0);
    st = work(w, path, words);
    if (w->writing)
        safetensors_drop(&w->out);
    if (w->step.cfg)
        step_close(&w->step);
    if (w->place.job)
        place_close(&w->place);
    free(w->tokens);
    free(w->targets);
    free(w);
    return st;
}
