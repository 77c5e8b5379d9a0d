/* From a text to ids, as a recipe says. */
#include "common/tokenizer/scan.h"
#include "common/tokenizer/word.h"

#include <stdlib.h>
#include <string.h>

/* ---- the memory of a thread ---- */

void recipe_worker_free(struct recipe_worker *w)
{
    free(w->slots);
    bpe_scratch_free(&w->scratch);
    list_tokens_free(&w->symbols);
    for (int i = 0; i < CUTS; i++)
        pattern_scratch_free(&w->patterns[i]);
    for (int i = 0; i < 2; i++) {
        list_bytes_free(&w->edits[i]);
        list_bytes_free(&w->lead[i]);
    }
    free(w);
}

struct recipe_worker *recipe_next_idle(const struct recipe_worker *w)
{
    return w->next;
}

static enum status take_worker(struct recipe_worker **out, struct recipe *r)
{
    struct recipe_worker *w;

    pthread_mutex_lock(&r->lock);
    w = r->idle;
    if (w)
        r->idle = w->next;
    pthread_mutex_unlock(&r->lock);
    if (!w) {
        w = calloc(1, sizeof *w);
        if (w)
            w->slots = calloc(WORD_SLOTS, sizeof *w->slots);
        if (!w || !w->slots) {
            free(w);
            return fail(ST_ENOMEM, "no memory to encode text");
        }
    }
    *out = w;
    return ST_OK;
}

static void give_worker(struct recipe *r, struct recipe_worker *w)
{
    pthread_mutex_lock(&r->lock);
    w->next = r->idle;
    r->idle = w;
    pthread_mutex_unlock(&r->lock);
}

/* ---- cutting ---- */

/* One encoding. */
struct job {
    struct token_list *out;
    struct recipe_worker *w;
    struct recipe *r;
    int special;
};

static enum status cut_from(struct job *j, int step, const unsigned char *text, int64_t n);

static int is_mark(const struct recipe *r, const unsigned char *text, int64_t n, int64_t at)
{
    return n - at >= r->mark_n && memcmp(text + at, r->mark, (size_t)r->mark_n) == 0;
}

/* The end of the piece that begins at `at`: before a mark, or before the first of some marks. */
static int64_t next_mark(const struct recipe *r, enum cut_kind kind, const unsigned char *text,
                         int64_t n, int64_t at)
{
    int64_t end = at;

    if (kind == CUT_GAPS)
        while (is_mark(r, text, n, end))
            end += r->mark_n;
    else if (is_mark(r, text, n, end))
        end += r->mark_n;
    while (end < n) {
        const unsigned char *found = memchr(text + end, r->mark[0], (size_t)(n - end));

        if (!found)
            return n;
        end = found - text;
        if (is_mark(r, text, n, end))
            return end;
        end++;
    }
    return n;
}

/* The end of a digit, of a run of digits, or of what lies between. */
static int64_t next_digits(enum cut_kind kind, const unsigned char *text, int64_t n, int64_t at)
{
    int length, digit = scan_char(&length, text, n, at) == SCAN_NUMBER;

    at += length;
    while (at < n && (scan_char(&length, text, n, at) == SCAN_NUMBER) == digit &&
           !(digit && kind == CUT_DIGIT))
        at += length;
    return at;
}

static int64_t piece_end(const struct recipe *r, const struct cut *c, const unsigned char *text,
                         int64_t n, int64_t at)
{
    switch (c->kind) {
    case CUT_GPT2:
        return scan_gpt2(text, n, at);
    case CUT_CL100K:
        return scan_cl100k(text, n, at, c->digits);
    case CUT_DIGIT:
    case CUT_DIGITS:
        return next_digits(c->kind, text, n, at);
    case CUT_BEFORE:
    case CUT_GAPS:
        return next_mark(r, c->kind, text, n, at);
    case CUT_PATTERN:
        break;
    }
    return n;
}

static enum status cut_pattern(struct job *j, int step, const unsigned char *text, int64_t n)
{
    const struct cut *c = &j->r->cuts[step];
    int64_t at = 0, begin, end;

    while (at < n) {
        TRY(pattern_next(&begin, &end, &c->pattern, &j->w->patterns[step], text, n, at));
        if (begin > at && !c->drop_rest)
            TRY(cut_from(j, step + 1, text + at, begin - at));
        if (end > begin && !c->drop_matches)
            TRY(cut_from(j, step + 1, text + begin, end - begin));
        at = end;
    }
    return ST_OK;
}

/* Cuts n > 0 bytes as step and those after it say, and encodes the words. */
static enum status cut_from(struct job *j, int step, const unsigned char *text, int64_t n)
{
    const struct cut *c = &j->r->cuts[step];
    int last = step + 1 >= j->r->cut_count;

    if (step == j->r->cut_count)
        return word_encode(j->out, j->w, j->r, text, n, text + n);
    if (c->kind == CUT_PATTERN)
        return cut_pattern(j, step, text, n);
    for (int64_t at = 0, end; at < n; at = end) {
        end = piece_end(j->r, c, text, n, at);
        TRY(last ? word_encode(j->out, j->w, j->r, text + at, end - at, text + n)
                 : cut_from(j, step + 1, text + at, end - at));
    }
    return ST_OK;
}

/* ---- from the whole to the pieces ---- */

/* A piece without added tokens. first: the beginning of what the user gave. */
static enum status encode_piece(struct job *j, const unsigned char *text, int64_t n, int first)
{
    TRY(edit_run(&text, &n, &j->r->lead, j->w->lead, first));
    return n > 0 ? cut_from(j, 0, text, n) : ST_OK;
}

/* What lies between the raw added tokens. */
static enum status encode_between(struct job *j, const unsigned char *text, int64_t n, int first)
{
    int64_t at = 0, begin, end;

    TRY(edit_run(&text, &n, &j->r->edits, j->w->edits, first));
    while (at < n) {
        const struct added_token *t =
            added_next(&begin, &end, &j->r->edited, text, n, at, j->special);

        if (begin > at)
            TRY(encode_piece(j, text + at, begin - at, first && at == 0));
        if (t)
            TRY(list_tokens_add(j->out, &t->id, 1));
        at = end;
    }
    return ST_OK;
}

static enum status encode_all(struct job *j, const unsigned char *text, int64_t n)
{
    int64_t at = 0, begin, end;

    while (at < n) {
        const struct added_token *t = added_next(&begin, &end, &j->r->raw, text, n, at, j->special);

        if (begin > at)
            TRY(encode_between(j, text + at, begin - at, at == 0));
        if (t)
            TRY(list_tokens_add(j->out, &t->id, 1));
        at = end;
    }
    return ST_OK;
}

enum status recipe_encode(struct token_list *out, const struct tokenizer *t, const void *bytes,
                          int64_t n, unsigned how)
{
    struct recipe *r = t->data;
    struct job j = {.out = out, .r = r, .special = (how & TOKENIZER_SPECIAL) != 0};
    enum status st = ST_OK;

    TRY(take_worker(&j.w, r));
    if (how & TOKENIZER_FRAME)
        st = list_tokens_add(out, r->before, r->before_n);
    if (st == ST_OK)
        st = encode_all(&j, bytes, n);
    if (st == ST_OK && how & TOKENIZER_FRAME)
        st = list_tokens_add(out, r->after, r->after_n);
    give_worker(r, j.w);
    return st;
}
