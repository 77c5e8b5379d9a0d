#include "common/train/trainer_data.h"

#include <stdlib.h>
#include <string.h>

static enum status open_loader(struct trainer *t, struct loader *l, const struct corpus *c,
                               enum loader_mode mode)
{
    const struct config *cfg = &t->cfg;
    struct loader_options opt = {.mode = mode,
                                 .packing = cfg->data.packing,
                                 .seq = cfg->train.seq,
                                 .batch = cfg->train.batch,
                                 .seed = (uint64_t)cfg->train.seed};

    return loader_open(l, c, &opt);
}

enum status trainer_data_open(struct trainer *t)
{
    const struct config_data *d = &t->cfg.data;
    struct corpus_options opt = {.separator = d->document_separator,
                                 .require_utf8 = d->require_utf8};

    TRY(corpus_open(&t->train_text, d->train, &t->tokenizer, &opt));
    if (d->validation[0])
        TRY(corpus_open(&t->validation_text, d->validation, &t->tokenizer, &opt));
    else
        TRY(corpus_split(&t->validation_text, &t->train_text, d->validation_fraction));
    TRY(open_loader(t, &t->train, &t->train_text, LOADER_TRAIN));
    return open_loader(t, &t->validation, &t->validation_text, LOADER_EVAL);
}

void trainer_data_close(struct trainer *t)
{
    corpus_close(&t->train_text);
    corpus_close(&t->validation_text);
}

enum status trainer_batch_open(struct trainer *t)
{
    size_t n = (size_t)((t->step.end - t->step.begin) * t->cfg.train.seq);

    t->tokens = malloc(n * sizeof *t->tokens);
    t->targets = malloc(n * sizeof *t->targets);
    if (!t->tokens || !t->targets)
        return fail(ST_ENOMEM, "no memory for a batch of %zu tokens", n);
    return ST_OK;
}

enum status trainer_training_batch(struct trainer *t, int64_t *valid)
{
    int64_t rows = t->step.end - t->step.begin;

    TRY(loader_valid(valid, &t->train, t->done));
    return loader_rows(t->tokens, t->targets, &t->train, t->done, t->step.begin, rows);
}

/* Rows of batch b that the validation may use. */
static int64_t rows_left(const struct trainer *t, int64_t b)
{
    int64_t batch = t->cfg.train.batch, limit = t->cfg.train.eval_sequences;
    int64_t left = limit ? limit - b * batch : batch;

    return left < 0 ? 0 : left < batch ? left : batch;
}

enum status trainer_validation_batch(struct trainer *t, int64_t b, int64_t *valid)
{
    int64_t rows = t->step.end - t->step.begin, seq = t->cfg.train.seq;
    int64_t usable = rows_left(t, b);

    *valid = 0;
    if (usable == 0)
        return ST_OK;
    TRY(loader_valid_rows(valid, &t->validation, b, 0, usable));
    TRY(loader_rows(t->tokens, t->targets, &t->validation, b, t->step.begin, rows));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; t->step.begin + i >= usable && j < seq; j++)
            t->targets[i * seq + j] = LOADER_IGNORED;
    return ST_OK;
}
