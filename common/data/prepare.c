#include "common/data/prepare.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE = 1024 };

enum slot_state { SLOT_FREE, SLOT_READ, SLOT_TAKEN, SLOT_DONE };

/* A batch on its way. */
struct slot {
    enum slot_state state;
    struct documents_batch batch;
    struct byte_list text;    /* of one document */
    struct token_list ids;    /* of all documents */
    int64_t *ends;            /* [batch.n]: where the ids of each end */
    int64_t ends_room, bytes; /* bytes of text */
    struct documents_counts counts;
    enum status status;
    char message[MESSAGE];
};

struct crew {
    const struct tokenizer *t;
    const struct prepare_options *o;
    struct slot *slot;
    int slots, started, stopping;
    int64_t read, taken, written; /* batches: slot i % slots holds batch i */
    pthread_t *thread;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
};

/* ---- tokenising ---- */

static enum status room_for_ends(struct slot *s)
{
    int64_t *ends;

    if (s->batch.n <= s->ends_room)
        return ST_OK;
    ends = realloc(s->ends, (size_t)s->batch.n * sizeof *ends);
    if (!ends)
        return fail(ST_ENOMEM, "no memory for %lld documents", (long long)s->batch.n);
    s->ends = ends;
    s->ends_room = s->batch.n;
    return ST_OK;
}

static enum status encode_document(struct slot *s, const struct crew *c, int64_t i)
{
    const struct documents_raw *raw = &s->batch.raw[i];
    int64_t n;
    enum status st = ST_OK;

    s->text.count = 0;
    TRY(documents_text(&s->text, &n, &s->counts, &s->batch, i, c->o->paths, &c->o->documents));
    s->bytes += n;
    if (n == 0 && raw->part != DOCUMENTS_END)
        return ST_OK;
    if (n > 0)
        st = tokenizer_encode(&s->ids, c->t, s->text.bytes, n, TOKENIZER_PLAIN);
    if (st != ST_OK)
        status_prefix("%s:%lld: ", c->o->paths[raw->file], (long long)raw->line);
    if (st == ST_OK && c->o->end_ids && raw->part != DOCUMENTS_BEGIN)
        st = list_tokens_add(&s->ids, &c->t->end, 1);
    return st;
}

static enum status encode_batch(struct slot *s, const struct crew *c)
{
    s->ids.count = s->bytes = 0;
    s->counts = (struct documents_counts){0};
    TRY(room_for_ends(s));
    for (int64_t i = 0; i < s->batch.n; i++) {
        TRY(encode_document(s, c, i));
        s->ends[i] = s->ids.count;
    }
    return ST_OK;
}

/* The next batch to tokenise; NULL when there will be none. */
static struct slot *take_work(struct crew *c)
{
    struct slot *s = NULL;

    pthread_mutex_lock(&c->lock);
    while (c->taken == c->read && !c->stopping)
        pthread_cond_wait(&c->work, &c->lock);
    if (c->taken < c->read && !c->stopping) {
        s = &c->slot[c->taken++ % c->slots];
        s->state = SLOT_TAKEN;
    }
    pthread_mutex_unlock(&c->lock);
    return s;
}

static void *run_thread(void *context)
{
    struct crew *c = context;
    struct slot *s;

    while ((s = take_work(c)) != NULL) {
        status_clear();
        s->status = encode_batch(s, c);
        snprintf(s->message, sizeof s->message, "%s", status_message());
        pthread_mutex_lock(&c->lock);
        s->state = SLOT_DONE;
        pthread_cond_signal(&c->done);
        pthread_mutex_unlock(&c->lock);
    }
    return NULL;
}

/* ---- the crew ---- */

static void end_crew(struct crew *c)
{
    pthread_mutex_lock(&c->lock);
    c->stopping = 1;
    pthread_cond_broadcast(&c->work);
    pthread_mutex_unlock(&c->lock);
    for (int i = 0; i < c->started; i++)
        pthread_join(c->thread[i], NULL);
    for (int i = 0; c->slot && i < c->slots; i++) {
        documents_batch_free(&c->slot[i].batch);
        list_bytes_free(&c->slot[i].text);
        list_tokens_free(&c->slot[i].ids);
        free(c->slot[i].ends);
    }
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->work);
    pthread_cond_destroy(&c->done);
    free(c->slot);
    free(c->thread);
}

static enum status begin_crew(struct crew *c, const struct tokenizer *t,
                              const struct prepare_options *o)
{
    *c = (struct crew){.t = t, .o = o, .slots = 2 * o->threads + 2};
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->work, NULL);
    pthread_cond_init(&c->done, NULL);
    c->slot = calloc((size_t)c->slots, sizeof *c->slot);
    c->thread = calloc((size_t)o->threads, sizeof *c->thread);
    if (!c->slot || !c->thread)
        return fail(ST_ENOMEM, "no memory for %d threads", o->threads);
    for (; c->started < o->threads; c->started++)
        if (pthread_create(&c->thread[c->started], NULL, run_thread, c) != 0)
            return fail(ST_ENOMEM, "thread %d of %d cannot be started; give fewer: --threads",
                        c->started + 1, o->threads);
    return ST_OK;
}

/* ---- reading and writing ---- */

/* The n ids of a document, or of a part of one. */
static enum status write_document(struct shard_write *w, const int32_t *ids, int64_t n, int part)
{
    if (n > 0)
        TRY(shard_write_tokens(w, ids, n));
    if (part == DOCUMENTS_DROP)
        return shard_write_drop(w);
    if (part == DOCUMENTS_BEGIN || w->length == 0)
        return ST_OK;
    TRY(shard_write_sequence(w));
    return shard_write_document(w);
}

static enum status write_batch(struct prepare_state *state, struct shard_write *w,
                               const struct slot *s)
{
    int64_t begin = 0;

    if (s->status != ST_OK)
        return fail(s->status, "%s", s->message);
    for (int64_t i = 0; i < s->batch.n; i++) {
        TRY(write_document(w, s->ids.ids + begin, s->ends[i] - begin, s->batch.raw[i].part));
        begin = s->ends[i];
    }
    state->bytes += s->bytes;
    state->counts.empty += s->counts.empty;
    state->counts.skipped += s->counts.skipped;
    state->counts.replaced += s->counts.replaced;
    state->counts.nul += s->counts.nul;
    state->counts.cr += s->counts.cr;
    return ST_OK;
}

/* Waits until the oldest batch is tokenised, or returns NULL where that is not needed yet: there
 * is room to read more. */
static struct slot *finished(struct crew *c, int may_read)
{
    struct slot *s = &c->slot[c->written % c->slots];

    pthread_mutex_lock(&c->lock);
    while (c->written < c->read && s->state != SLOT_DONE && !may_read)
        pthread_cond_wait(&c->done, &c->lock);
    if (c->written == c->read || s->state != SLOT_DONE)
        s = NULL;
    pthread_mutex_unlock(&c->lock);
    return s;
}

static void hand_out(struct crew *c)
{
    pthread_mutex_lock(&c->lock);
    c->slot[c->read++ % c->slots].state = SLOT_READ;
    pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->lock);
}

static void report(struct prepare_state *state, const struct crew *c,
                   const struct documents_reader *r, const struct shard_write *w)
{
    state->taken = documents_taken(r);
    state->documents = w->documents;
    state->tokens = w->count;
    if (c->o->progress)
        c->o->progress(c->o->context, state);
}

/* Writes the batch in s and frees its slot. */
static enum status pass_on(struct prepare_state *state, struct crew *c, struct slot *s,
                           const struct documents_reader *r, struct shard_write *w)
{
    TRY(write_batch(state, w, s));
    s->state = SLOT_FREE;
    c->written++;
    report(state, c, r, w);
    return ST_OK;
}

/* Reads the next batch and hands it out; *ended: there was none. */
static enum status read_batch(struct crew *c, struct documents_reader *r, int *ended)
{
    struct slot *s = &c->slot[c->read % c->slots];

    TRY(documents_read(&s->batch, r, PREPARE_BATCH));
    *ended = s->batch.n == 0;
    if (!*ended)
        hand_out(c);
    return ST_OK;
}

/* Writes what is ready, else reads while there is room, else waits. */
static enum status work(struct prepare_state *state, struct crew *c, struct documents_reader *r,
                        struct shard_write *w)
{
    int ended = 0;

    while (!ended || c->written < c->read) {
        int may_read = !ended && c->read - c->written < c->slots;
        struct slot *s = finished(c, may_read);

        if (c->o->stop && c->o->stop())
            return fail(ST_ESTOP, "stopped on request; nothing was written to %s", w->path);
        if (s)
            TRY(pass_on(state, c, s, r, w));
        else if (may_read)
            TRY(read_batch(c, r, &ended));
    }
    report(state, c, r, w);
    return ST_OK;
}

static enum status run(struct prepare_state *state, const struct tokenizer *t,
                       struct documents_reader *r, struct shard_write *w,
                       const struct prepare_options *o)
{
    struct crew c;
    enum status st = begin_crew(&c, t, o);

    if (st == ST_OK)
        st = work(state, &c, r, w);
    end_crew(&c);
    return st;
}

enum status prepare(struct prepare_state *state, const struct tokenizer *t,
                    const struct prepare_options *o)
{
    struct documents_options documents = o->documents;
    struct documents_reader reader;
    struct shard_write writer;
    enum status st;

    *state = (struct prepare_state){0};
    if (o->end_ids && t->end < 0)
        return fail(ST_ECONFIG,
                    "tokenizer '%s' has no token for the end of a document; give --no-eod",
                    t->name ? t->name : t->kind);
    documents.tokenizer = t;
    TRY(input_sizes(&state->size, o->paths, o->files));
    TRY(documents_open(&reader, o->paths, o->files, &documents));
    st = shard_write_open(&writer, o->output, o->format, t->vocab, o->overwrite);
    if (st == ST_OK) {
        st = run(state, t, &reader, &writer, o);
        if (st == ST_OK)
            st = shard_write_finish(&writer);
        else
            shard_write_abandon(&writer);
    }
    documents_close(&reader);
    return st;
}
