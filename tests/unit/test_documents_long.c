/* Documents in parts are what they are when they are read whole. */
#include "common/data/documents.h"

#include "tests/unit/check_unit.h"
#include "tests/unit/temp_folder.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WHOLE = 1 << 16, MOST = 70 };

struct scene {
    char folder[TEMP_PATH], path[TEMP_PATH];
    struct documents_options o;
    struct tokenizer t;
};

/* All documents of a file, '|' behind each, and what was counted; or the message of a refusal. */
struct found {
    struct byte_list text;
    struct documents_counts counts;
    enum status st;
    char message[512];
    int parts;
};

static void begin(struct scene *s, const char *name)
{
    *s = (struct scene){.o = {.key = "text"}};
    temp_folder_make(s->folder);
    temp_folder_path(s->path, s->folder, name);
    ck_assert_int_eq(tokenizer_open(&s->t, "bytes"), ST_OK);
}

static void end(struct scene *s)
{
    tokenizer_close(&s->t);
    temp_folder_remove(s->folder);
}

static enum status add(struct found *f, int64_t *begun, const struct documents_batch *b, int64_t i,
                       const char *const *path, const struct documents_options *o)
{
    int part = b->raw[i].part;
    int64_t n;

    f->parts += part != DOCUMENTS_WHOLE;
    TRY(documents_text(&f->text, &n, &f->counts, b, i, path, o));
    if (part == DOCUMENTS_DROP)
        f->text.count = *begun;
    else if (part != DOCUMENTS_BEGIN && f->text.count > *begun)
        TRY(list_bytes_add(&f->text, "|", 1));
    if (part != DOCUMENTS_BEGIN)
        *begun = f->text.count;
    return ST_OK;
}

static void read_all(struct found *f, const struct scene *s, int64_t bytes)
{
    const char *path = s->path;
    struct documents_batch b = {0};
    struct documents_reader r;
    int64_t begun = 0;

    *f = (struct found){0};
    status_clear();
    ck_assert_int_eq(documents_open(&r, &path, 1, &s->o), ST_OK);
    do {
        f->st = documents_read(&b, &r, bytes);
        for (int64_t i = 0; f->st == ST_OK && i < b.n; i++)
            f->st = add(f, &begun, &b, i, &path, &s->o);
    } while (f->st == ST_OK && b.n > 0);
    snprintf(f->message, sizeof f->message, "%s", status_message());
    documents_batch_free(&b);
    documents_close(&r);
}

/* Of a message, what does not depend on how the document was read: file, line and the kind. */
static int same_reason(const char *a, const char *b)
{
    const char *end = strstr(a, "not valid JSON");
    size_t n = end ? (size_t)(end - a) + 14 : strlen(a) + 1;

    return strncmp(a, b, n) == 0;
}

/* The n bytes of text, whole and in parts of every size. Returns the number of parts. */
static int check(struct scene *s, const char *text, size_t n)
{
    struct found whole, parts;
    int count = 0;

    temp_folder_write(s->path, text, n);
    s->o.tokenizer = NULL;
    read_all(&whole, s, WHOLE);
    ck_assert_int_eq(whole.parts, 0);
    s->o.tokenizer = &s->t;
    for (int64_t bytes = 2; bytes < MOST; bytes++) {
        read_all(&parts, s, bytes);
        ck_assert_msg(parts.st == whole.st && same_reason(whole.message, parts.message),
                      "%s: '%s' and '%s'", text, whole.message, parts.message);
        if (whole.st == ST_OK)
            ck_assert_msg(parts.text.count == whole.text.count &&
                              (whole.text.count == 0 || !memcmp(parts.text.bytes, whole.text.bytes,
                                                                (size_t)whole.text.count)) &&
                              !memcmp(&parts.counts, &whole.counts, sizeof whole.counts),
                          "%s in parts of %lld: %.*s and %.*s", text, (long long)bytes,
                          (int)whole.text.count, whole.text.bytes, (int)parts.text.count,
                          parts.text.bytes);
        list_bytes_free(&parts.text);
        count += parts.parts;
    }
    list_bytes_free(&whole.text);
    return count;
}

START_TEST(test_json)
{
    static const char *const lines[] = {
        "{\"id\": [1, {\"text\": \"x\"}], \"text\": \"a\\u00e9\\n\\ud83d\\ude00 \\\"b\\\" c\"}",
        "{\"text\": \"some words that make a longer text, with \\\\ and \\/\", \"z\": \"text\"}",
        "{\"t\\u0065xt\": \"an escaped key \\u0000\\r\\n\\t\\b\\f\"}",
        "   \t  ",
        "{\"text\": \"\", \"other\": \"a long text that is not the one that is looked for\"}",
        "{\"a\": \"text\", \"b\": {\"text\": [\"text\", 1]}, \"text\":\"\xc3\xa9\xe2\x82\xac\"}",
        "{\"text\": \"a\", \"text\": \"two of the same\"}",
        "{\"text\": \"abc\": 1, \"text\": \"colons\"}", /* once read behind the text of a name */
        "{\"text\": \"unknown escape \\x\"}",
        "{\"text\": \"a lone surrogate \\ud83d and more\"}",
        "{\"text\": \"a lone surrogate \\ude00\"}",
        "{\"text\": \"half an escape \\u00",
        "{\"text\": \"digits \\u00g0\"}",
        "{\"text\": \"a control\tcharacter\"}",
        "{\"text\": \"it does not end",
        "{\"text\": \"it does not end}",
        "{\"text\": \"a\"",
        "{\"text\": \"a\"} {\"text\": \"b\"}",
        "{\"texts\": \"a key that is missing\"}",
        "{\"text\": 12345678901234567890}",
        "{\"text\": {\"text\": \"an object\"}}",
        "[\"text\", \"a list\"]",
        "\"text\"",
        "{\"text\": \"not UTF-8 \xe9 here\", \"and\": \"\xf0\x9f\x98\"}",
        "{\"text\": \"the character does not end \xf0\x9f\x98",
    };
    struct scene s;
    int parts = 0;

    begin(&s, "x.jsonl");
    for (int policy = DOCUMENTS_REFUSE; policy <= DOCUMENTS_SKIP; policy++)
        for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
            char text[512];
            int n = snprintf(text, sizeof text,
                             "{\"text\": \"one before\"}\n%s\n{\"text\": \"z\"}\n", lines[i]);

            s.o.invalid = (enum documents_policy)policy;
            parts += check(&s, text, (size_t)n);
        }
    ck_assert_int_gt(parts, 1000);
    end(&s);
}
END_TEST

START_TEST(test_text)
{
    static const char text[] =
        "\xef\xbb\xbfLines of text\r\n\r\n\n--\nof \xc3\xa9\xe2\x82\xac\xf0\x9f\x98"
        "\x80 some length\0--\n -- \n--\r\n\nand \x80\xf0\x9f the \xe2\x82 end--";
    static const char *const separators[] = {NULL, "", "--", "Lines of text"};
    struct scene s;
    int parts = 0;

    begin(&s, "x.txt");
    for (int i = 0; i < 4; i++)
        for (int policy = DOCUMENTS_REFUSE; policy <= DOCUMENTS_SKIP; policy++) {
            s.o.separator = separators[i];
            s.o.invalid = (enum documents_policy)policy;
            for (size_t n = 0; n < sizeof text; n++)
                parts += check(&s, text, n);
        }
    ck_assert_int_gt(parts, 10000);
    end(&s);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("documents in parts");
    TCase *c = tcase_create("parts");

    tcase_set_timeout(c, 120);
    tcase_add_test(c, test_json);
    tcase_add_test(c, test_text);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return check_unit(suite());
}
