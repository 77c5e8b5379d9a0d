/* narrows generate: text from the weights that a training left, or that somebody else did. */
#include "common/train/generate.h"
#include "common/checkpoint/weights.h"
#include "common/cli/commands.h"
#include "common/cli/interrupt.h"
#include "common/cli/options.h"
#include "common/cli/saved.h"
#include "common/train/place.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What the command line says; what it leaves out is -1 or NULL and comes from section sample. */
struct wishes {
    const char *prompt, *stop;
    int64_t tokens, top_k, seed;
    double temperature;
    bool no_cache, past_end;
};

enum {
    OPTIONS = 9,
    STOPS = 32,     /* tokens that --stop names */
    SMALL = 8000000 /* parameters: a token of fewer is less work than waking up threads */
};

struct speaker {
    struct config cfg;
    char folder[WEIGHTS_PATH];
    struct tokenizer tokenizer;
    struct place place;
    struct model model;
    void *weights; /* device memory */
    int32_t stops[STOPS];
    int stop_count;
};

static void fill_options(struct option *table, struct wishes *w)
{
    const struct option options[OPTIONS] = {
        {"--prompt", 'p', "TEXT", OPTION_TEXT, &w->prompt, 0, 0,
         "text to continue (sample.prompt); \"\" begins a document"},
        {"--tokens", 'n', "N", OPTION_INT, &w->tokens, 1, 1 << 30,
         "most tokens to write (sample.tokens)"},
        {"--temperature", 't', "T", OPTION_REAL, &w->temperature, 0, 100,
         "divides the logits; 0 = always the likeliest token (sample.temperature)"},
        {"--top-k", 'k', "K", OPTION_INT, &w->top_k, 0, 1 << 24,
         "draw from the K likeliest tokens; 0 = from all (sample.top_k)"},
        {"--seed", 's', "S", OPTION_INT, &w->seed, 0, INT64_MAX, "of the draws (sample.seed)"},
        {"--stop", 0, "LIST", OPTION_TEXT, &w->stop, 0, 0,
         "tokens that end the text too: texts or ids, with commas between them"},
        {"--past-end", 0, NULL, OPTION_SWITCH, &w->past_end, 0, 0,
         "go on after the end of a document"},
        {"--no-cache", 0, NULL, OPTION_SWITCH, &w->no_cache, 0, 0,
         "compute keys and values of the whole text again for each token: slower, for comparison"},
        {0}};

    memcpy(table, options, sizeof options);
}

/* ---- the model ---- */

static enum status open_weights(struct speaker *s)
{
    struct arena plan = arena_plan("weights"), weights;

    TRY(params_carve(&s->model.params, &plan, 0));
    TRY(device_alloc(s->place.at.dev, &s->weights, plan.peak));
    weights = arena_over("weights", s->weights, plan.peak);
    TRY(params_carve(&s->model.params, &weights, 0));
    return weights_load(&s->model, s->place.at.dev, s->folder);
}

/* The id of one entry of --stop: a token's text, or digits. */
static enum status read_stop(int32_t *id, const struct tokenizer *t, const char *text, size_t n)
{
    size_t digits = strspn(text, "0123456789");

    *id = tokenizer_find(t, text, (int64_t)n);
    if (*id < 0 && n > 0 && digits >= n && n < 10)
        *id = (int32_t)strtol(text, NULL, 10);
    if (*id < 0 || *id >= t->vocab)
        return fail(
            ST_EUSAGE,
            "--stop: '%.*s' is no token of tokenizer '%s', and no id from 0 to %d; `narrows "
            "tokenize` shows what it is cut into",
            (int)n, text, t->name, (int)t->vocab - 1);
    return ST_OK;
}

static enum status read_stops(struct speaker *s, const char *list)
{
    while (list) {
        size_t n = strcspn(list, ",");

        if (s->stop_count == STOPS)
            return fail(ST_EUSAGE, "--stop names more than %d tokens", STOPS);
        TRY(read_stop(&s->stops[s->stop_count++], &s->tokenizer, list, n));
        list = list[n] ? list + n + 1 : NULL;
    }
    return ST_OK;
}

static enum status open_speaker(struct speaker *s, struct host *job, const struct options *words,
                                const char *stop)
{
    TRY(weights_find(s->folder, words->word[0]));
    TRY(saved_settings(&s->cfg, s->folder, words));
    TRY(tokenizer_open(&s->tokenizer, s->cfg.data.tokenizer));
    TRY(read_stops(s, stop));
    TRY(config_resolve(&s->cfg, 1, s->tokenizer.vocab));
    TRY(config_validate(&s->cfg, 1));
    TRY(model_open(&s->model, &s->cfg, 0, 1, place_wide(&s->cfg)));
    if (s->cfg.run.threads == 0 && params_count(&s->model.params) < SMALL)
        s->cfg.run.threads = 1;
    TRY(place_open(&s->place, &s->cfg, job));
    return open_weights(s);
}

static void close_speaker(struct speaker *s)
{
    if (s->weights)
        device_release(s->place.at.dev, s->weights);
    if (s->model.cfg)
        model_close(&s->model);
    if (s->place.job)
        place_close(&s->place);
    if (s->tokenizer.kind)
        tokenizer_close(&s->tokenizer);
}

/* ---- the text ---- */

static enum status write_text(void *context, const char *bytes, int64_t n)
{
    FILE *out = context;

    if (fwrite(bytes, 1, (size_t)n, out) != (size_t)n || fflush(out))
        return fail(ST_EIO, "the text could not be written: %s", strerror(errno));
    return ST_OK;
}

static struct generate_request request(const struct speaker *s, const struct wishes *w)
{
    struct generate_request q = generate_request(&s->cfg);

    if (w->prompt) {
        q.prompt = w->prompt;
        q.prompt_bytes = (int64_t)strlen(w->prompt);
    }
    if (w->tokens >= 0)
        q.tokens = w->tokens;
    if (w->temperature >= 0)
        q.sampler.temperature = w->temperature;
    if (w->top_k >= 0)
        q.sampler.top_k = (int32_t)w->top_k;
    if (w->seed >= 0)
        q.sampler.seed = (uint64_t)w->seed;
    q.uncached = w->no_cache;
    q.past_end = w->past_end;
    q.stops = s->stops;
    q.stop_count = s->stop_count;
    q.stop = interrupt_requested;
    q.write = write_text;
    q.context = stdout;
    return q;
}

static enum status speak(struct speaker *s, const struct wishes *w)
{
    struct generate_request q = request(s, w);
    struct generate_result r = {0};
    enum status st;
    int64_t passes; /* of the model in r.seconds: the prompt's gave the first token */

    TRY(write_text(stdout, q.prompt, q.prompt_bytes));
    st = generate_text(&r, &s->model, &s->place.at, &s->tokenizer, &q);
    if (st != ST_OK && st != ST_ESTOP)
        return st;
    passes = r.ended ? r.tokens : r.tokens - 1;
    TRY(write_text(stdout, "\n", 1));
    fprintf(stderr, "%lld tokens%s in %.2f s, %.1f tokens/s; prompt of %lld tokens in %.2f s\n",
            (long long)r.tokens, r.ended ? " to the end" : "", r.seconds,
            r.seconds > 0 ? (double)passes / r.seconds : 0.0, (long long)r.prompt_tokens,
            r.prompt_seconds);
    return st;
}

static enum status generate(struct host *job, const struct options *words, const struct wishes *w)
{
    struct speaker *s;
    enum status st;

    if (host_size(job) > 1)
        return host_agree(job,
                          fail(ST_EUSAGE,
                               "narrows generate runs on one rank and was started on %d; start "
                               "it as it is, without mpirun or narrows launch",
                               host_size(job)));
    s = calloc(1, sizeof *s);
    if (!s)
        return fail(ST_ENOMEM, "no memory for a model");
    st = open_speaker(s, job, words, w->stop);
    if (st == ST_OK)
        st = speak(s, w);
    close_speaker(s);
    free(s);
    return st;
}

enum status command_generate(struct host *job, int argc, char **argv)
{
    struct wishes w = {.tokens = -1, .top_k = -1, .seed = -1, .temperature = -1};
    struct option table[OPTIONS];
    struct options words;
    const struct options_spec spec = {
        "generate",
        "writes text with the weights of a run, or of a folder that holds a saved model",
        "RUN|FOLDER",
        1,
        1,
        true,
        table,
        "narrows generate runs/quickstart --prompt \"KING:\" --tokens 300\n"
        "narrows generate runs/quickstart/best --temperature 0"};

    fill_options(table, &w);
    TRY(host_agree(job, options_parse(&words, &spec, argc, argv)));
    if (words.help)
        return host_rank(job) == 0 ? options_help(stdout, &spec) : ST_OK;
    return generate(job, &words, &w);
}
