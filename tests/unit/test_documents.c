/* Documents from files, packed or not, clean or not. */
#include "common/data/documents.h"

#include "tests/unit/check_unit.h"
#include "tests/unit/temp_folder.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

struct scene {
    char folder[TEMP_PATH], path[TEMP_PATH];
    struct documents_options o;
    struct documents_counts counts;
    char got[4096]; /* all documents, '|' behind each */
};

static void begin(struct scene *s, const char *name)
{
    *s = (struct scene){.o = {.key = "text"}};
    temp_folder_make(s->folder);
    temp_folder_path(s->path, s->folder, name);
}

/* Reads and cleans all documents of paths, `bytes` at a time. */
static enum status read_paths(struct scene *s, const char *const *paths, int n, int64_t bytes)
{
    struct documents_reader r;
    struct documents_batch b = {0};
    struct byte_list text = {0};
    enum status st = documents_open(&r, paths, n, &s->o);
    int64_t length;

    s->counts = (struct documents_counts){0};
    s->got[0] = '\0';
    do {
        st = documents_read(&b, &r, bytes);
        for (int64_t i = 0; st == ST_OK && i < b.n; i++) {
            text.count = 0;
            st = documents_text(&text, &length, &s->counts, &b, i, paths, &s->o);
            if (st == ST_OK && length > 0)
                snprintf(s->got + strlen(s->got), sizeof s->got - strlen(s->got), "%.*s|",
                         (int)length, text.bytes);
        }
    } while (st == ST_OK && b.n > 0);
    documents_batch_free(&b);
    list_bytes_free(&text);
    documents_close(&r);
    return st;
}

static enum status read_text(struct scene *s, const char *text, size_t n)
{
    const char *const paths[] = {s->path};

    status_clear();
    temp_folder_write(s->path, text, n);
    return read_paths(s, paths, 1, 5);
}

#define TAKES(s, text, want)                                                                 \
    do {                                                                                     \
        ck_assert_msg(read_text(s, text, sizeof text - 1) == ST_OK, "%s", status_message()); \
        ck_assert_str_eq((s)->got, want);                                                    \
    } while (0)
#define REFUSES(s, text, word)                                                         \
    do {                                                                               \
        ck_assert_int_eq(read_text(s, text, sizeof text - 1), ST_EFORMAT);             \
        ck_assert_msg(strstr(status_message(), word) != NULL, "%s", status_message()); \
    } while (0)

START_TEST(test_text)
{
    struct scene s;

    begin(&s, "x.txt");
    TAKES(&s, "a\nb\r\n\nc", "a\nb\r\n\nc|");
    ck_assert(s.counts.cr == 1 && s.counts.nul == 0);
    TAKES(&s,
          "\xef\xbb\xbf"
          "abc\xef\xbb\xbf",
          "abc\xef\xbb\xbf|"); /* the mark of UTF-8 goes at the beginning only */
    TAKES(&s, "", "");
    TAKES(&s, "a\0b", "a|"); /* the NUL cuts this test's own text */
    ck_assert_int_eq(s.counts.nul, 1);
    REFUSES(&s,
            "\xff\xfe"
            "a\0",
            "UTF-16");
    REFUSES(&s, "\xfe\xff\0a", "UTF-16");
    s.o.separator = "--";
    TAKES(&s, "a\n--\nb\n--\r\nc\n", "a\n|b\n|c\n|");
    TAKES(&s, "--\n--\na\n--", "a\n|");
    ck_assert_int_eq(s.counts.empty, 2);
    TAKES(&s, "a\n---\n --\n-- \n", "a\n---\n --\n-- \n|"); /* lines that are not quite it */
    s.o.separator = "";
    TAKES(&s, "a\nb\n\nc\n\r\n\n\nd", "a\nb\n|c\n|d|");
    ck_assert_int_eq(s.counts.empty, 2);
    TAKES(&s, "\n\n", ""); /* no byte at all */
    ck_assert_int_eq(s.counts.empty, 2);
    temp_folder_remove(s.folder);
}
END_TEST

START_TEST(test_json)
{
    struct scene s;

    begin(&s, "x.jsonl");
    TAKES(&s,
          "{\"id\": 1, \"text\": \"a\\n\\u00e9\"}\n\n  \r\n{\"text\":\"\"}\r\n"
          "{\"text\": \"no end of line\\u0000\"}",
          "a\n\xc3\xa9|no end of line|");
    ck_assert(s.counts.empty == 1 && s.counts.nul == 1 && s.counts.cr == 0);
    TAKES(&s, "\xef\xbb\xbf{\"text\": \"a\"}", "a|");
    REFUSES(&s, "{\"text\": \"a\"}\n\n{\"text\": \"a\"\n", "x.jsonl:3: not valid JSON");
    REFUSES(&s, "{\"text\": \"a\"} {\"text\": \"b\"}\n", "x.jsonl:1: not valid JSON");
    REFUSES(&s, "{\"text\": \"\\ud800\"}\n", "x.jsonl:1: not valid JSON");
    REFUSES(&s, "{\"text\": \"a\"}\n{\"Text\": \"a\"}", "x.jsonl:2: the object has no key 'text'");
    REFUSES(&s, "{\"text\": 5}\n", "x.jsonl:1: the key 'text' holds a number");
    REFUSES(&s, "{\"text\": null}\n", "holds null");
    REFUSES(&s, "[\"text\"]\n", "the line holds a list");
    REFUSES(&s, "\"text\"\n", "the line holds a text");
    REFUSES(&s, "{\"text\": \"a\", \"text\": \"b\"}\n", "not valid JSON");
    s.o.key = "body";
    TAKES(&s, "{\"text\": \"a\", \"body\": \"b\"}\n", "b|");
    s.o.kind = DOCUMENTS_TEXT;
    TAKES(&s, "{\"body\": 1}\n", "{\"body\": 1}\n|");
    temp_folder_remove(s.folder);
}
END_TEST

/* The three policies; U+FFFD for each maximal part, as Unicode's table 3-8 has it. */
START_TEST(test_utf8)
{
    static const char table_3_8[] = "a\xf1\x80\x80\xe1\x80\xc2"
                                    "b\x80"
                                    "c\x80\xbf"
                                    "d";
    struct scene s;

    begin(&s, "x.txt");
    s.o.separator = "-";
    REFUSES(&s, "a\n-\nb\nc\xe9 \n", "x.txt:4: not UTF-8: byte 0xe9");
    REFUSES(&s, "a\n\xed\xa0\x80", "x.txt:2: not UTF-8: byte 0xed");
    s.o.invalid = DOCUMENTS_SKIP;
    TAKES(&s, "a\n-\nb\nc\xe9 \n-\nd", "a\n|d|");
    ck_assert(s.counts.skipped == 1 && s.counts.empty == 0);
    s.o.invalid = DOCUMENTS_REPLACE;
    ck_assert_int_eq(read_text(&s, table_3_8, sizeof table_3_8 - 1), ST_OK);
    ck_assert_str_eq(s.got, "a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                            "b\xef\xbf\xbd"
                            "c\xef\xbf\xbd\xef\xbf\xbd"
                            "d|");
    ck_assert_int_eq(s.counts.replaced, 1);
    TAKES(&s, "\xf0\x9f\x98", "\xef\xbf\xbd|"); /* cut inside a character */
    temp_folder_remove(s.folder);
    begin(&s, "x.jsonl");
    REFUSES(&s, "{\"text\": \"a\"}\n{\"text\": \"\xe9\"}\n", "x.jsonl:2: not UTF-8");
    s.o.invalid = DOCUMENTS_REPLACE;
    TAKES(&s, "{\"text\": \"\xe9\"}\n", "\xef\xbf\xbd|");
    s.o.invalid = DOCUMENTS_SKIP;
    TAKES(&s, "{\"text\": \"\xe9\"}\n{\"text\": \"a\"}\n", "a|");
    temp_folder_remove(s.folder);
}
END_TEST

/* Writes n bytes of text packed by another program's code: the libraries' one-shot functions. */
static size_t pack(unsigned char *out, size_t room, const char *text, size_t n, int zstd)
{
    z_stream z = {0};

    if (zstd)
        return ZSTD_compress(out, room, text, n, 3);
    ck_assert_int_eq(deflateInit2(&z, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (unsigned char *)(uintptr_t)text;
    z.avail_in = (uInt)n;
    z.next_out = out;
    z.avail_out = (uInt)room;
    ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return room - z.avail_out;
}

/* Packed files, two members one after the other, by content whatever the name; every cut of them
 * and a flipped bit of the sum are noticed. */
START_TEST(test_packed)
{
    static const char text[] = "one\n-\ntwo\n-\n";
    unsigned char packed[400];
    struct scene s;

    begin(&s, "x");
    s.o.separator = "-";
    for (int zstd = 0; zstd < 2; zstd++) {
        size_t n = pack(packed, 200, text, sizeof text - 1, zstd), all;

        all = n + pack(packed + n, 200, text, sizeof text - 1, zstd);
        ck_assert_msg(read_text(&s, (char *)packed, all) == ST_OK, "%s", status_message());
        ck_assert_str_eq(s.got, "one\n|two\n|one\n|two\n|");
        for (size_t cut = 4; cut < all; cut++) {
            if (cut == n)
                continue;
            ck_assert_msg(read_text(&s, (char *)packed, cut) == ST_EFORMAT, "cut at %zu", cut);
            ck_assert_msg(strstr(status_message(), "x is damaged near byte") != NULL, "%s",
                          status_message());
        }
        if (!zstd) {
            packed[n - 6] ^= 1; /* of the check sum */
            ck_assert_int_eq(read_text(&s, (char *)packed, all), ST_EFORMAT);
        }
        ck_assert_int_eq(read_text(&s, (char *)packed, n), zstd ? ST_OK : ST_EFORMAT);
    }
    temp_folder_remove(s.folder);
}
END_TEST

/* How the input falls into batches and files changes nothing; long lines and documents too. */
START_TEST(test_sizes)
{
    enum { LONG = 300000 };
    struct scene s;
    const char *paths[3];
    char names[3][TEMP_PATH], *big = malloc(LONG);
    struct documents_reader r;
    struct documents_batch b = {0};

    ck_assert_ptr_nonnull(big);
    begin(&s, "x");
    s.o.separator = "-";
    for (int i = 0; i < 3; i++) {
        snprintf(names[i], TEMP_PATH, "%.*s/%d.txt", TEMP_PATH - 20, s.folder, i);
        temp_folder_write(names[i], "a\n-\nbc\n-\n\xc3\xa9", 11);
        paths[i] = names[i];
    }
    for (int64_t bytes = 1; bytes < 40; bytes++) {
        ck_assert_int_eq(read_paths(&s, paths, 3, bytes), ST_OK);
        ck_assert_str_eq(s.got, "a\n|bc\n|\xc3\xa9|a\n|bc\n|\xc3\xa9|a\n|bc\n|\xc3\xa9|");
    }
    memset(big, 'x', LONG);
    temp_folder_write(names[0], big, LONG);
    ck_assert_int_eq(documents_open(&r, paths, 1, &s.o), ST_OK);
    ck_assert_int_eq(documents_read(&b, &r, 1), ST_OK);
    ck_assert(b.n == 1 && b.raw[0].n == LONG && !memcmp(b.text.bytes, big, LONG));
    ck_assert_int_eq(documents_taken(&r), LONG);
    ck_assert_int_eq(documents_read(&b, &r, 1), ST_OK);
    ck_assert_int_eq(b.n, 0);
    documents_close(&r);
    documents_batch_free(&b);
    free(big);
    paths[1] = "nowhere/at/all";
    status_clear();
    ck_assert_int_eq(read_paths(&s, paths, 3, 10), ST_EIO);
    ck_assert_ptr_nonnull(strstr(status_message(), "nowhere/at/all"));
    temp_folder_remove(s.folder);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("documents");
    TCase *c = tcase_create("documents");

    tcase_add_test(c, test_text);
    tcase_add_test(c, test_json);
    tcase_add_test(c, test_utf8);
    tcase_add_test(c, test_packed);
    tcase_add_test(c, test_sizes);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return check_unit(suite());
}
