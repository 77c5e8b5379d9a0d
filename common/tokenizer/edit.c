#include "common/tokenizer/edit.h"

#include "common/tokenizer/scan.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

static enum status keep(char *out, int *out_n, const char *text)
{
    size_t n = text ? strlen(text) : 0;

    if (n > sizeof((struct edit *)0)->to)
        return fail(ST_EFORMAT,
                    "the text '%.20s...' of a normalizer has %zu bytes; at most %zu are "
                    "supported",
                    text, n, sizeof((struct edit *)0)->to);
    for (size_t i = 0; i < n; i++)
        out[i] = text[i];
    *out_n = (int)n;
    return ST_OK;
}

enum status edit_add(struct edits *e, enum edit_kind kind, const char *from, const char *to)
{
    struct edit *next = &e->list[e->count];

    if (e->count == EDITS)
        return fail(ST_EFORMAT, "more than %d normalizers; that many are supported", EDITS);
    *next = (struct edit){.kind = kind};
    TRY(keep(next->from, &next->from_n, from));
    TRY(keep(next->to, &next->to_n, to));
    if (kind == EDIT_REPLACE && next->from_n == 0)
        return fail(ST_EFORMAT, "a normalizer replaces the empty text");
    e->count++;
    return ST_OK;
}

/* ---- normal forms ---- */

/* For NFC: all below U+0300, quotes and dashes, and the Chinese characters that are most used. */
int edit_inert(int32_t code, enum edit_kind kind)
{
    if (kind != EDIT_NFC)
        return code < 0x80;
    return code < 0x300 || (code >= 0x2010 && code < 0x2028) || (code >= 0x4e00 && code < 0x9fff);
}

/* The end of the characters from `at` on that the form may change together: any one, and after it
 * all that are not inert. *changes: there are such. What is not UTF-8 stands alone. */
static int64_t group(int *changes, const unsigned char *text, int64_t n, int64_t at,
                     enum edit_kind kind)
{
    int length;
    int32_t code = scan_code(&length, text, n, at);

    *changes = code >= 0 && !edit_inert(code, kind);
    at += length;
    while (code >= 0 && at < n && text[at] >= 0x80) {
        code = scan_code(&length, text, n, at);
        if (code < 0 || edit_inert(code, kind))
            break;
        *changes = 1;
        at += length;
    }
    return at;
}

/* Appends the normal form of n bytes of valid UTF-8. */
static enum status add_normal(struct byte_list *out, const unsigned char *text, int64_t n,
                              utf8proc_option_t options)
{
    utf8proc_uint8_t *normal;
    utf8proc_ssize_t length =
        utf8proc_map(text, (utf8proc_ssize_t)n, &normal, UTF8PROC_STABLE | options);
    enum status st;

    if (length < 0)
        return fail(length == UTF8PROC_ERROR_NOMEM ? ST_ENOMEM : ST_EFORMAT,
                    "a text cannot be normalised: %s", utf8proc_errmsg(length));
    st = list_bytes_add(out, normal, length);
    free(normal);
    return st;
}

static enum status normal_form(struct byte_list *out, const unsigned char *text, int64_t n,
                               enum edit_kind kind)
{
    static const utf8proc_option_t options[] = {[EDIT_NFC] = UTF8PROC_COMPOSE,
                                                [EDIT_NFD] = UTF8PROC_DECOMPOSE,
                                                [EDIT_NFKC] = UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
                                                [EDIT_NFKD] = UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT};
    int64_t same = 0; /* [same, at) is as it was, and not yet written */
    int changes;

    for (int64_t at = 0, end; at < n; at = end) {
        end = group(&changes, text, n, at, kind);
        if (!changes)
            continue;
        TRY(list_bytes_add(out, text + same, at - same));
        TRY(add_normal(out, text + at, end - at, options[kind]));
        same = end;
    }
    return list_bytes_add(out, text + same, n - same);
}

/* Whether there is a byte of at least `least`. */
static int has_byte(const unsigned char *text, int64_t n, unsigned char least)
{
    int found = 0;

    for (int64_t i = 0; i < n && !found; i += 64)
        for (int64_t j = i; j < n && j < i + 64; j++)
            found |= text[j] >= least;
    return found;
}

/* ---- spaces ---- */

static enum status replace(struct byte_list *out, const unsigned char *text, int64_t n,
                           const struct edit *e)
{
    const unsigned char *end = text + n;

    TRY(list_bytes_room(out, n + n / 2));
    while (text < end) {
        const unsigned char *found = memmem(text, (size_t)(end - text), e->from, (size_t)e->from_n);

        TRY(list_bytes_add(out, text, (found ? found : end) - text));
        if (!found)
            break;
        TRY(list_bytes_add(out, e->to, e->to_n));
        text = found + e->from_n;
    }
    return ST_OK;
}

static enum status one_space(struct byte_list *out, const unsigned char *text, int64_t n)
{
    while (n > 0 && text[n - 1] == ' ')
        n--;
    TRY(list_bytes_room(out, n));
    for (int64_t i = 0; i < n; i++)
        if (text[i] != ' ' || (out->count > 0 && text[i - 1] != ' '))
            out->bytes[out->count++] = (char)text[i];
    return ST_OK;
}

static enum status prepend(struct byte_list *out, const unsigned char *text, int64_t n,
                           const struct edit *e)
{
    TRY(list_bytes_add(out, e->to, e->to_n));
    return list_bytes_add(out, text, n);
}

/* ---- all of them ---- */

static int changes_nothing(const struct edit *e, const unsigned char *text, int64_t n, int first)
{
    if (n == 0 || (e->first_only && !first))
        return 1;
    switch (e->kind) {
    case EDIT_NFC:
        return !has_byte(text, n, 0xcc); /* the first byte of U+0300 and of all after it */
    case EDIT_NFD:
    case EDIT_NFKC:
    case EDIT_NFKD:
        return !has_byte(text, n, 0x80);
    case EDIT_LEAD:
        return n >= e->to_n && memcmp(text, e->to, (size_t)e->to_n) == 0;
    case EDIT_PREPEND:
    case EDIT_REPLACE:
    case EDIT_ONE_SPACE:
        return 0;
    }
    return 0;
}

static enum status run_one(struct byte_list *out, const struct edit *e, const unsigned char *text,
                           int64_t n)
{
    switch (e->kind) {
    case EDIT_PREPEND:
    case EDIT_LEAD:
        return prepend(out, text, n, e);
    case EDIT_REPLACE:
        return replace(out, text, n, e);
    case EDIT_ONE_SPACE:
        return one_space(out, text, n);
    case EDIT_NFC:
    case EDIT_NFD:
    case EDIT_NFKC:
    case EDIT_NFKD:
        return normal_form(out, text, n, e->kind);
    }
    return ST_OK;
}

enum status edit_run(const unsigned char **text, int64_t *n, const struct edits *e,
                     struct byte_list buffer[2], int first)
{
    int next = 0; /* the buffer that *text does not point into */

    for (int i = 0; i < e->count; i++) {
        if (changes_nothing(&e->list[i], *text, *n, first))
            continue;
        buffer[next].count = 0;
        TRY(list_bytes_room(&buffer[next], 1)); /* a result without a byte is somewhere too */
        TRY(run_one(&buffer[next], &e->list[i], *text, *n));
        *text = (const unsigned char *)buffer[next].bytes;
        *n = buffer[next].count;
        next = 1 - next;
    }
    return ST_OK;
}
