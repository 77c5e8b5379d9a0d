/* The text of a document: out of its JSON, in valid UTF-8. */
#include "common/base/utf8.h"
#include "common/data/documents_long.h"

#include <jansson.h>
#include <string.h>

/* ---- UTF-8 ---- */

/* Bytes that one U+FFFD stands for: the longest beginning of a character that could be valid, as
 * Unicode recommends (section 3.9, "maximal subpart"), else one byte. */
static int64_t broken(const char *text, int64_t n)
{
    for (int64_t k = n < 3 ? n : 3; k > 1; k--) {
        unsigned char whole[4] = {0x80, 0x80, 0x80, 0x80};

        memcpy(whole, text, (size_t)k);
        if ((int64_t)utf8_length(whole, sizeof whole) > k)
            return k;
    }
    return 1;
}

static enum status replace(struct byte_list *out, const char *text, int64_t n)
{
    int64_t i = 0;

    while (i < n) {
        int64_t good = (int64_t)utf8_invalid((const unsigned char *)text + i, (size_t)(n - i));

        TRY(list_bytes_add(out, text + i, good));
        i += good;
        if (i == n)
            break;
        TRY(list_bytes_add(out, "\xef\xbf\xbd", 3));
        i += broken(text + i, n - i);
    }
    return ST_OK;
}

static int64_t lines_before(const char *text, int64_t n)
{
    int64_t lines = 0;

    for (int64_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    return lines;
}

enum status documents_utf8(struct byte_list *out, struct documents_counts *counts, const char *text,
                           int64_t n, struct documents_place place, enum documents_policy policy)
{
    int64_t bad = (int64_t)utf8_invalid((const unsigned char *)text, (size_t)n);

    if (bad == n)
        return list_bytes_add(out, text, n);
    if (policy == DOCUMENTS_REFUSE)
        return fail(ST_EFORMAT,
                    "%s:%lld: not UTF-8: byte 0x%02x does not begin a valid character; convert the "
                    "file, or give --invalid-utf8 replace or skip",
                    place.path, (long long)(place.line + lines_before(text, bad)),
                    (unsigned)text[bad] & 0xff);
    if (policy == DOCUMENTS_SKIP) {
        counts->skipped++;
        return ST_OK;
    }
    counts->replaced++;
    return replace(out, text, n);
}

/* ---- JSON ---- */

enum { PARSING = JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_REJECT_DUPLICATES };

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_NULL:
        return "null";
    case JSON_STRING:
        return "a text";
    default:
        return "true or false";
    }
}

/* The text under key in the parsed line. */
static enum status find_text(const json_t **text, const json_t *line, const char *key,
                             struct documents_place place)
{
    if (!json_is_object(line))
        return fail(ST_EFORMAT, "%s:%lld: the line holds %s; an object with the key '%s' is needed",
                    place.path, (long long)place.line, type_name(line), key);
    *text = json_object_get(line, key);
    if (!*text)
        return fail(ST_EFORMAT, "%s:%lld: the object has no key '%s'; --key names another",
                    place.path, (long long)place.line, key);
    if (!json_is_string(*text))
        return fail(ST_EFORMAT, "%s:%lld: the key '%s' holds %s; a text is needed", place.path,
                    (long long)place.line, key, type_name(*text));
    return ST_OK;
}

enum status documents_json(const char *line, int64_t n, const char *key,
                           struct documents_place place)
{
    json_error_t error;
    json_t *json = json_loadb(line, (size_t)n, PARSING, &error);
    const json_t *text;
    enum status st;

    if (!json)
        return fail(ST_EFORMAT, "%s:%lld: not valid JSON: around the text: %s", place.path,
                    (long long)place.line, error.text);
    st = find_text(&text, json, key, place);
    json_decref(json);
    return st;
}

/* out[from ..) is a line of JSON, and becomes the text in it. */
static enum status parse(struct byte_list *out, int64_t from, const char *key,
                         struct documents_place place)
{
    json_error_t error;
    json_t *line = json_loadb(out->bytes + from, (size_t)(out->count - from), PARSING, &error);
    const json_t *text = NULL;
    enum status st;

    if (!line)
        return fail(ST_EFORMAT, "%s:%lld: not valid JSON: %s (column %d)", place.path,
                    (long long)place.line, error.text, error.column);
    st = find_text(&text, line, key, place);
    if (st == ST_OK) {
        out->count = from;
        st = list_bytes_add(out, json_string_value(text), (int64_t)json_string_length(text));
    }
    json_decref(line);
    return st;
}

/* ---- both ---- */

static int is_blank(const char *text, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r')
            return 0;
    return 1;
}

void documents_look(struct documents_counts *counts, const char *text, int64_t n)
{
    counts->empty += n == 0;
    if (n > 0) {
        counts->nul += memchr(text, '\0', (size_t)n) != NULL;
        counts->cr += memchr(text, '\r', (size_t)n) != NULL;
    }
}

/* A part is clean; what its document holds is counted at its end. */
static enum status part_text(struct byte_list *out, struct documents_counts *counts,
                             const struct documents_raw *raw, const char *text)
{
    counts->skipped += raw->part == DOCUMENTS_DROP;
    counts->replaced += (raw->found & DOCUMENTS_REPLACED) != 0;
    counts->nul += (raw->found & DOCUMENTS_NUL) != 0;
    counts->cr += (raw->found & DOCUMENTS_CR) != 0;
    return list_bytes_add(out, text, raw->n);
}

enum status documents_text(struct byte_list *out, int64_t *n, struct documents_counts *counts,
                           const struct documents_batch *b, int64_t i, const char *const *paths,
                           const struct documents_options *options)
{
    const struct documents_raw *raw = &b->raw[i];
    const char *text = raw->n > 0 ? b->text.bytes + raw->begin : "";
    struct documents_place place = {.path = paths[raw->file], .line = raw->line};
    int64_t from = out->count, skipped = counts->skipped;

    *n = raw->n;
    if (raw->part != DOCUMENTS_WHOLE)
        return part_text(out, counts, raw, text);
    *n = 0;
    if (raw->json && is_blank(text, raw->n))
        return ST_OK;
    if (raw->n > 0) /* what is not UTF-8 in a line of JSON is so inside its texts */
        TRY(documents_utf8(out, counts, text, raw->n, place, options->invalid));
    if (counts->skipped > skipped)
        return ST_OK;
    if (raw->json)
        TRY(parse(out, from, options->key, place));
    *n = out->count - from;
    documents_look(counts, *n > 0 ? out->bytes + from : "", *n);
    return ST_OK;
}
