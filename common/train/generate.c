#include "common/train/generate.h"

#include "common/backend/record.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- memory, sized by a rehearsal ---- */

struct sizes {
    size_t memory, scratch, staging;
};

/* The longest prefix and the last token: nothing needs more. */
static enum status rehearse(struct sizes *s, struct model *m, struct step_place *at, int64_t window)
{
    struct arena memory = arena_plan("cache and activations"), scratch = arena_plan("scratch");
    struct tp_env env = {.dev = at->dev, .tp = at->tp, .scratch = &scratch};
    struct decode d;
    enum status st;

    TRY(decode_open(&d, m, &env, &memory, window));
    st = decode_run(&d, NULL, 0, window);
    if (st == ST_OK)
        st = decode_run(&d, NULL, window - 1, 1);
    decode_close(&d);
    *s = (struct sizes){memory.peak, scratch.peak, record_comm_peak(at->tp)};
    return st;
}

static enum status plan(struct sizes *s, struct model *m, const struct step_place *at,
                        int64_t window)
{
    struct step_place pretended = {0};
    enum status st;

    TRY(record_open(&pretended.dev, at->dev->wide));
    st = record_comm(&pretended.tp, pretended.dev, at->tp->rank, at->tp->size, NULL);
    if (st == ST_OK)
        st = rehearse(s, m, &pretended, window);
    comm_destroy(pretended.tp);
    device_close(pretended.dev);
    return st;
}

static enum status arena_make(struct generator *g, struct arena *a, const char *name, size_t bytes)
{
    void *p;

    TRY(device_alloc(g->dev, &p, bytes ? bytes : ARENA_ALIGN));
    *a = arena_over(name, p, bytes);
    return ST_OK;
}

static enum status open_memory(struct generator *g, struct model *m, const struct step_place *at)
{
    struct tp_env env = {
        .dev = at->dev, .tp = at->tp, .ledger = at->ledger, .scratch = &g->scratch};
    size_t vocab = (size_t)m->shape.vocab_padded;
    struct sizes s = {0};

    TRY(plan(&s, m, at, g->window));
    g->context = malloc((size_t)g->window * sizeof *g->context);
    g->raw = malloc(vocab * sizeof(double));
    g->logits = malloc(vocab * sizeof *g->logits);
    if (!g->context || !g->raw || !g->logits)
        return fail(ST_ENOMEM, "no memory for %zu logits", vocab);
    TRY(arena_make(g, &g->memory, "cache and activations", s.memory));
    TRY(arena_make(g, &g->scratch, "scratch", s.scratch));
    TRY(comm_reserve(at->tp, s.staging));
    return decode_open(&g->decode, m, &env, &g->memory, g->window);
}

enum status generator_open(struct generator *g, struct model *m, const struct step_place *at,
                           int64_t window, int uncached)
{
    enum status st;

    memset(g, 0, sizeof *g);
    if (window < 2)
        return fail(ST_ECONFIG, "a window of %lld positions; it must be at least 2",
                    (long long)window);
    g->dev = at->dev;
    g->window = window;
    g->uncached = uncached;
    st = open_memory(g, m, at);
    if (st != ST_OK)
        generator_close(g);
    return st;
}

void generator_close(struct generator *g)
{
    decode_close(&g->decode);
    if (g->memory.base)
        device_release(g->dev, g->memory.base);
    if (g->scratch.base)
        device_release(g->dev, g->scratch.base);
    free(g->context);
    free(g->raw);
    free(g->logits);
    memset(g, 0, sizeof *g);
}

/* ---- token by token ---- */

enum status generator_push(struct generator *g, int32_t token)
{
    FAIL_IF(token < 0 || token >= g->decode.stage.model->cfg->model.vocab, ST_EINTERNAL);
    if (g->n == g->window) { /* full: only the younger half stays */
        int64_t keep = g->window / 2;

        memmove(g->context, g->context + g->n - keep, (size_t)keep * sizeof *g->context);
        g->n = keep;
        g->cached = 0;
    }
    g->context[g->n++] = token;
    g->total++;
    return ST_OK;
}

enum status generator_logits(struct generator *g, const float **logits)
{
    int64_t first = g->uncached || g->cached == g->n ? 0 : g->cached;
    const struct tensor *t = &g->decode.logits;

    FAIL_IF(g->n == 0, ST_EINTERNAL);
    TRY(decode_run(&g->decode, g->context + first, first, g->n - first));
    g->cached = g->n;
    TRY(device_download(g->dev, g->raw, t->data, (size_t)tensor_count(t) * dtype_size(t->dtype)));
    for (int64_t i = 0; i < tensor_count(t); i++)
        g->logits[i] = (float)dtype_load(g->raw, t->dtype, i);
    *logits = g->logits;
    return ST_OK;
}

/* ---- text ---- */

/* A run of generate_text. */
struct text_run {
    struct generator g;
    struct host *group; /* its ranks; others may wait for them */
    const struct tokenizer *t;
    const struct generate_request *q;
    struct decoder decoder;
    struct byte_list text; /* complete and not yet written */
    int32_t vocab;         /* ids that may be chosen */
    double since;          /* seconds */
};

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds since the last call. */
static double lap(struct text_run *r)
{
    double was = r->since;

    r->since = now();
    return r->since - was;
}

/* Hands the text that is complete to the request. */
static enum status emit(struct text_run *r)
{
    if (r->text.count > 0 && r->q->write)
        TRY(r->q->write(r->q->context, r->text.bytes, r->text.count));
    r->text.count = 0;
    return ST_OK;
}

static enum status write_token(struct text_run *r, int32_t token)
{
    TRY(decoder_add(&r->text, &r->decoder, token));
    return emit(r);
}

static enum status write_rest(struct text_run *r)
{
    TRY(decoder_end(&r->text, &r->decoder));
    return emit(r);
}

static enum status push_prompt(struct text_run *r, struct generate_result *result)
{
    const struct tokenizer *t = r->t;
    int32_t first = t->end >= 0 ? t->end : t->begin >= 0 ? t->begin : 0;
    struct token_list ids = {0};
    unsigned how = TOKENIZER_SPECIAL | (r->q->framed ? TOKENIZER_FRAME : 0u);
    enum status st = tokenizer_encode(&ids, t, r->q->prompt, r->q->prompt_bytes, how);

    if (st == ST_OK && ids.count == 0) /* what stands before a document: the end of another one */
        st = list_tokens_add(&ids, &first, 1);
    for (int64_t i = 0; st == ST_OK && i < ids.count; i++)
        st = generator_push(&r->g, ids.ids[i]);
    result->prompt_tokens = ids.count;
    list_tokens_free(&ids);
    r->decoder = r->q->prompt_bytes ? decoder_continue(t, TOKENIZER_PLAIN)
                                    : decoder_begin(t, TOKENIZER_PLAIN);
    return st;
}

/* Whether the text ends where that token would come. */
static int ends(const struct text_run *r, int32_t token)
{
    int found = token == r->t->end && !r->q->past_end;

    for (int i = 0; i < r->q->stop_count; i++)
        found |= token == r->q->stops[i];
    return found;
}

static enum status write_tokens(struct text_run *r, struct generate_result *result, int one_rank)
{
    const float *logits;
    int32_t token;

    while (result->tokens < r->q->tokens) {
        TRY(generator_logits(&r->g, &logits));
        host_alive(r->group);
        if (result->tokens == 0)
            result->prompt_seconds = lap(r);
        TRY(sampler_pick(&token, &r->q->sampler, logits, r->vocab, 0, r->g.total));
        if (ends(r, token)) {
            result->ended = 1;
            return ST_OK;
        }
        TRY(write_token(r, token));
        TRY(generator_push(&r->g, token));
        result->tokens++;
        if (one_rank && r->q->stop && r->q->stop())
            return fail(ST_ESTOP, "stopped on request after %lld tokens",
                        (long long)result->tokens);
    }
    return ST_OK;
}

static enum status run(struct text_run *r, struct generate_result *result, int one_rank)
{
    enum status st, end;

    lap(r);
    TRY(push_prompt(r, result));
    st = write_tokens(r, result, one_rank);
    result->seconds = lap(r);
    end = write_rest(r);
    return st == ST_OK ? end : st;
}

struct generate_request generate_request(const struct config *cfg)
{
    return (struct generate_request){.prompt = cfg->sample.prompt,
                                     .prompt_bytes = (int64_t)strlen(cfg->sample.prompt),
                                     .tokens = cfg->sample.tokens,
                                     .framed = cfg->sample.frame,
                                     .sampler = {.temperature = cfg->sample.temperature,
                                                 .top_k = (int32_t)cfg->sample.top_k,
                                                 .seed = (uint64_t)cfg->sample.seed}};
}

enum status generate_text(struct generate_result *r, struct model *m, const struct step_place *at,
                          const struct tokenizer *t, const struct generate_request *q)
{
    struct text_run run_state = {.group = at->tp_host, .t = t, .q = q, .vocab = t->vocab};
    enum status st;

    *r = (struct generate_result){0};
    TRY(sampler_check(&q->sampler));
    if (m->cfg->model.vocab < t->vocab)
        return fail(ST_ECONFIG, "the model has %lld tokens, the tokenizer '%s' %d",
                    (long long)m->cfg->model.vocab, t->name, (int)t->vocab);
    TRY(generator_open(&run_state.g, m, at, m->cfg->train.seq, q->uncached));
    st = run(&run_state, r, at->tp->size == 1);
    generator_close(&run_state.g);
    list_bytes_free(&run_state.text);
    return st;
}
