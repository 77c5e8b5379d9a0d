#include "common/tokenizer/scan.h"

#include "common/base/utf8.h"

#include <utf8proc.h>

/* ---- characters ---- */

enum scan_class scan_class(int32_t code)
{
    if ((code >= '\t' && code <= '\r') || code == 0x85)
        return SCAN_SPACE;
    switch (utf8proc_category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
        return SCAN_LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
        return SCAN_NUMBER;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return SCAN_SPACE;
    default:
        return SCAN_OTHER;
    }
}

int32_t scan_code(int *length, const unsigned char *text, int64_t n, int64_t at)
{
    const unsigned char *c = text + at;

    *length = (int)utf8_length(c, (size_t)(n - at));
    switch (*length) {
    case 1:
        return c[0];
    case 2:
        return (c[0] & 0x1f) << 6 | (c[1] & 0x3f);
    case 3:
        return (c[0] & 0x0f) << 12 | (c[1] & 0x3f) << 6 | (c[2] & 0x3f);
    case 4:
        return (c[0] & 0x07) << 18 | (c[1] & 0x3f) << 12 | (c[2] & 0x3f) << 6 | (c[3] & 0x3f);
    default:
        *length = 1;
        return -1;
    }
}

static enum scan_class wide_char(int *length, const unsigned char *text, int64_t n, int64_t at)
{
    int32_t code = scan_code(length, text, n, at);

    return code < 0 ? SCAN_OTHER : scan_class(code);
}

static inline enum scan_class class_at(int *length, const unsigned char *text, int64_t n,
                                       int64_t at)
{
    unsigned char c = text[at];

    if (c >= 0x80)
        return wide_char(length, text, n, at);
    *length = 1;
    if ((unsigned)((c | 0x20) - 'a') < 26)
        return SCAN_LETTER;
    if ((unsigned)(c - '0') < 10)
        return SCAN_NUMBER;
    return c == ' ' || (unsigned)(c - '\t') < 5 ? SCAN_SPACE : SCAN_OTHER;
}

enum scan_class scan_char(int *length, const unsigned char *text, int64_t n, int64_t at)
{
    return class_at(length, text, n, at);
}

/* ---- runs ---- */

/* The end of the characters of one class from `at` on, at most `most` of them. */
static inline int64_t run(const unsigned char *text, int64_t n, int64_t at, enum scan_class class,
                          int64_t most)
{
    int length;

    while (at < n && most-- > 0 && class_at(&length, text, n, at) == class)
        at += length;
    return at;
}

/* The end of "\s+(?!\S)|\s+" at a space: the last space before something else stays with it. */
static int64_t spaces(const unsigned char *text, int64_t n, int64_t at)
{
    int64_t end = at, last = at;
    int length;

    while (end < n && class_at(&length, text, n, end) == SCAN_SPACE) {
        last = end;
        end += length;
    }
    return end == n || last == at ? end : last;
}

/* The length of a contraction ("'s", "'re") at text[at], an apostrophe; 0 for none. With `fold`,
 * in capitals too, and with the long s, which is an s to those who ignore case. */
static int contraction(const unsigned char *text, int64_t n, int64_t at, int fold)
{
    unsigned char a = at + 1 < n ? text[at + 1] : 0, b = at + 2 < n ? text[at + 2] : 0;

    if (fold && a == 0xc5 && b == 0xbf)
        return 3;
    if (fold) {
        a |= (unsigned char)(a >= 'A' && a <= 'Z' ? 0x20 : 0);
        b |= (unsigned char)(b >= 'A' && b <= 'Z' ? 0x20 : 0);
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

/* ---- words ---- */

int64_t scan_gpt2(const unsigned char *text, int64_t n, int64_t at)
{
    int64_t start = at;
    enum scan_class class;
    int length;

    if (text[at] == '\'' && contraction(text, n, at, 0))
        return at + contraction(text, n, at, 0);
    class = class_at(&length, text, n, at);
    if (text[at] == ' ' && at + 1 < n) {
        start = at + 1;
        class = class_at(&length, text, n, start);
    }
    if (class == SCAN_SPACE)
        return spaces(text, n, at);
    return run(text, n, start + length, class, INT64_MAX);
}

/* "\s*[\r\n]+|\s+(?!\S)|\s+" at a space. */
static int64_t lines(const unsigned char *text, int64_t n, int64_t at)
{
    int64_t end = at, line = -1;
    int length;

    while (end < n && class_at(&length, text, n, end) == SCAN_SPACE) {
        if (text[end] == '\n' || text[end] == '\r')
            line = end + 1;
        end += length;
    }
    return line >= 0 ? line : spaces(text, n, at);
}

int64_t scan_cl100k(const unsigned char *text, int64_t n, int64_t at, int digits)
{
    enum scan_class class, next = SCAN_SPACE;
    unsigned char c = text[at];
    int64_t after;
    int length, more;

    if (c == '\'' && contraction(text, n, at, 1))
        return at + contraction(text, n, at, 1);
    class = class_at(&length, text, n, at);
    after = at + length;
    if (class == SCAN_LETTER)
        return run(text, n, after, SCAN_LETTER, INT64_MAX);
    if (class == SCAN_NUMBER)
        return run(text, n, after, SCAN_NUMBER, digits - 1);
    if (after < n)
        next = class_at(&more, text, n, after);
    if (after < n && next == SCAN_LETTER && c != '\r' && c != '\n')
        return run(text, n, after + more, SCAN_LETTER, INT64_MAX);
    if (class == SCAN_SPACE && !(c == ' ' && after < n && next == SCAN_OTHER))
        return lines(text, n, at);
    after = run(text, n, after, SCAN_OTHER, INT64_MAX);
    while (after < n && (text[after] == '\r' || text[after] == '\n'))
        after++;
    return after;
}
