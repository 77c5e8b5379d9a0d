#include "common/tokenizer/border.h"

#include "common/tokenizer/scan.h"

#include <string.h>

/* ---- which tokenizers ---- */

static int is_form(enum edit_kind kind)
{
    return kind == EDIT_NFC || kind == EDIT_NFD || kind == EDIT_NFKC || kind == EDIT_NFKD;
}

/* Whether an edit gives the same for two parts of a text that meet at a border as for both. */
static int edit_parts(const struct recipe *r, const struct edit *e)
{
    int to_mark = e->to_n == r->mark_n && memcmp(e->to, r->mark, (size_t)e->to_n) == 0;

    switch (e->kind) {
    case EDIT_PREPEND: /* stands for the space that the border leaves out */
        return r->mark_n > 0 && to_mark;
    case EDIT_LEAD: /* the part begins with it, or with a space that becomes it */
        return r->mark_n > 0 ? to_mark : e->to_n == 1 && e->to[0] == ' ';
    case EDIT_REPLACE:
        return r->mark_n > 0 && to_mark && e->from_n == 1 && e->from[0] == ' ';
    case EDIT_ONE_SPACE:
        return r->mark_n > 0;
    case EDIT_NFC:
    case EDIT_NFD:
    case EDIT_NFKC:
    case EDIT_NFKD:
        return 1;
    }
    return 0;
}

static int edits_part(const struct recipe *r, const struct edits *e)
{
    for (int i = 0; i < e->count; i++)
        if (!edit_parts(r, &e->list[i]))
            return 0;
    return 1;
}

/* Whether words end at borders: some step cuts there, and no step is unknown. */
static int cuts_part(const struct recipe *r)
{
    int ends = 0;

    for (int i = 0; i < r->cut_count; i++)
        switch (r->cuts[i].kind) {
        case CUT_GPT2:
        case CUT_CL100K:
            if (r->mark_n > 0)
                return 0;
            ends = 1;
            break;
        case CUT_BEFORE:
        case CUT_GAPS:
            ends = 1;
            break;
        case CUT_DIGIT:
        case CUT_DIGITS:
            break;
        case CUT_PATTERN:
            return 0;
        }
    return ends;
}

static int has(const struct edits *e, enum edit_kind kind)
{
    for (int i = 0; i < e->count; i++)
        if (e->list[i].kind == kind)
            return 1;
    return 0;
}

/* With a mark: it is no letter or digit, spaces that an edit takes from the beginning of a part are
 * put there again, and no added token is compared with texts that have marks. */
static int mark_parts(const struct recipe *r)
{
    int length;

    return r->mark_n == 0 ||
           (scan_char(&length, (const unsigned char *)r->mark, r->mark_n, 0) == SCAN_OTHER &&
            (!has(&r->edits, EDIT_ONE_SPACE) || has(&r->edits, EDIT_PREPEND)) &&
            added_longest(&r->edited) == 0);
}

int border_known(const struct recipe *r)
{
    return cuts_part(r) && mark_parts(r) && edits_part(r, &r->edits) && edits_part(r, &r->lead);
}

/* ---- places ---- */

/* What is needed of a text around a border. */
struct rule {
    int mark;     /* a space between letters or digits, which mark tokenizers cut at */
    int skip;     /* and leave out */
    int space;    /* only before a space */
    int form;     /* texts are normalised: */
    int composed; /* to NFC alone */
};

static struct rule rule_of(const struct recipe *r)
{
    struct rule rule = {.mark = r->mark_n > 0, .composed = 1};

    for (int i = 0; i < r->edits.count; i++) {
        enum edit_kind kind = r->edits.list[i].kind;

        rule.skip |= kind == EDIT_PREPEND;
        rule.form |= is_form(kind);
        rule.composed &= !is_form(kind) || kind == EDIT_NFC;
    }
    for (int i = 0; i < r->lead.count; i++)
        rule.space |= r->lead.list[i].kind == EDIT_LEAD;
    return rule;
}

static int is_word(enum scan_class class)
{
    return class == SCAN_LETTER || class == SCAN_NUMBER;
}

/* Whether a letter or digit ends before `at` that no normal form of `rule` changes. */
static int word_before(const struct rule *rule, const unsigned char *text, int64_t at)
{
    int64_t begin = at - 1;
    enum scan_class class;
    int length;
    int32_t code;

    while (begin > 0 && at - begin < 4 && (text[begin] & 0xc0) == 0x80)
        begin--;
    code = scan_code(&length, text, at, begin);
    class = scan_char(&length, text, at, begin);
    if (begin + length != at || !is_word(class))
        return 0;
    return !rule->form || edit_inert(code, rule->composed ? EDIT_NFC : EDIT_NFKD);
}

static int is_ascii_word(unsigned char c)
{
    return (unsigned)((c | 0x20) - 'a') < 26 || (unsigned)(c - '0') < 10;
}

static int is_border(const struct rule *rule, const unsigned char *text, int64_t n, int64_t at)
{
    unsigned char c = text[at];

    if (c >= 0x80 || is_ascii_word(c) || ((rule->mark || rule->space) && c != ' '))
        return 0;
    if (rule->mark && (at + 1 == n || !is_ascii_word(text[at + 1])))
        return 0;
    return word_before(rule, text, at);
}

/* The text that added tokens are compared with is the edited one: the same where all is ASCII. */
static int is_ascii(const unsigned char *text, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (text[i] >= 0x80)
            return 0;
    return 1;
}

int64_t border_last(int64_t *next, const struct recipe *r, const unsigned char *text, int64_t n,
                    int64_t least)
{
    struct rule rule = rule_of(r);
    int64_t reach = added_longest(&r->raw), edited = added_longest(&r->edited);

    reach = (reach > edited ? reach : edited) + 1;
    for (int64_t at = n - (reach > 1 ? reach : 1); at >= least && at > 0; at--) {
        if (!is_border(&rule, text, n, at) || added_touches(&r->raw, text, n, at) ||
            added_touches(&r->edited, text, n, at))
            continue;
        if (edited > 0 && rule.form && (at < reach || !is_ascii(text + at - reach, 2 * reach)))
            continue;
        *next = at + rule.skip;
        return at;
    }
    return -1;
}
