#include "common/tokenizer/pattern.h"

#include "common/tokenizer/list.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

enum { STACK_FIRST = 64 * 1024, STACK_MOST = 16 * 1024 * 1024 }; /* bytes, of compiled matching */

#define WHITE "\\p{Z}\\t-\\r\\x{85}"

/* Writes the pattern as PCRE2 is to read it. */
static enum status translate(struct byte_list *out, const char *text, size_t n)
{
    int depth = 0; /* of square brackets */

    for (size_t i = 0; i < n; i++) {
        const char *word = text + i;
        int64_t length = 1;

        if (text[i] == '\\' && i + 1 < n) {
            length = 2;
            i++;
            if (depth == 0 && text[i] == 's')
                word = "[" WHITE "]", length = (int64_t)strlen(word);
            else if (depth == 0 && text[i] == 'S')
                word = "[^" WHITE "]", length = (int64_t)strlen(word);
            else if (text[i] == 's')
                word = WHITE, length = (int64_t)strlen(word);
            else if (text[i] == 'S')
                return fail(ST_EFORMAT, "\\S inside of [] is not supported, at byte %zu", i - 1);
            else if (text[i] == 'h' || text[i] == 'H')
                return fail(ST_EFORMAT, "\\%c is not supported, at byte %zu", text[i], i - 1);
        } else if (depth > 0 && text[i] == '&' && i + 1 < n && text[i + 1] == '&') {
            return fail(ST_EFORMAT, "&& inside of [] is not supported, at byte %zu", i);
        } else if (depth > 0 && text[i] == '[') {
            if (i + 1 >= n || text[i + 1] != ':')
                return fail(ST_EFORMAT, "[ inside of [] is not supported, at byte %zu", i);
            depth++;
        } else if (text[i] == '[' || (text[i] == ']' && depth > 0)) {
            depth += text[i] == '[' ? 1 : -1;
        }
        TRY(list_bytes_add(out, word, length));
    }
    return ST_OK;
}

static enum status compile(struct pattern *p, const struct byte_list *text)
{
    uint32_t options =
        PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    int error;
    PCRE2_SIZE at;
    PCRE2_UCHAR message[128];
    int jit;

    p->code =
        pcre2_compile((PCRE2_SPTR)text->bytes, (PCRE2_SIZE)text->count, options, &error, &at, NULL);
    if (!p->code) {
        pcre2_get_error_message(error, message, sizeof message);
        return fail(ST_EFORMAT, "the regular expression is not understood near byte %zu: %s", at,
                    (const char *)message);
    }
    jit = pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
    if (jit != 0 && jit != PCRE2_ERROR_JIT_BADOPTION && jit != PCRE2_ERROR_NOMEMORY) {
        pcre2_get_error_message(jit, message, sizeof message);
        return fail(ST_EFORMAT, "the regular expression cannot be compiled: %s",
                    (const char *)message);
    }
    return ST_OK;
}

enum status pattern_open(struct pattern *p, const char *text, size_t n)
{
    struct byte_list own = {0};
    enum status st = translate(&own, text, n);

    p->code = NULL;
    if (st == ST_OK && n == 0)
        st = fail(ST_EFORMAT, "a regular expression is empty");
    if (st == ST_OK)
        st = compile(p, &own);
    list_bytes_free(&own);
    if (st != ST_OK)
        pattern_close(p);
    return st;
}

void pattern_close(struct pattern *p)
{
    pcre2_code_free(p->code);
    p->code = NULL;
}

static enum status prepare(struct pattern_scratch *s)
{
    if (s->data)
        return ST_OK;
    s->context = pcre2_match_context_create(NULL);
    s->stack = pcre2_jit_stack_create(STACK_FIRST, STACK_MOST, NULL);
    if (s->context && s->stack) {
        pcre2_jit_stack_assign(s->context, NULL, s->stack);
        s->data = pcre2_match_data_create(1, NULL);
    }
    return s->data ? ST_OK : fail(ST_ENOMEM, "no memory to match a regular expression");
}

enum status pattern_next(int64_t *begin, int64_t *end, const struct pattern *p,
                         struct pattern_scratch *s, const unsigned char *text, int64_t n,
                         int64_t at)
{
    PCRE2_UCHAR message[128];
    PCRE2_SIZE *found;
    int got;

    TRY(prepare(s));
    got = pcre2_match(p->code, text, (PCRE2_SIZE)n, (PCRE2_SIZE)at, PCRE2_NOTEMPTY, s->data,
                      s->context);
    *begin = *end = n;
    if (got == PCRE2_ERROR_NOMATCH)
        return ST_OK;
    if (got < 0) {
        pcre2_get_error_message(got, message, sizeof message);
        return fail(ST_EFORMAT,
                    "the tokenizer's regular expression fails on the text from byte "
                    "%lld on: %s",
                    (long long)at, (const char *)message);
    }
    found = pcre2_get_ovector_pointer(s->data);
    *begin = (int64_t)found[0];
    *end = (int64_t)found[1];
    return ST_OK;
}

void pattern_scratch_free(struct pattern_scratch *s)
{
    pcre2_match_data_free(s->data);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
    *s = (struct pattern_scratch){0};
}
