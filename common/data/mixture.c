#include "common/data/mixture.h"

#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

static void reduce(struct mixture *m)
{
    uint64_t divisor = 0;

    for (int k = 0; k < m->sources; k++)
        divisor = common_divisor(m->weight[k], divisor);
    for (int k = 0; divisor > 1 && k < m->sources; k++)
        m->weight[k] /= divisor;
}

static enum status open_sources(struct mixture *m, const struct corpus *corpora,
                                const int64_t *weights, int n)
{
    for (int k = 0; k < n; k++) {
        struct loader_options o = m->options;

        o.seed += (uint64_t)k * UINT64_C(0x9e3779b97f4a7c15); /* sources of one size differ */
        TRY(loader_open(&m->source[k], &corpora[k], &o));
        FAIL_IF(weights && (weights[k] < 1 || weights[k] > INT64_C(1) << 40), ST_EINTERNAL);
        m->weight[k] = (uint64_t)(weights ? weights[k] : m->source[k].samples);
        m->samples += m->source[k].samples;
    }
    reduce(m);
    return ST_OK;
}

enum status mixture_open(struct mixture *m, const struct corpus *corpora, const int64_t *weights,
                         int n, const struct loader_options *options)
{
    enum status st;

    *m = (struct mixture){.sources = n, .options = *options};
    m->source = calloc((size_t)n, sizeof *m->source);
    m->weight = calloc((size_t)n, sizeof *m->weight);
    st = m->source && m->weight ? open_sources(m, corpora, weights, n)
                                : fail(ST_ENOMEM, "no memory for %d sources of data", n);
    if (st != ST_OK)
        mixture_close(m);
    return st;
}

void mixture_close(struct mixture *m)
{
    free(m->source);
    free(m->weight);
    *m = (struct mixture){0};
}

/* ---- shares ---- */

static uint64_t total(const struct mixture *m)
{
    uint64_t sum = 0;

    for (int k = 0; k < m->sources; k++)
        sum += m->weight[k];
    return sum;
}

/* p w / sum, rounded half up: in 128 bits, for p and sum up to 2^62. */
static int64_t share(int64_t p, uint64_t w, uint64_t sum)
{
    return (int64_t) __extension__(((unsigned __int128)2 * (uint64_t)p * w + sum) /
                                   ((unsigned __int128)2 * sum));
}

int64_t mixture_taken(const struct mixture *m, int source, int64_t position)
{
    uint64_t sum = total(m);

    if (m->options.mode == LOADER_EVAL) {
        for (int k = 0; k < source; k++)
            position -= m->source[k].samples;
        position = position < 0 ? 0 : position;
        return position < m->source[source].samples ? position : m->source[source].samples;
    }
    for (int k = m->sources - 1; k > source; k--) {
        position -= share(position, m->weight[k], sum);
        sum -= m->weight[k];
    }
    return share(position, m->weight[source], sum);
}

static void find_eval(int *source, int64_t *inner, const struct mixture *m, int64_t position)
{
    for (int k = 0; k < m->sources; k++) {
        if (position < m->source[k].samples) {
            *source = k;
            *inner = position;
            return;
        }
        position -= m->source[k].samples;
    }
    *source = -1;
    *inner = 0;
}

void mixture_find(int *source, int64_t *inner, const struct mixture *m, int64_t position)
{
    uint64_t sum = total(m);
    int k = m->sources - 1;

    if (m->options.mode == LOADER_EVAL) {
        find_eval(source, inner, m, position);
        return;
    }
    for (; k > 0; k--) {
        int64_t taken = share(position, m->weight[k], sum);

        if (share(position + 1, m->weight[k], sum) > taken) {
            position = taken;
            break;
        }
        position -= taken;
        sum -= m->weight[k];
    }
    *source = k;
    *inner = position;
}

/* ---- batches ---- */

static const struct loader *find_row(int64_t *sample, const struct mixture *m, int64_t position)
{
    int64_t inner;
    int k;

    mixture_find(&k, &inner, m, position);
    *sample = k < 0 ? -1 : loader_sample(&m->source[k], inner);
    return &m->source[k < 0 ? 0 : k];
}

enum status mixture_rows(int32_t *inputs, int32_t *targets, int32_t *starts,
                         const struct mixture *m, int64_t step, int64_t first, int64_t rows)
{
    int64_t seq = m->options.seq, position = 0, sample;

    TRY(loader_position(&position, &m->options, step, first, rows));
    for (int64_t i = 0; i < rows; i++) {
        const struct loader *l = find_row(&sample, m, position + i);

        loader_row(inputs + i * seq, targets + i * seq, l, sample);
        if (starts)
            loader_starts(starts + i * seq, l, sample);
    }
    return ST_OK;
}

enum status mixture_valid_rows(int64_t *valid, const struct mixture *m, int64_t step, int64_t first,
                               int64_t rows)
{
    int64_t position = 0;

    TRY(loader_position(&position, &m->options, step, first, rows));
    *valid = 0;
    for (int k = 0; k < m->sources; k++)
        *valid += loader_valid_range(&m->source[k], mixture_taken(m, k, position),
                                     mixture_taken(m, k, position + rows));
    return ST_OK;
}

enum status mixture_valid(int64_t *valid, const struct mixture *m, int64_t step)
{
    return mixture_valid_rows(valid, m, step, 0, m->options.batch);
}

int64_t mixture_batches(const struct mixture *m)
{
    return (m->samples - 1) / m->options.batch + 1;
}

double mixture_epochs(const struct mixture *m, int source, int64_t steps)
{
    double positions = (double)steps * (double)m->options.batch;

    return positions * (double)m->weight[source] / (double)total(m) /
           (double)m->source[source].samples;
}
