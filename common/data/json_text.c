#include "common/data/json_text.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

void json_text_free(struct json_text *j)
{
    list_bytes_free(&j->rest);
    list_bytes_free(&j->name_text);
    *j = (struct json_text){.key = j->key};
}

/* ---- around the text ---- */

/* A colon of the outermost object: was the string before it our key? JSON has many ways to write
 * one, so that the parser reads it. */
static enum status see_key(struct json_text *j)
{
    json_t *name;

    j->name_text.count = 0;
    TRY(list_bytes_add(&j->name_text, "\"", 1));
    TRY(list_bytes_add(&j->name_text, j->rest.bytes + j->name, j->name_end - j->name));
    TRY(list_bytes_add(&j->name_text, "\"", 1));
    name = json_loadb(j->name_text.bytes, (size_t)j->name_text.count, JSON_DECODE_ANY, NULL);
    j->wanted = json_is_string(name) && strcmp(json_string_value(name), j->key) == 0;
    json_decref(name);
    return ST_OK;
}

/* One character outside strings, or the quote that begins one; it is in rest already. */
static enum status see(struct json_text *j, char c)
{
    if (c == '"') {
        j->in_text = j->wanted && j->depth == 1;
        j->in_string = !j->in_text;
        j->name = j->name_end = j->rest.count; /* none, unless it is kept */
    } else if (c == '{' || c == '[') {
        j->depth++;
    } else if (c == '}' || c == ']') {
        j->depth--;
    } else if (c == ':' && j->depth == 1) {
        return see_key(j);
    } else if (c == ',') {
        j->wanted = 0;
    }
    return ST_OK;
}

static void see_in_string(struct json_text *j, char c)
{
    if (!j->escaped && c == '"') {
        j->in_string = 0;
        j->name_end = j->rest.count - 1;
    }
    j->escaped = !j->escaped && c == '\\';
}

/* What is kept, up to the beginning of our text or the end. */
static enum status keep(int64_t *used, struct json_text *j, const char *bytes, int64_t n)
{
    while (*used < n && !j->in_text) {
        char c = bytes[(*used)++];

        TRY(list_bytes_add(&j->rest, &c, 1));
        if (j->in_string)
            see_in_string(j, c);
        else
            TRY(see(j, c));
    }
    return ST_OK;
}

/* ---- the text ---- */

/* Bytes of the escape at bytes[0], a backslash: both of a pair of surrogates together. */
static int64_t escape_length(const char *bytes, int64_t n)
{
    if (n < 2 || bytes[1] != 'u')
        return 2;
    if (n < 4 || (bytes[2] != 'd' && bytes[2] != 'D') || !strchr("89abAB", bytes[3]))
        return 6;
    return 12;
}

/* The number of four hexadecimal digits, or -1. */
static int32_t hex(const char *digits)
{
    int32_t value = 0;

    for (int i = 0; i < 4; i++) {
        int c = (unsigned char)digits[i],
            digit = c >= '0' && c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;

        if (digit < 0 || digit > 15 || (digit > 9 && (c | 0x20) < 'a'))
            return -1;
        value = 16 * value + digit;
    }
    return value;
}

/* The code point of an escape, or -1 for none that JSON knows. */
static int32_t code_of(const char *escape, int64_t length)
{
    static const char names[] = "\"\\/bfnrt", codes[] = "\"\\/\b\f\n\r\t";
    const char *name = escape[1] ? strchr(names, escape[1]) : NULL;
    int32_t high, low;

    if (length == 2)
        return name ? codes[name - names] : -1;
    high = hex(escape + 2);
    if (length == 6)
        return high >= 0xd800 && high < 0xe000 ? -1 : high;
    low = escape[6] == '\\' && escape[7] == 'u' ? hex(escape + 8) : -1;
    return high < 0 || low < 0xdc00 || low > 0xdfff
               ? -1
               : 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

/* Appends the UTF-8 of a code point; there is room. */
static void put_code(struct byte_list *out, int32_t code)
{
    static const int first[] = {0, 0xc0, 0xe0, 0xf0};
    int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;

    out->bytes[out->count++] = (char)(first[more] | code >> 6 * more);
    while (more-- > 0)
        out->bytes[out->count++] = (char)(0x80 | (code >> 6 * more & 0x3f));
}

/* Bytes up to a quote, a backslash or a control character. */
static int64_t plain(const char *bytes, int64_t n)
{
    int64_t at = 0;

    while (at < n && bytes[at] != '"' && bytes[at] != '\\' && (unsigned char)bytes[at] >= 0x20)
        at++;
    return at;
}

/* What is no plain character: the closing quote, an escape (*used stays where it is not whole). */
static enum status take_special(struct byte_list *out, int64_t *used, struct json_text *j,
                                const char *at, int64_t n)
{
    int escape = *at == '\\';
    int64_t length = escape ? escape_length(at, n) : 1;
    int32_t code;

    if (length > n)
        return ST_OK;
    if (*at == '"') {
        j->in_text = j->wanted = 0;
        ++*used;
        return list_bytes_add(&j->rest, "\"", 1);
    }
    code = escape ? code_of(at, length) : -1;
    if (code < 0)
        return fail(ST_EFORMAT, "not valid JSON: the text under '%s' holds %s", j->key,
                    escape ? "an escape that JSON does not know" : "a control character");
    put_code(out, code);
    *used += length;
    return ST_OK;
}

static enum status take_text(struct byte_list *out, int64_t *used, struct json_text *j,
                             const char *bytes, int64_t n)
{
    int64_t before = -1;

    TRY(list_bytes_room(out, n)); /* an escape is longer than what it stands for */
    while (*used < n && j->in_text && *used != before) {
        const char *at = bytes + *used;
        int64_t length = plain(at, n - *used);

        before = *used;
        TRY(list_bytes_add(out, at, length));
        *used += length;
        if (*used < n)
            TRY(take_special(out, used, j, at + length, n - *used));
    }
    return ST_OK;
}

enum status json_text_add(struct byte_list *out, int64_t *used, struct json_text *j,
                          const char *bytes, int64_t n)
{
    *used = 0;
    while (*used < n) {
        int64_t some = 0;

        if (j->in_text)
            TRY(take_text(out, &some, j, bytes + *used, n - *used));
        else
            TRY(keep(&some, j, bytes + *used, n - *used));
        *used += some;
        if (some == 0)
            break;
    }
    return ST_OK;
}
