/* Text files as tokens: documents, encodings, and what is refused. */
#include "common/base/hash.h"
#include "common/data/corpus.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { END = TOKENIZER_BYTE_END };

/* A folder for this test's files and the tokenizer; every test runs in a process of its own. */
struct scene {
    char folder[64], path[128];
    struct tokenizer bytes;
    struct corpus corpus;
};

static void begin(struct scene *s)
{
    snprintf(s->folder, sizeof s->folder, "/tmp/test_data.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(s->folder));
    snprintf(s->path, sizeof s->path, "%s/text", s->folder);
    ck_assert_int_eq(tokenizer_open(&s->bytes, "bytes"), ST_OK);
    s->corpus = (struct corpus){0};
}

static void end(struct scene *s)
{
    corpus_close(&s->corpus);
    tokenizer_close(&s->bytes);
    unlink(s->path);
    ck_assert_int_eq(rmdir(s->folder), 0);
}

static enum status load(struct scene *s, const void *text, size_t n, struct corpus_options options)
{
    FILE *f = fopen(s->path, "wb");

    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(text, 1, n, f), n);
    ck_assert_int_eq(fclose(f), 0);
    corpus_close(&s->corpus);
    status_clear();
    return corpus_open(&s->corpus, s->path, &s->bytes, &options);
}

static void assert_message(const char *word)
{
    ck_assert_msg(strstr(status_message(), word) != NULL, "'%s' lacks '%s'", status_message(),
                  word);
}

/* The tokens written out: text as it is, '|' for an end of document. */
static void assert_tokens(const struct corpus *c, const char *want)
{
    int32_t ids[256];
    char got[257];

    ck_assert_int_le(c->count, 256);
    corpus_read(ids, c, 0, c->count);
    for (int64_t i = 0; i < c->count; i++)
        got[i] = (char)(ids[i] == END ? '|' : ids[i]);
    got[c->count] = '\0';
    ck_assert_str_eq(got, want);
}

START_TEST(test_plain)
{
    static const char text[] = "First line\nSecond\n";
    struct scene s;
    int32_t ids[3];

    begin(&s);
    ck_assert_int_eq(load(&s, text, sizeof text - 1, (struct corpus_options){0}), ST_OK);
    assert_tokens(&s.corpus, text);
    ck_assert(s.corpus.documents == 1 && s.corpus.starts[0] == 0 && s.corpus.starts[1] == 18);
    ck_assert(s.corpus.file_bytes == 18 && s.corpus.hash == hash_text(text));
    ck_assert(s.corpus.vocab == 259 && s.corpus.pad == 258 && !s.corpus.separated);
    corpus_read(ids, &s.corpus, 6, 3);
    ck_assert(ids[0] == 'l' && ids[1] == 'i' && ids[2] == 'n');
    end(&s);
}
END_TEST

START_TEST(test_documents)
{
    static const struct {
        const char *text, *tokens;
        int64_t documents;
    } rows[] = {
        {"a\nb\n---\nc\n---\n", "a\nb\n|c\n|", 2},
        {"a\n---\nc\n---", "a\n|c\n|", 2},             /* no line end after the last */
        {"a\n---\nc", "a\n|c|", 2},                    /* no separator after the last */
        {"---\n---\na\n---\n---\nb\n", "a\n|b\n|", 2}, /* empty documents */
        {"a\r\n---\r\nb\r\n", "a\r\n|b\r\n|", 2},      /* CR LF */
        {"a ---\n---\n ---\n----\n--\nb", "a ---\n| ---\n----\n--\nb|", 2}, /* nearly */
        {"\n---\n\n\n", "\n|\n\n|", 2},                                     /* a line end is text */
    };
    struct scene s;

    begin(&s);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_int_eq(load(&s, rows[i].text, strlen(rows[i].text),
                              (struct corpus_options){.separator = "---", .require_utf8 = 1}),
                         ST_OK);
        assert_tokens(&s.corpus, rows[i].tokens);
        ck_assert_int_eq(s.corpus.documents, rows[i].documents);
        ck_assert_int_eq(s.corpus.starts[0], 0);
        ck_assert_int_eq(s.corpus.starts[1], strchr(rows[i].tokens, '|') - rows[i].tokens + 1);
        ck_assert_int_eq(s.corpus.starts[2], s.corpus.count);
    }
    end(&s);
}
END_TEST

START_TEST(test_any_bytes)
{
    unsigned char text[512];
    int32_t ids[512];
    struct scene s;

    for (int i = 0; i < 512; i++)
        text[i] = (unsigned char)(255 - i);
    begin(&s);
    ck_assert_int_eq(load(&s, text, sizeof text, (struct corpus_options){0}), ST_OK);
    corpus_read(ids, &s.corpus, 0, 512);
    for (int i = 0; i < 512; i++)
        ck_assert_int_eq(ids[i], text[i]);
    ck_assert_int_eq(load(&s, text, sizeof text, (struct corpus_options){.require_utf8 = 1}),
                     ST_EFORMAT);
    assert_message("0xff at offset 0 ");
    assert_message(s.path);
    ck_assert_int_eq(
        load(&s, "abc\xe2\x82\xac\xe2\x28", 8, (struct corpus_options){.require_utf8 = 1}),
        ST_EFORMAT);
    assert_message("0xe2 at offset 6 ");
    end(&s);
}
END_TEST

/* A tokenizer with ids beyond 16 bits: id = 70000 + byte. */
static enum status wide_encode(struct token_list *out, const struct tokenizer *t, const void *bytes,
                               int64_t n, unsigned how)
{
    (void)t;
    (void)how;
    for (int64_t i = 0; i < n; i++) {
        int32_t id = 70000 + ((const unsigned char *)bytes)[i];

        TRY(list_tokens_add(out, &id, 1));
    }
    return ST_OK;
}

START_TEST(test_wide_vocabulary)
{
    struct scene s;
    int32_t ids[4];

    begin(&s);
    s.bytes.encode = wide_encode;
    s.bytes.vocab = 70300;
    s.bytes.end = 70299;
    ck_assert_int_eq(load(&s, "ab\n-\nc", 6, (struct corpus_options){.separator = "-"}), ST_OK);
    ck_assert_int_eq(s.corpus.count, 6);
    ck_assert_int_eq(s.corpus.token_bytes, 4);
    corpus_read(ids, &s.corpus, 2, 4);
    ck_assert(ids[0] == 70010 && ids[1] == 70299 && ids[2] == 70099 && ids[3] == 70299);
    end(&s);
}
END_TEST

START_TEST(test_split)
{
    struct corpus held = {0};
    struct scene s;

    begin(&s);
    ck_assert_int_eq(load(&s, "0123456789", 10, (struct corpus_options){0}), ST_OK);
    ck_assert_int_eq(corpus_split(&held, &s.corpus, 0.25), ST_OK);
    assert_tokens(&s.corpus, "01234567");
    assert_tokens(&held, "89");
    ck_assert(s.corpus.documents == 1 && s.corpus.starts[1] == 8);
    ck_assert(held.documents == 1 && held.starts[0] == 0 && held.starts[1] == 2);
    corpus_close(&held);
    /* 12 tokens; a third are 4: document c has 3, so b goes with it */
    ck_assert_int_eq(load(&s, "aaa\n-\nbbb\n-\nc\n", 14, (struct corpus_options){.separator = "-"}),
                     ST_OK);
    ck_assert_int_eq(corpus_split(&held, &s.corpus, 1.0 / 3), ST_OK);
    assert_tokens(&s.corpus, "aaa\n|");
    assert_tokens(&held, "bbb\n|c\n|");
    ck_assert(s.corpus.documents == 1 && s.corpus.starts[1] == 5);
    ck_assert(held.documents == 2 && held.starts[1] == 5 && held.starts[2] == 8);
    corpus_close(&held);
    /* the first document stays, however much is asked for */
    ck_assert_int_eq(load(&s, "aaa\n-\nb\n", 8, (struct corpus_options){.separator = "-"}), ST_OK);
    ck_assert_int_eq(corpus_split(&held, &s.corpus, 0.9), ST_OK);
    assert_tokens(&s.corpus, "aaa\n|");
    assert_tokens(&held, "b\n|");
    corpus_close(&held);
    status_clear();
    ck_assert_int_eq(corpus_split(&held, &s.corpus, 1), ST_ECONFIG);
    status_clear();
    ck_assert_int_eq(corpus_split(&held, &s.corpus, 0.1), ST_EFORMAT);
    assert_message("holds 5 tokens");
    assert_tokens(&s.corpus, "aaa\n|");
    end(&s);
}
END_TEST

static void assert_refused(struct scene *s, enum status want, const char *word)
{
    status_clear();
    ck_assert_int_eq(
        corpus_open(&s->corpus, s->path, &s->bytes, &(struct corpus_options){.separator = ""}),
        want);
    assert_message(word);
    assert_message(s->path);
    ck_assert_ptr_null(s->corpus.tokens);
}

START_TEST(test_files_refused)
{
    struct scene s;

    begin(&s);
    assert_refused(&s, ST_EIO, "No such file");
    ck_assert_int_eq(mkdir(s.path, 0700), 0);
    assert_refused(&s, ST_EIO, "is a directory");
    rmdir(s.path);
    ck_assert_int_eq(mkfifo(s.path, 0600), 0);
    assert_refused(&s, ST_EIO, "not a regular file");
    unlink(s.path);
    ck_assert_int_eq(load(&s, "", 0, (struct corpus_options){0}), ST_EFORMAT);
    assert_refused(&s, ST_EFORMAT, "is empty");
    /* Root may read anything, so it becomes somebody else; the process ends with this test. */
    ck_assert_int_eq(chmod(s.folder, 0755), 0);
    ck_assert_int_eq(chmod(s.path, 0), 0);
    if (geteuid() == 0)
        ck_assert_int_eq(seteuid(65534), 0);
    assert_refused(&s, ST_EIO, "Permission denied");
    if (getuid() == 0)
        ck_assert_int_eq(seteuid(0), 0);
    end(&s);
}
END_TEST

START_TEST(test_separators_refused)
{
    struct scene s;

    begin(&s);
    ck_assert_int_eq(load(&s, "a\nb", 3, (struct corpus_options){.separator = "---"}), ST_EFORMAT);
    assert_message("'---' does not occur");
    assert_message("data.document_separator");
    ck_assert_int_eq(load(&s, "---\n---\n", 8, (struct corpus_options){.separator = "---"}),
                     ST_EFORMAT);
    assert_message("holds no token");
    ck_assert_int_eq(load(&s, "a\nb", 3, (struct corpus_options){.separator = "a\n"}), ST_ECONFIG);
    assert_message("line end");
    s.bytes.end = -1;
    ck_assert_int_eq(load(&s, "a\nb", 3, (struct corpus_options){.separator = "a"}), ST_ECONFIG);
    assert_message("end of a document");
    end(&s);
}
END_TEST

/* The example text that comes with the program. */
START_TEST(test_example)
{
    static const struct {
        const char *name;
        int64_t bytes;
    } rows[] = {{"train.txt", 1003854}, {"val.txt", 111540}};
    const char *source = getenv("SOURCE");
    struct corpus_options options = {.require_utf8 = 1};
    struct scene s;
    char path[1024];

    begin(&s);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/examples/data/tinyshakespeare/%s", source ? source : ".",
                 rows[i].name);
        ck_assert_msg(corpus_open(&s.corpus, path, &s.bytes, &options) == ST_OK, "%s",
                      status_message());
        ck_assert_int_eq(s.corpus.count, rows[i].bytes);
        corpus_close(&s.corpus);
    }
    end(&s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("data");
    TCase *tests = tcase_create("data");

    tcase_add_test(tests, test_plain);
    tcase_add_test(tests, test_documents);
    tcase_add_test(tests, test_any_bytes);
    tcase_add_test(tests, test_wide_vocabulary);
    tcase_add_test(tests, test_split);
    tcase_add_test(tests, test_files_refused);
    tcase_add_test(tests, test_separators_refused);
    tcase_add_test(tests, test_example);
    suite_add_tcase(suite, tests);
    return check_unit(suite);
}
