#include "common/train/trainer_data.h"

#include "common/base/hash.h"

static enum status open_data(void *context)
{
    struct trainer *t = context;

    return dataset_open(&t->data, &t->cfg, &t->tokenizer, host_rank(t->job), host_size(t->job));
}

enum status trainer_data_open(struct trainer *t)
{
    return host_work(t->job, open_data, t);
}

void trainer_data_close(struct trainer *t)
{
    prefetch_close(&t->ahead);
    batch_close(&t->batch);
    dataset_close(&t->data);
}

/* Sources in their order, with what is in them and how often they are read. */
static uint64_t hash_mixture(const struct mixture *m)
{
    uint64_t h = 0;

    for (int i = 0; i < m->sources; i++) {
        const struct corpus *c = m->source[i].corpus;

        h = hash_more(h, &c->hash, sizeof c->hash);
        h = hash_more(h, &c->count, sizeof c->count);
        h = hash_more(h, &m->weight[i], sizeof m->weight[i]);
    }
    return h;
}

void trainer_data_hashes(uint64_t *train, uint64_t *validation, const struct trainer *t)
{
    *train = hash_mixture(&t->data.train);
    *validation = hash_mixture(&t->data.validation);
}

enum status trainer_batch_open(struct trainer *t)
{
    int64_t rows = t->step.end - t->step.begin;
    int starts = t->cfg.data.reset_documents;

    TRY(batch_open(&t->batch, rows, t->cfg.train.seq, starts));
    return prefetch_open(&t->ahead, &t->data.train, t->step.begin, rows, starts);
}

/* Where documents begin goes to the device at once. */
static enum status send_starts(struct trainer *t)
{
    return t->batch.starts ? step_documents(&t->step, t->batch.starts) : ST_OK;
}

enum status trainer_training_batch(struct trainer *t)
{
    int64_t next = t->done + 1 < t->cfg.train.steps ? t->done + 1 : -1;

    TRY(prefetch_take(&t->ahead, &t->batch, t->done, next));
    return send_starts(t);
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
    TRY(mixture_valid_rows(valid, &t->data.validation, b, 0, usable));
    TRY(mixture_rows(t->batch.tokens, t->batch.targets, t->batch.starts, &t->data.validation, b,
                     t->step.begin, rows));
    TRY(send_starts(t));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; t->step.begin + i >= usable && j < seq; j++)
            t->batch.targets[i * seq + j] = LOADER_IGNORED;
    return ST_OK;
}
