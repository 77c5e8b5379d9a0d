#include "common/tokenizer/added.h"

#include "common/tokenizer/scan.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum status added_put(struct added *a, const struct added_token *t)
{
    struct added_token *next;

    if (t->n == 0)
        return fail(ST_EFORMAT, "added token %d has no text", (int)t->id);
    if (a->count == a->room) {
        int32_t room = 2 * a->room + 16;
        struct added_token *bigger = realloc(a->tokens, (size_t)room * sizeof *bigger);

        if (!bigger)
            return fail(ST_ENOMEM, "no memory for %d added tokens", (int)room);
        a->tokens = bigger;
        a->room = room;
    }
    next = &a->tokens[a->count];
    *next = *t;
    next->text = malloc((size_t)t->n);
    if (!next->text)
        return fail(ST_ENOMEM, "no memory for an added token");
    memcpy(next->text, t->text, (size_t)t->n);
    a->count++;
    return ST_OK;
}

static int by_text(const void *x, const void *y)
{
    const struct added_token *a = x, *b = y;
    int order = memcmp(a->text, b->text, (size_t)(a->n < b->n ? a->n : b->n));

    return order ? order : (a->n > b->n) - (a->n < b->n);
}

enum status added_seal(struct added *a)
{
    if (a->count > 0)
        qsort(a->tokens, (size_t)a->count, sizeof *a->tokens, by_text);
    memset(a->first, 0, sizeof a->first);
    for (int32_t i = 0; i < a->count; i++) {
        const struct added_token *t = &a->tokens[i];

        if (i > 0 && by_text(t - 1, t) == 0)
            return fail(ST_EFORMAT, "added token '%.*s' has two ids, %d and %d",
                        t->n < 40 ? t->n : 40, t->text, (int)t[-1].id, (int)t->id);
        a->first[(unsigned char)t->text[0] + 1] = i + 1;
        a->plain |= !t->special;
    }
    for (int b = 1; b < 257; b++)
        if (a->first[b] < a->first[b - 1])
            a->first[b] = a->first[b - 1];
    return ST_OK;
}

void added_close(struct added *a)
{
    for (int32_t i = 0; i < a->count; i++)
        free(a->tokens[i].text);
    free(a->tokens);
    *a = (struct added){0};
}

/* The longest token that text begins with. The tokens are sorted, so those that share the text's
 * first d bytes stand together: [low, high) narrows as d grows. */
static const struct added_token *longest(const struct added *a, const unsigned char *text,
                                         int64_t n)
{
    int32_t low = a->first[text[0]], high = a->first[text[0] + 1];
    const struct added_token *best = NULL;

    for (int64_t d = 1; low < high; d++) {
        if (a->tokens[low].n == d)
            best = &a->tokens[low++];
        if (d == n || low == high || (unsigned char)a->tokens[high - 1].text[d] < text[d])
            break;
        while (low < high && (unsigned char)a->tokens[low].text[d] < text[d])
            low++;
        while (low < high && (unsigned char)a->tokens[high - 1].text[d] > text[d])
            high--;
    }
    return best;
}

/* Whether a word goes on across the character at text[at]: \w of the regular expressions. */
static int in_word(const unsigned char *text, int64_t n, int64_t at)
{
    int length;
    int32_t code = scan_code(&length, text, n, at);
    utf8proc_category_t c = code < 0 ? UTF8PROC_CATEGORY_CN : utf8proc_category(code);

    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_NL) || c == UTF8PROC_CATEGORY_PC ||
           code == 0x200c || code == 0x200d;
}

/* Where the character that ends before `at` begins. */
static int64_t before(const unsigned char *text, int64_t at)
{
    int64_t back = at - 1;

    while (back > 0 && at - back < 4 && (text[back] & 0xc0) == 0x80)
        back--;
    return back;
}

static int stands_alone(const unsigned char *text, int64_t n, int64_t begin, int64_t end)
{
    return (begin == 0 || !in_word(text, n, before(text, begin))) &&
           (end == n || !in_word(text, n, end));
}

/* Takes white space before and after the token along, not before `least`. */
static void strip(int64_t *begin, int64_t *end, const struct added_token *t,
                  const unsigned char *text, int64_t n, int64_t least)
{
    int length;

    while (t->lstrip && *begin > least &&
           scan_char(&length, text, n, before(text, *begin)) == SCAN_SPACE)
        *begin = before(text, *begin);
    while (t->rstrip && *end < n && scan_char(&length, text, n, *end) == SCAN_SPACE)
        *end += length;
}

const struct added_token *added_next(int64_t *begin, int64_t *end, const struct added *a,
                                     const unsigned char *text, int64_t n, int64_t at, int special)
{
    int64_t place = at;

    *begin = *end = n;
    if (a->count == 0 || (!special && !a->plain))
        return NULL;
    while (place < n) {
        const struct added_token *t = NULL;

        if (a->first[text[place]] < a->first[text[place] + 1])
            t = longest(a, text + place, n - place);
        if (!t) {
            place++;
            continue;
        }
        *begin = place;
        *end = place += t->n;
        if ((t->special && !special) || (t->single_word && !stands_alone(text, n, *begin, *end)))
            continue;
        strip(begin, end, t, text, n, at);
        return t;
    }
    *begin = *end = n;
    return NULL;
}

int64_t added_longest(const struct added *a)
{
    int64_t most = 0;

    for (int32_t i = 0; i < a->count && a->plain; i++)
        most = a->tokens[i].n > most ? a->tokens[i].n : most;
    return most;
}

int added_touches(const struct added *a, const unsigned char *text, int64_t n, int64_t at)
{
    int64_t reach = added_longest(a);

    for (int64_t begin = at > reach ? at - reach : 0; reach > 0 && begin <= at; begin++)
        for (int32_t i = a->first[text[begin]]; i < a->first[text[begin] + 1]; i++) {
            const struct added_token *t = &a->tokens[i];

            if (begin + t->n >= at && n - begin >= t->n &&
                memcmp(text + begin, t->text, (size_t)t->n) == 0)
                return 1;
        }
    return 0;
}
