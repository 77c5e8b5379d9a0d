#include "common/tokenizer/recipe.h"

#include "common/tokenizer/border.h"

#include <stdlib.h>
#include <string.h>

enum status recipe_open(struct recipe **r)
{
    struct recipe *made = calloc(1, sizeof *made);

    *r = made;
    if (!made)
        return fail(ST_ENOMEM, "no memory for a tokenizer");
    made->unknown = -1;
    memset(made->byte_id, -1, sizeof made->byte_id);
    memset(made->ascii_id, -1, sizeof made->ascii_id);
    made->lock_made = pthread_mutex_init(&made->lock, NULL) == 0;
    return made->lock_made ? ST_OK : fail(ST_ENOMEM, "no memory for the lock of a tokenizer");
}

void recipe_close(struct recipe *r)
{
    if (!r)
        return;
    vocab_close(&r->vocab);
    bpe_close(&r->bpe);
    added_close(&r->raw);
    added_close(&r->edited);
    for (int i = 0; i < r->cut_count; i++)
        pattern_close(&r->cuts[i].pattern);
    while (r->idle) {
        struct recipe_worker *w = r->idle;

        r->idle = recipe_next_idle(w);
        recipe_worker_free(w);
    }
    if (r->lock_made)
        pthread_mutex_destroy(&r->lock);
    free(r);
}

enum status recipe_added(struct recipe *r, const struct added_token *t, int edited)
{
    struct vocab *v = &r->vocab;
    struct vocab_entry *e;

    if (t->id < 0 || t->id >= v->size || !v->entries[t->id].present)
        TRY(vocab_put(v, t->id, t->text, t->n));
    else
        TRY(vocab_text(v, t->id, t->text, t->n));
    e = &v->entries[t->id];
    e->special = t->special != 0;
    if (t->special || e->key_n != t->n || memcmp(vocab_key_of(v, t->id), t->text, (size_t)t->n))
        e->hidden = 1;
    return added_put(edited ? &r->edited : &r->raw, t);
}

enum status recipe_cut(struct recipe *r, enum cut_kind kind, struct cut **made)
{
    if (r->cut_count == CUTS)
        return fail(ST_EFORMAT, "more than %d steps that cut text into words", CUTS);
    *made = &r->cuts[r->cut_count++];
    **made = (struct cut){.kind = kind};
    return ST_OK;
}

/* Tokens that are looked for in edited text are edited as well. */
static enum status edit_added(struct recipe *r)
{
    struct byte_list buffer[2] = {{0}, {0}};
    enum status st = ST_OK;

    for (int32_t i = 0; st == ST_OK && i < r->edited.count && !r->edited_as_is; i++) {
        struct added_token *t = &r->edited.tokens[i];
        const unsigned char *text = (const unsigned char *)t->text;
        int64_t n = t->n;
        char *copy;

        st = edit_run(&text, &n, &r->edits, buffer, 1);
        if (st != ST_OK || (const char *)text == t->text)
            continue;
        copy = n > 0 ? malloc((size_t)n) : NULL;
        if (!copy) {
            st = n > 0 ? fail(ST_ENOMEM, "no memory for an added token")
                       : fail(ST_EFORMAT, "the normalizer leaves nothing of added token %d",
                              (int)t->id);
            continue;
        }
        memcpy(copy, text, (size_t)n);
        free(t->text);
        t->text = copy;
        t->n = (int32_t)n;
    }
    list_bytes_free(&buffer[0]);
    list_bytes_free(&buffer[1]);
    return st;
}

/* The ids of single characters, for those that are looked up most. */
static void fill_ascii(struct recipe *r)
{
    for (int c = 0; c < 128; c++) {
        char text = (char)c;

        r->ascii_id[c] = vocab_find(&r->vocab, &text, 1);
    }
}

static struct token_piece piece(const struct tokenizer *t, int32_t id)
{
    const struct recipe *r = t->data;
    const struct vocab_entry *e = &r->vocab.entries[id];

    return (struct token_piece){vocab_text_of(&r->vocab, id), e->text_n, e->special};
}

static int64_t border(int64_t *next, const struct tokenizer *t, const void *bytes, int64_t n,
                      int64_t least)
{
    return border_last(next, t->data, bytes, n, least);
}

static void close_recipe(struct tokenizer *t)
{
    recipe_close(t->data);
}

/* Whether a token goes across a gap: has a mark after something else. */
static int crosses_gap(const struct recipe *r, int32_t id)
{
    const char *key = vocab_key_of(&r->vocab, id);
    int32_t n = r->vocab.entries[id].key_n, at = 0;

    while (n - at >= r->mark_n && memcmp(key + at, r->mark, (size_t)r->mark_n) == 0)
        at += r->mark_n;
    return n > at && memmem(key + at, (size_t)(n - at), r->mark, (size_t)r->mark_n) != NULL;
}

/* Text that is not cut would be one long word. Where no token goes across a gap between words, no
 * merge does, and words may be encoded apart (and be remembered). */
static enum status cut_at_gaps(struct recipe *r)
{
    struct cut *c;

    if (r->cut_count > 0 || r->mark_n == 0 || vocab_find(&r->vocab, r->mark, r->mark_n) < 0)
        return ST_OK;
    for (int32_t id = 0; id < r->vocab.size; id++)
        if (!r->vocab.entries[id].hidden && crosses_gap(r, id))
            return ST_OK;
    return recipe_cut(r, CUT_GAPS, &c);
}

enum status recipe_finish(struct tokenizer *t, struct recipe *r, const char *kind)
{
    TRY(vocab_seal(&r->vocab));
    TRY(cut_at_gaps(r));
    TRY(edit_added(r));
    TRY(added_seal(&r->raw));
    TRY(added_seal(&r->edited));
    fill_ascii(r);
    t->kind = kind;
    t->vocab = r->vocab.size;
    t->data = r;
    t->encode = recipe_encode;
    t->piece = piece;
    t->border = border_known(r) ? border : NULL;
    t->close = close_recipe;
    return ST_OK;
}
