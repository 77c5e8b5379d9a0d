/* Tokenizer files that are wrong, cut off or not supported; small ones made up for a single
 * property; threads; and a very long word. */
#include "common/base/rng.h"
#include "tests/unit/check_unit.h"
#include "tests/unit/stored_tokenizer.h"
#include "tests/unit/temp_folder.h"

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

enum { TEXT = 4096, THREADS = 4, LONG_WORD = 5000000 };

static char folder[TEMP_PATH];

static void setup(void)
{
    temp_folder_make(folder);
    status_clear();
}

static void teardown(void)
{
    temp_folder_remove(folder);
}

static enum status open_bytes(struct tokenizer *t, const void *bytes, size_t n)
{
    char path[TEMP_PATH];

    temp_folder_write(temp_folder_path(path, folder, "made_up"), bytes, n);
    return tokenizer_open(t, path);
}

/* ---- tokenizer.json, made up ---- */

#define CHARACTERS \
    "\"normalizer\": null, \"pre_tokenizer\": null, \"decoder\": {\"type\": \"Fuse\"},"
#define BPE(vocab, merges) \
    "\"model\": {\"type\": \"BPE\", \"vocab\": " vocab ", \"merges\": " merges "}"
#define GOOD BPE("{\"a\": 0, \"b\": 1, \"ab\": 2}", "[\"a b\"]")

static const struct {
    const char *json, *said;
} refused[] = {
    {"{", "line 1, column 1"},
    {"{\"model\": 3}", "no object \"model\""},
    {"{" CHARACTERS GOOD "} x", "line 1, column"},
    {"{" CHARACTERS "\"model\": {\"type\": \"Unigram\"}}", "'Unigram'; BPE is"},
    {"{" CHARACTERS BPE("[]", "[]") "}", "model.vocab is no object"},
    {"{" CHARACTERS BPE("{}", "[]") "}", "vocabulary is empty"},
    {"{" CHARACTERS BPE("{\"a\": 0, \"b\": 0}", "[]") "}", "id 0 is given to two tokens"},
    {"{" CHARACTERS BPE("{\"a\": 0, \"a\": 1}", "[]") "}", "duplicate"},
    {"{" CHARACTERS BPE("{\"a\": 0, \"b\": 2}", "[]") "}", "no token has id 1"},
    {"{" CHARACTERS BPE("{\"a\": -1}", "[]") "}", "has id -1"},
    {"{" CHARACTERS BPE("{\"a\": 16777216}", "[]") "}", "has id 16777216"},
    {"{" CHARACTERS BPE("{\"a\": 0.5}", "[]") "}", "no whole number"},
    {"{" CHARACTERS BPE("{\"a\": 0}", "{}") "}", "model.merges is no list"},
    {"{" CHARACTERS BPE("{\"a\": 0}", "[\"a b\"]") "}",
     "model.merges[0]: 'b' is no token of the vocabulary"},
    {"{" CHARACTERS BPE("{\"a\": 0, \"b\": 1}", "[\"a b\"]") "}",
     "model.merges[0]: 'ab' is no token"},
    {"{" CHARACTERS BPE("{\"a\": 0, \"aa\": 1}", "[\"a a\", [\"a\", \"a\"]]") "}",
     "model.merges[1]: the merge of tokens 0 and 0 stands twice"},
    {"{" CHARACTERS BPE("{\"a\": 0}", "[\"aa\"]") "}", "a merge is to be two tokens"},
    {"{" CHARACTERS BPE("{\"a\": 0}", "[[\"a\"]]") "}", "a merge is to be two tokens"},
    {"{\"decoder\": null, " GOOD "}", "a decoder of type ''"},
    {"{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, \"decoder\": null, " GOOD "}",
     "needs a decoder of type ByteLevel"},
    {"{\"normalizer\": {\"type\": \"Lowercase\"}, " GOOD "}", "a normalizer of type 'Lowercase'"},
    {"{\"pre_tokenizer\": {\"type\": \"Whitespace\"}, " GOOD "}", "of type 'Whitespace'"},
    {"{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(\"}, \"behavior\": "
     "\"Isolated\"}, " GOOD "}",
     "regular expression is not understood"},
    {"{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"[a&&b]\"}, "
     "\"behavior\": \"Isolated\"}, " GOOD "}",
     "&& inside of []"},
    {"{" CHARACTERS "\"added_tokens\": [{\"id\": 5, \"content\": \"x\"}], " GOOD "}",
     "no token has id 3"},
    {"{" CHARACTERS "\"added_tokens\": [{\"id\": 1, \"content\": \"x\"}], " GOOD "}",
     "added_tokens[0]: id 1 is given to added token 'x' and to 'b'"},
    {"{" CHARACTERS "\"added_tokens\": [{\"id\": 3, \"content\": \"b\"}], " GOOD "}",
     "'b' is added token 3 and token 1"},
    {"{" CHARACTERS "\"added_tokens\": [{\"id\": 3, \"content\": \"\"}], " GOOD "}", "has no text"},
    {"{" CHARACTERS "\"post_processor\": {\"type\": \"Other\"}, " GOOD "}",
     "post_processor of type 'Other'"},
    {"{" CHARACTERS "\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [], \"dropout\": 0.1}}",
     "model.dropout is 0.1"},
    {"{" CHARACTERS "\"model\": {\"vocab\": {\"a\": 0}, \"merges\": [], \"unk_token\": \"u\"}}",
     "model.unk_token 'u'"},
};

START_TEST(test_refused)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct tokenizer t;

        status_clear();
        ck_assert_msg(open_bytes(&t, refused[i].json, strlen(refused[i].json)) == ST_EFORMAT,
                      "row %zu, %s: %s", i, refused[i].said, status_message());
        ck_assert_msg(strstr(status_message(), refused[i].said) && strstr(status_message(), folder),
                      "row %zu: %s", i, status_message());
    }
}
END_TEST

/* The ids of a text under a made-up tokenizer, as "1 2 3". */
static const char *ids_of(char out[TEXT], const char *json, const char *text)
{
    struct token_list ids = {0};
    struct tokenizer t;
    size_t used = 0;

    OK(open_bytes(&t, json, strlen(json)));
    OK(tokenizer_encode(&ids, &t, text, (int64_t)strlen(text), TOKENIZER_SPECIAL));
    out[0] = '\0';
    for (int64_t i = 0; i < ids.count; i++)
        used += (size_t)snprintf(out + used, TEXT - used, "%s%d", i ? " " : "", (int)ids.ids[i]);
    list_tokens_free(&ids);
    tokenizer_close(&t);
    return out;
}

#define MARKS                                                                   \
    "\"decoder\": {\"type\": \"Metaspace\", \"replacement\": \"_\"},"           \
    "\"added_tokens\": [{\"id\": 4, \"content\": \"<x>\", \"special\": true}]," \
    "\"model\": {\"vocab\": {\"_\": 0, \"a\": 1, \"_a\": 2, \"__\": 3}, "       \
    "\"merges\": [\"_ _\", \"_ a\"]}}"
#define METASPACE(scheme)                                                    \
    "{\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"_\", " \
    "\"prepend_scheme\": \"" scheme "\"}, " MARKS

/* Steps that the stored tokenizers do not have. */
START_TEST(test_steps)
{
    char out[TEXT];

    ck_assert_str_eq(ids_of(out, METASPACE("always"), "a <x>a"), "2 0 4 2");
    ck_assert_str_eq(ids_of(out, METASPACE("first"), "a <x>a"), "2 0 4 1");
    ck_assert_str_eq(ids_of(out, METASPACE("never"), "a <x>a"), "1 0 4 1");
    ck_assert_str_eq(ids_of(out, METASPACE("never"), "a   a"), "1 0 0 2"); /* each mark begins */
    ck_assert_str_eq(ids_of(out,
                            "{\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": "
                            "\" \"}, \"content\": \"_\"}, " MARKS,
                            "a   a"),
                     "1 3 2"); /* not cut: marks merge with each other */
    ck_assert_str_eq(
        ids_of(out,
               "{\"pre_tokenizer\": {\"type\": \"Digits\", \"individual_digits\": false}, "
               "\"decoder\": {\"type\": \"Fuse\"}, " BPE(
                   "{\"a\": 0, \"1\": 1, \"11\": 2, \"a1\": 3}", "[\"a 1\", \"1 1\"]") "}",
               "a11"),
        "0 2");
    ck_assert_str_eq(
        ids_of(out,
               "{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"a\"}, "
               "\"behavior\": \"Removed\"}, \"decoder\": {\"type\": \"Fuse\"}, " GOOD "}",
               "abab"),
        "1 1");
}
END_TEST

/* Characters without a token: an unknown one each, or one for all in a row; else refused. */
START_TEST(test_unknown)
{
#define UNKNOWN(fuse)                                                              \
    "{" CHARACTERS "\"model\": {\"vocab\": {\"u\": 0, \"a\": 1}, \"merges\": [], " \
    "\"unk_token\": \"u\", \"fuse_unk\": " fuse "}}"
    char out[TEXT];
    struct token_list ids = {0};
    struct tokenizer t;

    ck_assert_str_eq(ids_of(out, UNKNOWN("false"), "xya\xc3\xa9"), "0 0 1 0");
    ck_assert_str_eq(ids_of(out, UNKNOWN("true"), "xya\xc3\xa9"), "0 1 0");
    OK(open_bytes(&t, "{" CHARACTERS GOOD "}", strlen("{" CHARACTERS GOOD "}")));
    ck_assert_int_eq(tokenizer_encode(&ids, &t, "a\xc3\xa9", 3, TOKENIZER_PLAIN), ST_EFORMAT);
    ck_assert_ptr_nonnull(strstr(status_message(), "no token for the character c3 a9"));
    list_tokens_free(&ids);
    tokenizer_close(&t);
}
END_TEST

/* ---- files that are cut off, or changed in one byte ---- */

static const char *const packed[] = {"stories260k.model", "stories260k.bin", "minimind.json"};

/* A .model that is cut off is refused wherever it is cut. In a tokenizer.bin the number of tokens
 * does not stand, so that a cut between two tokens is noticed only before the longest. */
START_TEST(test_cut_off)
{
    char path[TEMP_PATH];
    size_t n, step = _i == 2 ? 4999 : 3;
    char *bytes = temp_folder_read(stored_tokenizer_unpack(path, folder, packed[_i]), &n);
    int failed = 0, tried = 0;

    for (size_t cut = 0; cut < n; cut += step, tried++) {
        struct tokenizer t;

        status_clear();
        if (open_bytes(&t, bytes, cut) == ST_EFORMAT)
            failed++;
        else
            tokenizer_close(&t);
        ck_assert(failed == tried + 1 || _i == 1);
    }
    ck_assert_msg(failed > tried - 30, "%d of %d refused", failed, tried);
    free(bytes);
}
END_TEST

/* The longest token of a tokenizer.bin has the length that the file says, or it was cut off. */
START_TEST(test_longest)
{
    char path[TEMP_PATH];
    struct tokenizer t;
    size_t n;
    char *bytes = temp_folder_read(stored_tokenizer_unpack(path, folder, "stories260k.bin"), &n);

    bytes[0]++;
    ck_assert_int_eq(open_bytes(&t, bytes, n), ST_EFORMAT);
    ck_assert_ptr_nonnull(strstr(status_message(), "longest token has 7 bytes, not 8"));
    free(bytes);
}
END_TEST

/* A file with changed bytes is refused or is a tokenizer that works: it never crashes. */
START_TEST(test_changed)
{
    struct rng_key key = rng_key(17, RNG_TEST, 3);
    char path[TEMP_PATH];
    size_t n;
    char *bytes = temp_folder_read(stored_tokenizer_unpack(path, folder, packed[_i]), &n);

    for (uint64_t round = 0; round < (_i == 2 ? 60 : 1500); round++) {
        size_t at = (size_t)rng_below(&key, 2 * round, n < 20000 ? n : 20000);
        struct token_list ids = {0};
        struct tokenizer t;
        char was = bytes[at];

        bytes[at] = (char)rng_below(&key, 2 * round + 1, 256);
        status_clear();
        if (open_bytes(&t, bytes, n) == ST_OK) {
            struct byte_list text = {0};

            if (tokenizer_encode(&ids, &t, "Once upon\xc3\xa9 a\xff", 13, TOKENIZER_SPECIAL) ==
                ST_OK)
                OK(tokenizer_decode(&text, &t, ids.ids, ids.count, TOKENIZER_SPECIAL));
            list_bytes_free(&text);
            list_tokens_free(&ids);
            tokenizer_close(&t);
        } else {
            ck_assert_ptr_nonnull(strstr(status_message(), folder));
        }
        bytes[at] = was;
    }
    free(bytes);
}
END_TEST

/* ---- use ---- */

struct worker {
    pthread_t thread;
    const struct tokenizer *t;
    const char *text;
    size_t n;
    struct token_list ids;
    enum status st;
};

static void *encode_pieces(void *argument)
{
    struct worker *w = argument;

    for (size_t at = 0; w->st == ST_OK && at < w->n; at += 1000)
        w->st = tokenizer_encode(&w->ids, w->t, w->text + at,
                                 (int64_t)(w->n - at < 1000 ? w->n - at : 1000), TOKENIZER_PLAIN);
    return NULL;
}

/* Several threads share a tokenizer, and all get the same. */
START_TEST(test_threads)
{
    struct worker w[THREADS] = {{0}};
    char path[TEMP_PATH];
    struct tokenizer t;
    size_t n;
    char *text =
        temp_folder_read(temp_folder_source(path, "examples/data/tinyshakespeare/val.txt"), &n);

    stored_tokenizer_open(&t, folder, "minimind.json");
    for (int i = 0; i < THREADS; i++) {
        w[i] = (struct worker){.t = &t, .text = text, .n = n};
        ck_assert(pthread_create(&w[i].thread, NULL, encode_pieces, &w[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(w[i].thread, NULL);
        ck_assert_int_eq(w[i].st, ST_OK);
        ck_assert_int_eq(w[i].ids.count, w[0].ids.count);
        ck_assert(!memcmp(w[i].ids.ids, w[0].ids.ids, (size_t)w[0].ids.count * sizeof(int32_t)));
    }
    for (int i = 0; i < THREADS; i++)
        list_tokens_free(&w[i].ids);
    free(text);
    tokenizer_close(&t);
}
END_TEST

/* 5 MB of one letter, and of one that repeats in threes: would not end if it were quadratic. */
START_TEST(test_long_word)
{
    static const char *const files[] = {"minimind.json", "stories260k.model"};
    struct token_list ids = {0};
    struct byte_list out = {0};
    char *word = malloc(LONG_WORD);
    struct tokenizer t;

    stored_tokenizer_open(&t, folder, files[_i]);
    for (int period = 1; period <= 3; period += 2) {
        for (int i = 0; i < LONG_WORD; i++)
            word[i] = "abc"[i % period];
        ids.count = out.count = 0;
        OK(tokenizer_encode(&ids, &t, word, LONG_WORD, TOKENIZER_PLAIN));
        OK(tokenizer_decode(&out, &t, ids.ids, ids.count, TOKENIZER_PLAIN));
        ck_assert_int_eq(out.count, LONG_WORD);
        ck_assert(memcmp(out.bytes, word, LONG_WORD) == 0);
    }
    free(word);
    list_tokens_free(&ids);
    list_bytes_free(&out);
    tokenizer_close(&t);
}
END_TEST

/* Bytes that are no UTF-8 come back as they were. */
START_TEST(test_any_bytes)
{
    static const char *const files[] = {"minimind.json", "stories260k.model", "mistral-v1.json"};
    struct rng_key key = rng_key(23, RNG_TEST, 3);
    struct token_list ids = {0};
    struct byte_list out = {0};
    unsigned char text[200];
    struct tokenizer t;

    stored_tokenizer_open(&t, folder, files[_i]);
    for (uint64_t round = 0; round < 3000; round++) {
        int64_t n = (int64_t)rng_below(&key, 300 * round, sizeof text);

        for (int64_t i = 0; i < n; i++)
            text[i] = (unsigned char)rng_below(&key, 300 * round + 1 + (uint64_t)i, 256);
        ids.count = out.count = 0;
        OK(tokenizer_encode(&ids, &t, text, n, TOKENIZER_PLAIN));
        OK(tokenizer_decode(&out, &t, ids.ids, ids.count, TOKENIZER_PLAIN));
        ck_assert_int_eq(out.count, n);
        ck_assert(n == 0 || memcmp(out.bytes, text, (size_t)n) == 0);
    }
    list_tokens_free(&ids);
    list_bytes_free(&out);
    tokenizer_close(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokenizer_files");
    TCase *tests = tcase_create("tokenizer_files");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, test_refused);
    tcase_add_test(tests, test_steps);
    tcase_add_test(tests, test_unknown);
    tcase_add_loop_test(tests, test_cut_off, 0, 3);
    tcase_add_test(tests, test_longest);
    tcase_add_loop_test(tests, test_changed, 0, 3);
    tcase_add_test(tests, test_threads);
    tcase_add_loop_test(tests, test_long_word, 0, 2);
    tcase_add_loop_test(tests, test_any_bytes, 0, 3);
    suite_add_tcase(suite, tests);
    return check_unit(suite);
}
