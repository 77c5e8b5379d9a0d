/* normalizer and pre_tokenizer of a tokenizer.json. */
#include "common/tokenizer/hf.h"

#include "common/tokenizer/scan.h"

#include <string.h>

static enum status not_supported(const char *what, const json_t *json, const char *known)
{
    return fail(ST_EFORMAT, "%s of type '%.40s' is not supported; these are: %s", what,
                hf_type(json), known);
}

/* A text to replace that is given as such: {"String": " "}. */
static const char *plain_pattern(const json_t *json)
{
    return hf_text(json_object_get(json, "pattern"), "String");
}

/* Spaces become `mark` in the edits e. */
static enum status mark_spaces(struct recipe *r, struct edits *e, const char *mark)
{
    size_t n = mark ? strlen(mark) : 0;

    if (n == 0 || n > sizeof r->mark)
        return fail(ST_EFORMAT, "the mark for a space has %zu bytes; 1 to %zu are supported", n,
                    sizeof r->mark);
    memcpy(r->mark, mark, n);
    r->mark_n = (int)n;
    return edit_add(e, EDIT_REPLACE, " ", mark);
}

/* ---- normalizer ---- */

static enum status normalizer(struct recipe *r, const json_t *json, int depth)
{
    static const struct {
        const char *type;
        enum edit_kind kind;
    } forms[] = {{"NFC", EDIT_NFC}, {"NFD", EDIT_NFD}, {"NFKC", EDIT_NFKC}, {"NFKD", EDIT_NFKD}};
    const json_t *list = json_object_get(json, "normalizers"), *each;
    const char *type = hf_type(json), *from = plain_pattern(json);
    size_t i;

    for (i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(type, forms[i].type) == 0)
            return edit_add(&r->edits, forms[i].kind, NULL, NULL);
    if (strcmp(type, "Prepend") == 0 && hf_text(json, "prepend"))
        return edit_add(&r->edits, EDIT_PREPEND, NULL, hf_text(json, "prepend"));
    if (strcmp(type, "Replace") == 0 && from && hf_text(json, "content")) {
        if (strcmp(from, " ") == 0 && *hf_text(json, "content"))
            return mark_spaces(r, &r->edits, hf_text(json, "content"));
        return edit_add(&r->edits, EDIT_REPLACE, from, hf_text(json, "content"));
    }
    if (strcmp(type, "Sequence") != 0 || !json_is_array(list) || depth > 4)
        return not_supported("a normalizer", json,
                             "NFC, NFD, NFKC, NFKD, Prepend, Replace (of a String), Sequence");
    json_array_foreach(list, i, each) TRY(normalizer(r, each, depth + 1));
    return ST_OK;
}

enum status hf_normalizer(struct recipe *r, const json_t *json)
{
    return json && !json_is_null(json) ? normalizer(r, json, 0) : ST_OK;
}

/* ---- pre_tokenizer ---- */

static enum status byte_level(struct recipe *r, const json_t *json)
{
    struct cut *c;

    r->byte_level = 1;
    if (hf_flag(json, "add_prefix_space", 1)) {
        if (r->cut_count > 0)
            return fail(ST_EFORMAT, "a ByteLevel pre_tokenizer that is not the first one has "
                                    "add_prefix_space, which is not supported");
        TRY(edit_add(&r->lead, EDIT_LEAD, NULL, " "));
    }
    return hf_flag(json, "use_regex", 1) ? recipe_cut(r, CUT_GPT2, &c) : ST_OK;
}

/* The cuts by hand that equal a regular expression; 0 for none. */
static int by_hand(struct cut *c, const char *text)
{
    static const struct {
        const char *text;
        enum cut_kind kind;
        int digits;
    } known[] = {{SCAN_GPT2, CUT_GPT2, 0},
                 {SCAN_CL100K("{1,3}"), CUT_CL100K, 3},
                 {SCAN_CL100K(""), CUT_CL100K, 1}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(text, known[i].text) == 0) {
            c->kind = known[i].kind;
            c->digits = known[i].digits;
            return 1;
        }
    return 0;
}

/* Removed drops the matches, or with `invert` what lies between them; Isolated drops nothing. */
static enum status split(struct recipe *r, const json_t *json)
{
    const json_t *pattern = json_object_get(json, "pattern");
    const char *text = hf_text(pattern, "Regex"), *behavior = hf_text(json, "behavior");
    int invert = hf_flag(json, "invert", 0), removed;
    struct cut *c;

    if (!text || !behavior)
        return fail(ST_EFORMAT, "a Split pre_tokenizer needs a pattern that is a Regex, and a "
                                "behavior");
    removed = strcmp(behavior, "Removed") == 0;
    if (!removed && strcmp(behavior, "Isolated") != 0)
        return fail(ST_EFORMAT,
                    "behavior %.40s of a Split pre_tokenizer is not supported; Removed "
                    "and Isolated are",
                    behavior);
    TRY(recipe_cut(r, CUT_PATTERN, &c));
    c->drop_rest = removed && invert;
    c->drop_matches = removed && !invert;
    if (!c->drop_matches && by_hand(c, text))
        return ST_OK;
    return pattern_open(&c->pattern, text, strlen(text));
}

/* U+2581 for spaces; a first one, unless it is there, always or only where the text begins. */
static enum status metaspace(struct recipe *r, const json_t *json)
{
    const char *mark = hf_text(json, "replacement"), *scheme = hf_text(json, "prepend_scheme");
    int lead = hf_flag(json, "add_prefix_space", 1);
    struct cut *c;

    if (r->cut_count > 0)
        return fail(ST_EFORMAT, "a Metaspace pre_tokenizer after others is not supported");
    TRY(mark_spaces(r, &r->lead, mark));
    if (scheme)
        lead = strcmp(scheme, "never") != 0;
    if (lead) {
        TRY(edit_add(&r->lead, EDIT_LEAD, NULL, mark));
        r->lead.list[r->lead.count - 1].first_only = scheme && strcmp(scheme, "first") == 0;
    }
    return hf_flag(json, "split", 1) ? recipe_cut(r, CUT_BEFORE, &c) : ST_OK;
}

static enum status pre_tokenizer(struct recipe *r, const json_t *json, int depth)
{
    const json_t *list = json_object_get(json, "pretokenizers"), *each;
    const char *type = hf_type(json);
    struct cut *c;
    size_t i;

    if (strcmp(type, "ByteLevel") == 0)
        return byte_level(r, json);
    if (strcmp(type, "Split") == 0)
        return split(r, json);
    if (strcmp(type, "Metaspace") == 0)
        return metaspace(r, json);
    if (strcmp(type, "Digits") == 0)
        return recipe_cut(r, hf_flag(json, "individual_digits", 0) ? CUT_DIGIT : CUT_DIGITS, &c);
    if (strcmp(type, "Sequence") != 0 || !json_is_array(list) || depth > 4)
        return not_supported("a pre_tokenizer", json,
                             "ByteLevel, Split, Digits, Metaspace, Sequence");
    json_array_foreach(list, i, each) TRY(pre_tokenizer(r, each, depth + 1));
    return ST_OK;
}

enum status hf_pre_tokenizer(struct recipe *r, const json_t *json)
{
    return json && !json_is_null(json) ? pre_tokenizer(r, json, 0) : ST_OK;
}
