/* A document in parts: its bytes are read some at a time, made valid UTF-8, taken out of their
 * JSON, and handed out up to the last border of the tokenizer. */
#include "common/data/documents_long.h"

#include <string.h>

enum {
    AGAIN = 1 << 12 /* bytes before the end of a text in which no border was found that are looked
                     * at again when more is known: added tokens are shorter */
};

enum status documents_long_begin(struct documents_long *l, const struct documents_reader *r,
                                 const struct documents_raw *raw, const char *bytes, int64_t n)
{
    l->on = 1;
    l->ended = 0;
    l->raw = *raw;
    l->bytes.count = l->clean.count = l->text.count = l->looked = 0;
    l->line = raw->line;
    l->counts = (struct documents_counts){0};
    json_text_free(&l->json);
    l->json = (struct json_text){.key = r->options->key};
    return list_bytes_add(&l->bytes, bytes, n);
}

void documents_long_free(struct documents_long *l)
{
    list_bytes_free(&l->bytes);
    list_bytes_free(&l->clean);
    list_bytes_free(&l->text);
    json_text_free(&l->json);
    *l = (struct documents_long){0};
}

static void drop_front(struct byte_list *list, int64_t n)
{
    if (n > 0 && n < list->count)
        memmove(list->bytes, list->bytes + n, (size_t)(list->count - n));
    list->count -= n;
}

/* ---- cleaning ---- */

/* How many of n bytes may be judged without what follows: not the beginning of a character. */
static int64_t whole_characters(const char *text, int64_t n)
{
    for (int64_t i = n - 1; i >= 0 && i >= n - 3; i--) {
        unsigned char c = (unsigned char)text[i];
        int length = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;

        if ((c & 0xc0) != 0x80)
            return n - i < length ? i : n;
    }
    return n;
}

static int64_t lines_in(const char *text, int64_t n)
{
    int64_t lines = 0;

    for (const char *at = text, *end = text + n;
         at < end && (at = memchr(at, '\n', (size_t)(end - at))); at++)
        lines++;
    return lines;
}

/* From l->bytes to `out`, as far as it goes. */
static enum status clean_bytes(struct byte_list *out, struct documents_long *l,
                               const struct documents_reader *r)
{
    struct documents_place place = {.path = r->paths[l->raw.file], .line = l->line};
    int64_t n = l->ended ? l->bytes.count : whole_characters(l->bytes.bytes, l->bytes.count);

    if (n > 0 && !l->counts.skipped)
        TRY(documents_utf8(out, &l->counts, l->bytes.bytes, n, place, r->options->invalid));
    l->line += l->raw.json || n == 0 ? 0 : lines_in(l->bytes.bytes, n);
    drop_front(&l->bytes, n);
    return ST_OK;
}

/* From l->clean, a line of JSON, to l->text. */
static enum status take_apart(struct documents_long *l, const struct documents_reader *r)
{
    int64_t used = 0;
    enum status st = json_text_add(&l->text, &used, &l->json, l->clean.bytes, l->clean.count);

    if (st != ST_OK)
        status_prefix("%s:%lld: ", r->paths[l->raw.file], (long long)l->raw.line);
    drop_front(&l->clean, used);
    return st;
}

static enum status take_bytes(struct documents_long *l, const struct documents_reader *r)
{
    int64_t before = l->text.count;

    TRY(clean_bytes(l->raw.json ? &l->clean : &l->text, l, r));
    if (l->counts.skipped) { /* it is read to its end, for nothing */
        l->text.count = l->clean.count = 0;
        return ST_OK;
    }
    if (l->raw.json)
        TRY(take_apart(l, r));
    if (l->text.count > before)
        documents_look(&l->counts, l->text.bytes + before, l->text.count - before);
    return ST_OK;
}

/* ---- parts ---- */

/* n bytes of the text, and `passed` of it are done with. */
static enum status hand_out(struct documents_batch *b, struct documents_long *l, int64_t n,
                            int64_t passed, enum documents_part part)
{
    l->raw.begin = b->text.count;
    l->raw.part = (short)part;
    TRY(list_bytes_add(&b->text, l->text.bytes, n));
    drop_front(&l->text, passed);
    l->looked = 0;
    return documents_put(b, &l->raw);
}

/* A line of JSON in which no text was found is judged as any other, without its texts, of which
 * there is none. */
static enum status hand_out_line(struct documents_batch *b, struct documents_long *l)
{
    l->raw.begin = b->text.count;
    l->raw.part = DOCUMENTS_WHOLE;
    TRY(list_bytes_add(&b->text, l->json.rest.bytes, l->json.rest.count));
    return documents_put(b, &l->raw);
}

static enum status hand_out_end(struct documents_batch *b, struct documents_long *l,
                                const struct documents_reader *r)
{
    struct documents_place place = {.path = r->paths[l->raw.file], .line = l->raw.line};

    l->on = 0;
    if (l->counts.skipped)
        return hand_out(b, l, 0, 0, DOCUMENTS_DROP);
    if (l->raw.json) { /* what is left of it is a text that does not end */
        TRY(list_bytes_add(&l->json.rest, l->clean.bytes, l->clean.count));
        if (l->raw.part == DOCUMENTS_WHOLE && l->text.count == 0)
            return hand_out_line(b, l);
        TRY(documents_json(l->json.rest.bytes, l->json.rest.count, r->options->key, place));
    }
    l->raw.found = (l->counts.replaced ? DOCUMENTS_REPLACED : 0u) |
                   (l->counts.nul ? DOCUMENTS_NUL : 0u) | (l->counts.cr ? DOCUMENTS_CR : 0u);
    return hand_out(b, l, l->text.count, l->text.count, DOCUMENTS_END);
}

enum status documents_long_part(struct documents_batch *b, struct documents_reader *r,
                                int64_t bytes)
{
    struct documents_long *l = &r->part;

    for (;;) {
        int64_t border = -1, next = 0;

        TRY(take_bytes(l, r));
        if (l->ended)
            return hand_out_end(b, l, r);
        if (l->text.count >= bytes)
            border = tokenizer_border(&next, r->options->tokenizer, l->text.bytes, l->text.count,
                                      l->looked);
        if (border > 0)
            return hand_out(b, l, border, next, DOCUMENTS_BEGIN);
        if (l->text.count >= bytes && l->text.count > AGAIN)
            l->looked = l->text.count - AGAIN;
        TRY(documents_more(&l->bytes, r, bytes, &l->ended));
    }
}
