#include "common/data/loader.h"

#include "common/data/order.h"

#include <string.h>

static const int64_t position_max = INT64_C(1) << 62;
static const int64_t samples_max = INT64_C(1) << ORDER_MAX_BITS;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t loader_packed_samples(int64_t tokens, int64_t seq)
{
    return tokens < 2 ? 0 : (tokens - 2) / seq + 1;
}

/* The tokens of a sample: [*first, *first + return). One more than its targets. */
static int64_t sample_tokens(int64_t *first, const struct loader *l, int64_t sample)
{
    const struct corpus *c = l->corpus;
    int64_t row = l->options.seq + 1;

    if (l->options.packing) {
        *first = sample * l->options.seq;
        return smaller(row, c->count - *first);
    }
    *first = corpus_start(c, sample);
    return smaller(row, corpus_start(c, sample + 1) - *first);
}

static enum status check_options(const struct corpus *c, const struct loader_options *o)
{
    if (o->seq < 1 || o->batch < 1 || o->limit < 0)
        return fail(ST_ECONFIG,
                    "batches of %lld sequences of %lld tokens (limit %lld): sequences and tokens "
                    "must be at least 1",
                    (long long)o->batch, (long long)o->seq, (long long)o->limit);
    FAIL_IF(o->mode == LOADER_TRAIN && o->limit != 0, ST_EINTERNAL);
    if (!o->packing && !c->separated)
        return fail(ST_ECONFIG,
                    "data.packing is off, which takes one document of %s for each sequence, and "
                    "data.document_separator is not set: all of it is one document; set the "
                    "separator, or packing to on",
                    c->path);
    return ST_OK;
}

static enum status check_length(const struct loader *l)
{
    const struct corpus *c = l->corpus;
    int64_t need = l->options.mode == LOADER_TRAIN ? l->options.seq + 1 : 2;

    if (l->options.packing && c->count < need)
        return fail(ST_EFORMAT,
                    "text %s holds %lld tokens; one sequence of %lld needs %lld; give a longer "
                    "text or a smaller train.seq",
                    c->path, (long long)c->count, (long long)l->options.seq, (long long)need);
    if (l->valid < 1)
        return fail(ST_EFORMAT,
                    "text %s: the longest of its %lld documents holds 1 token; one sequence needs "
                    "at least 2",
                    c->path, (long long)c->documents);
    if (l->samples > samples_max)
        return fail(ST_ECONFIG, "text %s makes %lld sequences; at most %lld are supported", c->path,
                    (long long)l->samples, (long long)samples_max);
    return ST_OK;
}

static void count_documents(struct loader *l)
{
    const struct corpus *c = l->corpus;
    int64_t first;

    for (int64_t j = 0; j < l->samples; j++) {
        int64_t used = sample_tokens(&first, l, j);

        l->valid += used > 1 ? used - 1 : 0;
        l->lost += corpus_start(c, j + 1) - first - used;
    }
}

enum status loader_open(struct loader *l, const struct corpus *c,
                        const struct loader_options *options)
{
    *l = (struct loader){.corpus = c, .options = *options};
    TRY(check_options(c, options));
    l->samples = options->packing ? loader_packed_samples(c->count, options->seq) : c->documents;
    if (options->limit > 0)
        l->samples = smaller(l->samples, options->limit);
    if (options->packing)
        l->valid = smaller(l->samples * options->seq, c->count - 1);
    else
        count_documents(l);
    return check_length(l);
}

int64_t loader_sample(const struct loader *l, int64_t position)
{
    if (l->options.mode == LOADER_EVAL)
        return position < l->samples ? position : -1;
    return order_sample(l->options.seed, position / l->samples, l->samples, position % l->samples);
}

void loader_row(int32_t *inputs, int32_t *targets, const struct loader *l, int64_t sample)
{
    const struct corpus *c = l->corpus;
    int64_t seq = l->options.seq, first = 0, tokens = 0;

    if (sample >= 0)
        tokens = sample_tokens(&first, l, sample);
    corpus_read(inputs, c, first, smaller(tokens, seq));
    for (int64_t i = tokens; i < seq; i++)
        inputs[i] = c->pad < 0 ? 0 : c->pad;
    if (tokens > 1)
        corpus_read(targets, c, first + 1, tokens - 1);
    for (int64_t i = tokens > 1 ? tokens - 1 : 0; i < seq; i++)
        targets[i] = LOADER_IGNORED;
}

void loader_starts(int32_t *starts, const struct loader *l, int64_t sample)
{
    const struct corpus *c = l->corpus;
    int64_t seq = l->options.seq, first = sample * seq, document, next;
    int32_t start = 0;

    memset(starts, 0, (size_t)seq * sizeof *starts);
    if (!l->options.packing || sample < 0)
        return;
    document = corpus_document(c, first);
    next = corpus_start(c, document + 1);
    for (int64_t i = 0; i < seq; i++) {
        if (first + i == next && next < c->count) {
            start = (int32_t)i;
            while (next == first + i) /* documents of shards may be empty */
                next = corpus_start(c, ++document + 1);
        }
        starts[i] = start;
    }
}

enum status loader_position(int64_t *position, const struct loader_options *options, int64_t step,
                            int64_t first, int64_t rows)
{
    int64_t batch = options->batch;

    FAIL_IF(step < 0 || first < 0 || rows < 0 || first > batch || rows > batch - first,
            ST_EINTERNAL);
    if (step > position_max / batch - 1)
        return fail(ST_ECONFIG, "step %lld of batches of %lld sequences: more than 2^62 sequences",
                    (long long)step, (long long)batch);
    *position = step * batch + first;
    return ST_OK;
}

enum status loader_rows(int32_t *inputs, int32_t *targets, const struct loader *l, int64_t step,
                        int64_t first, int64_t rows)
{
    int64_t seq = l->options.seq, position = 0;

    TRY(loader_position(&position, &l->options, step, first, rows));
    for (int64_t i = 0; i < rows; i++)
        loader_row(inputs + i * seq, targets + i * seq, l, loader_sample(l, position + i));
    return ST_OK;
}

/* How often the last sample, the one that may be short, comes before a position. */
static int64_t last_seen(const struct loader *l, int64_t position)
{
    int64_t n = l->samples, epoch = position / n;

    return epoch + (order_position(l->options.seed, epoch, n, n - 1) < position % n);
}

static int64_t valid_packed(const struct loader *l, int64_t begin, int64_t end)
{
    int64_t seq = l->options.seq;
    int64_t missing = l->samples * seq - l->valid; /* targets that the last sample lacks */

    if (l->options.mode == LOADER_EVAL)
        return smaller(smaller(end, l->samples) * seq, l->valid) -
               smaller(smaller(begin, l->samples) * seq, l->valid);
    if (missing == 0)
        return (end - begin) * seq;
    return (end - begin) * seq - missing * (last_seen(l, end) - last_seen(l, begin));
}

int64_t loader_valid_range(const struct loader *l, int64_t begin, int64_t end)
{
    int64_t valid = 0, first;

    if (l->options.packing)
        return valid_packed(l, begin, end);
    for (int64_t position = begin; position < end; position++) {
        int64_t sample = loader_sample(l, position);
        int64_t tokens = sample < 0 ? 0 : sample_tokens(&first, l, sample);

        valid += tokens > 1 ? tokens - 1 : 0;
    }
    return valid;
}

enum status loader_valid_rows(int64_t *valid, const struct loader *l, int64_t step, int64_t first,
                              int64_t rows)
{
    int64_t position = 0;

    TRY(loader_position(&position, &l->options, step, first, rows));
    *valid = loader_valid_range(l, position, position + rows);
    return ST_OK;
}

enum status loader_valid(int64_t *valid, const struct loader *l, int64_t step)
{
    return loader_valid_rows(valid, l, step, 0, l->options.batch);
}

double loader_epochs(const struct loader *l, int64_t steps)
{
    return (double)steps * (double)l->options.batch / (double)l->samples;
}

int64_t loader_batches(const struct loader *l)
{
    return (l->samples - 1) / l->options.batch + 1;
}
