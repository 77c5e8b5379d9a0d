#include "common/tokenizer/pieces.h"

#include "common/tokenizer/scan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int pieces_byte(const char *text, int64_t n)
{
    static const char digits[] = "0123456789ABCDEF";
    const char *high, *low;

    if (n != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' || !text[3] || !text[4])
        return -1;
    high = strchr(digits, text[3]);
    low = strchr(digits, text[4]);
    return high && low ? (int)(16 * (high - digits) + low - digits) : -1;
}

static enum status keep_score(struct pieces *p, float score)
{
    if (p->count == p->room) {
        int32_t room = 2 * p->room + 1024;
        float *bigger = realloc(p->scores, (size_t)room * sizeof *bigger);

        if (!bigger)
            return fail(ST_ENOMEM, "no memory for %d pieces", (int)room);
        p->scores = bigger;
        p->room = room;
    }
    p->scores[p->count++] = score;
    return ST_OK;
}

/* The text of a piece: spaces for marks. */
static enum status set_text(struct recipe *r, int32_t id)
{
    struct edits e = {.count = 1};
    struct byte_list buffer[2] = {{0}, {0}};
    const unsigned char *text = (const unsigned char *)vocab_key_of(&r->vocab, id);
    int64_t n = r->vocab.entries[id].key_n;
    enum status st;

    if (!memmem(text, (size_t)n, PIECES_MARK, 3))
        return ST_OK;
    e.list[0] =
        (struct edit){.kind = EDIT_REPLACE, .from = PIECES_MARK, .from_n = 3, .to = " ", .to_n = 1};
    st = edit_run(&text, &n, &e, buffer, 1);
    if (st == ST_OK)
        st = vocab_text(&r->vocab, id, text, n);
    list_bytes_free(&buffer[0]);
    return st;
}

static enum status add_byte(struct recipe *r, int32_t id, const void *text, int64_t n)
{
    int byte = pieces_byte(text, n);
    unsigned char one = (unsigned char)byte;

    if (byte < 0)
        return fail(ST_EFORMAT,
                    "piece %d, '%.*s', is to be a byte; bytes are called <0x00> to "
                    "<0xFF>",
                    (int)id, (int)(n < 40 ? n : 40), (const char *)text);
    if (r->byte_id[byte] >= 0)
        return fail(ST_EFORMAT, "pieces %d and %d are both byte %d", (int)r->byte_id[byte], (int)id,
                    byte);
    r->byte_id[byte] = id;
    r->byte_fallback = 1;
    r->vocab.entries[id].hidden = 1;
    return vocab_text(&r->vocab, id, &one, 1);
}

enum status pieces_add(struct pieces *p, const void *text, int64_t n, float score,
                       enum piece_type type)
{
    struct recipe *r = p->recipe;
    int32_t id = p->count;
    struct added_token t = {.id = id, .n = (int32_t)n, .text = (char *)text};

    if (n <= 0 || n > 1 << 20)
        return fail(ST_EFORMAT, "piece %d has %lld bytes; it must have 1 to %d", (int)id,
                    (long long)n, 1 << 20);
    if (!isfinite(score))
        return fail(ST_EFORMAT, "piece %d, '%.*s', has no finite score", (int)id,
                    (int)(n < 40 ? n : 40), (const char *)text);
    TRY(vocab_put(&r->vocab, id, text, n));
    TRY(keep_score(p, score));
    switch (type) {
    case PIECE_NORMAL:
        return set_text(r, id);
    case PIECE_BYTE:
        return add_byte(r, id, text, n);
    case PIECE_USER:
        TRY(recipe_added(r, &t, 1));
        r->vocab.entries[id].hidden = 1;
        return set_text(r, id);
    case PIECE_UNKNOWN:
        r->unknown = id;
        t.special = 1;
        return recipe_added(r, &t, 0);
    case PIECE_CONTROL:
        t.special = 1;
        return recipe_added(r, &t, 0);
    case PIECE_UNUSED:
        break;
    }
    return fail(ST_EFORMAT, "piece %d, '%.*s', is of type %d, which is not supported", (int)id,
                (int)(n < 40 ? n : 40), (const char *)text, (int)type);
}

/* ---- merges ---- */

struct scored {
    float score;
    int32_t id;
};

static int by_score(const void *x, const void *y)
{
    const struct scored *a = x, *b = y;

    return a->score != b->score ? (a->score < b->score) - (a->score > b->score)
                                : (a->id > b->id) - (a->id < b->id);
}

/* Cuts piece id wherever a character ends; *pairs counts the cuts into two pieces, which become
 * merges of that rank if `add`. */
static enum status cut_piece(int64_t *pairs, struct recipe *r, int32_t id, int32_t rank, int add)
{
    const char *key = vocab_key_of(&r->vocab, id);
    int64_t n = r->vocab.entries[id].key_n;
    int length;

    for (int64_t at = 0; at < n; at += length) {
        int32_t left = at ? vocab_find(&r->vocab, key, at) : -1;
        int32_t right = left >= 0 ? vocab_find(&r->vocab, key + at, n - at) : -1;

        scan_code(&length, (const unsigned char *)key, n, at);
        if (n > length && vocab_find(&r->vocab, key + at, length) < 0)
            return fail(ST_EFORMAT, "piece %d, '%.*s', has the character '%.*s', which is no piece",
                        (int)id, (int)(n < 40 ? n : 40), key, length, key + at);
        if (right < 0)
            continue;
        ++*pairs;
        if (add)
            bpe_add(&r->bpe, left, right, id, rank);
    }
    return ST_OK;
}

/* The visible pieces, best first; free(). */
static enum status sorted(struct scored **out, int32_t *n, const struct pieces *p)
{
    struct scored *s = malloc(((size_t)p->count + 1) * sizeof *s);

    *n = 0;
    *out = s;
    if (!s)
        return fail(ST_ENOMEM, "no memory for %d pieces", (int)p->count);
    for (int32_t id = 0; id < p->count; id++)
        if (!p->recipe->vocab.entries[id].hidden)
            s[(*n)++] = (struct scored){p->scores[id], id};
    qsort(s, (size_t)*n, sizeof *s, by_score);
    return ST_OK;
}

static enum status cut_all(int64_t *pairs, struct recipe *r, const struct scored *s, int32_t n,
                           int add)
{
    int32_t rank = 0;

    *pairs = 0;
    for (int32_t i = 0; i < n; i++) {
        rank += i > 0 && s[i].score != s[i - 1].score;
        TRY(cut_piece(pairs, r, s[i].id, rank, add));
    }
    return ST_OK;
}

enum status pieces_merges(struct pieces *p)
{
    struct scored *s = NULL;
    int64_t pairs = 0;
    int32_t n;
    enum status st;

    TRY(vocab_index(&p->recipe->vocab));
    TRY(sorted(&s, &n, p));
    st = cut_all(&pairs, p->recipe, s, n, 0);
    if (st == ST_OK)
        st = bpe_open(&p->recipe->bpe, pairs);
    if (st == ST_OK)
        st = cut_all(&pairs, p->recipe, s, n, 1);
    free(s);
    return st;
}

enum status pieces_finish(struct tokenizer *t, struct pieces *p, int prefix, int one_space)
{
    struct recipe *r = p->recipe;

    if (one_space)
        TRY(edit_add(&r->edits, EDIT_ONE_SPACE, NULL, NULL));
    if (prefix)
        TRY(edit_add(&r->edits, EDIT_PREPEND, NULL, PIECES_MARK));
    TRY(edit_add(&r->edits, EDIT_REPLACE, " ", PIECES_MARK));
    memcpy(r->mark, PIECES_MARK, 3);
    r->mark_n = 3;
    r->fuse_unknown = 1;
    r->edited_as_is = 1;
    t->strip = prefix != 0;
    return recipe_finish(t, r, PIECES_KIND);
}

void pieces_close(struct pieces *p)
{
    free(p->scores);
    *p = (struct pieces){0};
}
