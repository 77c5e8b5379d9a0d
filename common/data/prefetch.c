#include "common/data/prefetch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status batch_open(struct batch *b, int64_t rows, int64_t seq, int with_starts)
{
    size_t n = (size_t)(rows * seq), bytes = (n ? n : 1) * sizeof(int32_t);

    *b = (struct batch){.tokens = malloc(bytes), .targets = malloc(bytes)};
    if (with_starts)
        b->starts = malloc(bytes);
    if (!b->tokens || !b->targets || (with_starts && !b->starts))
        return fail(ST_ENOMEM, "no memory for a batch of %zu tokens", n);
    return ST_OK;
}

void batch_close(struct batch *b)
{
    free(b->tokens);
    free(b->targets);
    free(b->starts);
    *b = (struct batch){0};
}

static enum status read_batch(struct prefetch *p)
{
    struct batch *b = &p->next;

    TRY(mixture_valid(&b->valid, p->from, p->step));
    return mixture_rows(b->tokens, b->targets, b->starts, p->from, p->step, p->first, p->rows);
}

/* The thread. Its record of failures is its own: the message goes along. */
static void *read_ahead(void *context)
{
    struct prefetch *p = context;
    enum status st;

    pthread_mutex_lock(&p->lock);
    while (!p->over) {
        if (p->step < 0 || p->ready) {
            pthread_cond_wait(&p->asked, &p->lock);
            continue;
        }
        pthread_mutex_unlock(&p->lock);
        st = read_batch(p);
        snprintf(p->message, sizeof p->message, "%s", st == ST_OK ? "" : status_message());
        status_clear();
        pthread_mutex_lock(&p->lock);
        p->st = st;
        p->ready = 1;
        pthread_cond_signal(&p->done);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Signals are the main thread's. */
static int start(struct prefetch *p)
{
    sigset_t all, before;
    int code;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    code = pthread_create(&p->thread, NULL, read_ahead, p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

enum status prefetch_open(struct prefetch *p, const struct mixture *from, int64_t first,
                          int64_t rows, int with_starts)
{
    int code;

    *p = (struct prefetch){.from = from, .first = first, .rows = rows, .step = -1};
    TRY(batch_open(&p->next, rows, from->options.seq, with_starts));
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->asked, NULL);
    pthread_cond_init(&p->done, NULL);
    code = start(p);
    if (code != 0)
        return fail(ST_EINTERNAL, "no thread to read the next batch with: %s", strerror(code));
    p->running = 1;
    return ST_OK;
}

void prefetch_close(struct prefetch *p)
{
    if (p->running) {
        pthread_mutex_lock(&p->lock);
        p->over = 1;
        pthread_cond_signal(&p->asked);
        pthread_mutex_unlock(&p->lock);
        pthread_join(p->thread, NULL);
        pthread_mutex_destroy(&p->lock);
        pthread_cond_destroy(&p->asked);
        pthread_cond_destroy(&p->done);
    }
    batch_close(&p->next);
    *p = (struct prefetch){0};
}

/* Both with the lock held. */
static void ask(struct prefetch *p, int64_t step)
{
    p->step = step;
    p->ready = 0;
    pthread_cond_signal(&p->asked);
}

static void wait_for(struct prefetch *p)
{
    while (p->step >= 0 && !p->ready)
        pthread_cond_wait(&p->done, &p->lock);
}

enum status prefetch_take(struct prefetch *p, struct batch *b, int64_t step, int64_t next)
{
    struct batch taken;
    enum status st;

    pthread_mutex_lock(&p->lock);
    wait_for(p);
    if (p->step != step) {
        ask(p, step);
        wait_for(p);
    }
    taken = p->next;
    p->next = *b;
    *b = taken;
    st = p->st;
    if (st != ST_OK)
        fail(st, "%s", p->message);
    ask(p, st == ST_OK ? next : -1);
    pthread_mutex_unlock(&p->lock);
    return st;
}
