#include "common/data/dataset.h"

#include "common/base/log.h"
#include "common/data/sources.h"

#include <stdlib.h>

static enum status check_borders(const struct corpus *c, const struct config *cfg)
{
    if (!cfg->data.reset_documents || c->separated)
        return ST_OK;
    if (c->shards)
        return fail(ST_ECONFIG,
                    "data.reset_documents is on, and %s does not say where documents end; use "
                    "Megatron's format, or set data.reset_documents=off",
                    c->path);
    return fail(ST_ECONFIG,
                "data.reset_documents is on, and data.document_separator is not set: all of %s is "
                "one document; set the separator, or data.reset_documents=off",
                c->path);
}

/* 16-bit ids cannot use a larger vocabulary: likely the data were made with another tokenizer. */
static void warn_narrow(const struct corpus *c, int64_t vocab)
{
    for (int i = 0; c->shards && i < c->shards->n; i++)
        if (c->shards->shard[i].width == 2 && vocab > 65536) {
            log_warn("%s holds 16-bit ids; no id from 65536 on can occur in it, and the vocabulary "
                     "has %lld: was it made with this tokenizer?",
                     c->shards->shard[i].path, (long long)vocab);
            return;
        }
}

/* Opens n sources into *out, which corpora_close releases, also after a failure. */
static enum status open_corpora(struct corpus **out, int *opened, const struct sources *s,
                                const struct config *cfg, const struct tokenizer *t)
{
    struct corpus_options options = {.separator = cfg->data.document_separator,
                                     .require_utf8 = cfg->data.require_utf8};

    *out = calloc((size_t)s->n, sizeof **out);
    if (!*out)
        return fail(ST_ENOMEM, "no memory for %d sources of data", s->n);
    for (; *opened < s->n; ++*opened) {
        struct corpus *c = &(*out)[*opened];

        TRY(corpus_open_any(c, s->path[*opened], t, &options));
        warn_narrow(c, cfg->model.vocab);
    }
    for (int i = 0; i < s->n; i++)
        TRY(check_borders(&(*out)[i], cfg));
    return ST_OK;
}

static void close_corpora(struct corpus *c, int n)
{
    for (int i = 0; i < n; i++)
        corpus_close(&c[i]);
    free(c);
}

static enum status open_named(struct corpus **out, int *opened, const char *key, const char *text,
                              const struct config *cfg, const struct tokenizer *t)
{
    struct sources s;
    enum status st;

    TRY(sources_read(&s, key, text));
    st = open_corpora(out, opened, &s, cfg, t);
    sources_close(&s);
    return st;
}

static enum status hold_out(struct dataset *d, double fraction)
{
    d->validation_text = calloc((size_t)d->train_sources, sizeof *d->validation_text);
    if (!d->validation_text)
        return fail(ST_ENOMEM, "no memory for %d sources of data", d->train_sources);
    for (; d->validation_sources < d->train_sources; d->validation_sources++)
        TRY(corpus_split(&d->validation_text[d->validation_sources],
                         &d->train_text[d->validation_sources], fraction));
    return ST_OK;
}

static enum status check_ids(const struct corpus *c, int n, int64_t vocab, int part, int parts)
{
    for (int i = 0; i < n; i++)
        TRY(corpus_check_ids(&c[i], vocab, part, parts));
    return ST_OK;
}

static enum status open_mixtures(struct dataset *d, const struct config *cfg)
{
    struct loader_options o = {.mode = LOADER_TRAIN,
                               .packing = cfg->data.packing,
                               .seq = cfg->train.seq,
                               .batch = cfg->train.batch,
                               .seed = (uint64_t)cfg->train.seed};
    struct sources s;
    enum status st;

    TRY(sources_read(&s, "data.train", cfg->data.train));
    st = mixture_open(&d->train, d->train_text, s.weighted ? s.weight : NULL, d->train_sources, &o);
    sources_close(&s);
    TRY(st);
    o.mode = LOADER_EVAL;
    return mixture_open(&d->validation, d->validation_text, NULL, d->validation_sources, &o);
}

static enum status open_all(struct dataset *d, const struct config *cfg, const struct tokenizer *t,
                            int part, int parts)
{
    const struct config_data *c = &cfg->data;

    TRY(open_named(&d->train_text, &d->train_sources, "data.train", c->train, cfg, t));
    TRY(check_ids(d->train_text, d->train_sources, cfg->model.vocab, part, parts));
    if (c->validation[0]) {
        TRY(open_named(&d->validation_text, &d->validation_sources, "data.validation",
                       c->validation, cfg, t));
        TRY(check_ids(d->validation_text, d->validation_sources, cfg->model.vocab, part, parts));
    } else {
        TRY(hold_out(d, c->validation_fraction));
    }
    return open_mixtures(d, cfg);
}

enum status dataset_open(struct dataset *d, const struct config *cfg, const struct tokenizer *t,
                         int part, int parts)
{
    enum status st;

    *d = (struct dataset){0};
    st = open_all(d, cfg, t, part, parts);
    if (st != ST_OK)
        dataset_close(d);
    return st;
}

void dataset_close(struct dataset *d)
{
    mixture_close(&d->train);
    mixture_close(&d->validation);
    close_corpora(d->train_text, d->train_sources);
    close_corpora(d->validation_text, d->validation_sources);
    *d = (struct dataset){0};
}

int64_t dataset_tokens(const struct corpus *c, int n)
{
    int64_t sum = 0;

    for (int i = 0; i < n; i++)
        sum += c[i].count;
    return sum;
}

int64_t dataset_documents(const struct corpus *c, int n)
{
    int64_t sum = 0;

    for (int i = 0; i < n; i++)
        sum += c[i].documents;
    return sum;
}
