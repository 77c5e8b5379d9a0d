/* Tokenizers of other programs against what those programs made of the same text: all strings of
 * tests/data/tokenizers, and whole texts. */
#include "common/tokenizer/hf_write.h"
#include "tests/unit/check_unit.h"
#include "tests/unit/stored_tokenizer.h"
#include "tests/unit/temp_folder.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

/* What the files are called in the stored answers. nfc: text that is not in normal form changes. */
static const struct {
    const char *key, *file;
    int vocab, begin, end, nfc;
} rows[] = {
    {"gpt2", "gpt2.json", 50257, 50256, 50256, 0},
    {"olmo-neox", "olmo-neox.json", 50280, 50279, 50279, 1},
    {"dolma2", "dolma2.json", 100278, 100257, 100257, 0},
    {"minimind", "minimind.json", 6400, 0, 0, 0},
    {"mistral-v1", "mistral-v1.json", 32000, 1, 2, 0},
    {"mistral-v1", "mistral-v1.model", 32000, 1, 2, 0},
    {"stories260k", "stories260k.bin", 512, 1, 2, 0},
    {"stories260k", "stories260k.model", 512, 1, 2, 0},
};

/* PIECES: the first that is no tokenizer.json. */
enum { ROWS = sizeof rows / sizeof *rows, STRINGS = 243, STORIES = 6, PIECES = 5 };

static char folder[TEMP_PATH];
static struct tokenizer t;

static void setup(void)
{
    temp_folder_make(folder);
    status_clear();
}

static void teardown(void)
{
    tokenizer_close(&t);
    temp_folder_remove(folder);
}

/* Reads the next line of a file of JSON lines; NULL at its end. */
static json_t *next_line(FILE *in)
{
    size_t room = 0;
    char *line = NULL;
    json_t *json = NULL;

    if (getline(&line, &room, in) > 0) {
        json = json_loads(line, JSON_ALLOW_NUL, NULL);
        ck_assert_ptr_nonnull(json);
    }
    free(line);
    return json;
}

/* Compares the ids of a text with the expected list. */
static void assert_ids(struct token_list *ids, const json_t *text, const json_t *expected,
                       unsigned how, const char *what)
{
    ids->count = 0;
    OK(tokenizer_encode(ids, &t, json_string_value(text), (int64_t)json_string_length(text), how));
    ck_assert_msg((size_t)ids->count == json_array_size(expected), "%s, '%s': %lld ids, not %zu",
                  what, json_string_value(text), (long long)ids->count, json_array_size(expected));
    for (int64_t i = 0; i < ids->count; i++)
        ck_assert_msg(ids->ids[i] == json_integer_value(json_array_get(expected, (size_t)i)),
                      "%s, '%s': id %lld is %d", what, json_string_value(text), (long long)i,
                      (int)ids->ids[i]);
}

static void assert_text(const struct token_list *ids, const json_t *expected, unsigned how,
                        const char *what)
{
    struct byte_list out = {0};
    size_t n = json_string_length(expected);

    OK(tokenizer_decode(&out, &t, ids->ids, ids->count, how));
    ck_assert_msg((size_t)out.count == n &&
                      (n == 0 || memcmp(out.bytes, json_string_value(expected), n) == 0),
                  "%s: '%.*s', not '%s'", what, (int)out.count, out.bytes ? out.bytes : "",
                  json_string_value(expected));
    list_bytes_free(&out);
}

/* Merges are lists of two texts, or both in one text with a space between them. */
static void assert_merges(const json_t *pairs, const json_t *texts)
{
    ck_assert_uint_eq(json_array_size(pairs), json_array_size(texts));
    for (size_t i = 0; i < json_array_size(pairs); i++) {
        const json_t *pair = json_array_get(pairs, i);
        char both[128];

        snprintf(both, sizeof both, "%s %s", json_string_value(json_array_get(pair, 0)),
                 json_string_value(json_array_get(pair, 1)));
        ck_assert_msg(!strcmp(both, json_string_value(json_array_get(texts, i))),
                      "merge %zu is '%s'", i, both);
    }
}

/* All strings with the tokenizer that is open: the ids, and the text back. */
static void assert_strings(int row)
{
    struct token_list ids = {0};
    char path[TEMP_PATH];
    FILE *in = fopen(stored_tokenizer_unpack(path, folder, "encodings.jsonl"), "r");
    json_t *json;
    int n = 0;

    ck_assert(t.vocab == rows[row].vocab && t.begin == rows[row].begin && t.end == rows[row].end);
    for (; (json = next_line(in)); n++) {
        const json_t *text = json_object_get(json, "text");
        const json_t *expected = json_object_get(json_object_get(json, "ids"), rows[row].key);

        assert_ids(&ids, text, expected, TOKENIZER_PLAIN, rows[row].key);
        if (!rows[row].nfc)
            assert_text(&ids, text, TOKENIZER_PLAIN, rows[row].key);
        json_decref(json);
    }
    ck_assert_int_eq(n, STRINGS);
    list_tokens_free(&ids);
    fclose(in);
}

START_TEST(test_strings)
{
    stored_tokenizer_open(&t, folder, rows[_i].file);
    assert_strings(_i);
}
END_TEST

/* A tokenizer.json made of pieces has the same ids, and what goes around a text; it is the one that
 * another program made of them. */
START_TEST(test_written)
{
    static const char *const others[ROWS] = {[PIECES] = "mistral-v1.json"};
    char path[TEMP_PATH];
    struct token_list ids = {0};
    json_t *made, *other;

    stored_tokenizer_open(&t, folder, rows[_i].file);
    OK(hf_write(&made, &t, 1));
    ck_assert_ptr_nonnull(made);
    tokenizer_close(&t);
    if (others[_i]) {
        other = json_load_file(stored_tokenizer_unpack(path, folder, others[_i]), 0, NULL);
        ck_assert(json_equal(json_object_get(json_object_get(other, "model"), "vocab"),
                             json_object_get(json_object_get(made, "model"), "vocab")));
        assert_merges(json_object_get(json_object_get(made, "model"), "merges"),
                      json_object_get(json_object_get(other, "model"), "merges"));
        json_decref(other);
    }
    ck_assert_int_eq(json_dump_file(made, temp_folder_path(path, folder, "made.json"), 0), 0);
    json_decref(made);
    OK(tokenizer_open(&t, path));
    assert_strings(_i);
    OK(tokenizer_encode(&ids, &t, "a", 1, TOKENIZER_FRAME));
    ck_assert(ids.count > 1 && ids.ids[0] == rows[_i].begin);
    list_tokens_free(&ids);
}
END_TEST

/* Bytes likewise; a tokenizer that is a tokenizer.json already is not written. */
START_TEST(test_written_bytes)
{
    char path[TEMP_PATH], text[256];
    struct token_list ids = {0};
    json_t *made;

    OK(tokenizer_open(&t, "bytes"));
    OK(hf_write(&made, &t, 1));
    tokenizer_close(&t);
    ck_assert_int_eq(json_dump_file(made, temp_folder_path(path, folder, "made.json"), 0), 0);
    json_decref(made);
    OK(tokenizer_open(&t, path));
    ck_assert_int_eq(t.vocab, TOKENIZER_BYTE_VOCAB);
    for (int i = 0; i < 256; i++)
        text[i] = (char)i;
    OK(tokenizer_encode(&ids, &t, text, 256, TOKENIZER_PLAIN));
    ck_assert_int_eq(ids.count, 256);
    for (int i = 0; i < 256; i++)
        ck_assert_int_eq(ids.ids[i], i);
    list_tokens_free(&ids);
    OK(hf_write(&made, &t, 1));
    ck_assert_ptr_null(made);
}
END_TEST

/* Strings with special tokens in them, read in each way; and written with and without them. */
START_TEST(test_special)
{
    static const struct {
        const char *key;
        unsigned how;
    } ways[] = {{"added_tokens_matched", TOKENIZER_SPECIAL},
                {"with_template", TOKENIZER_SPECIAL | TOKENIZER_FRAME},
                {"as_ordinary_text", TOKENIZER_PLAIN}};
    struct token_list ids = {0};
    char path[TEMP_PATH];
    FILE *in = fopen(temp_folder_source(path, "tests/data/tokenizers/special_tokens.jsonl"), "r");
    json_t *json;
    int n = 0;

    stored_tokenizer_open(&t, folder, rows[_i].file);
    while ((json = next_line(in))) {
        const json_t *text = json_object_get(json, "text");

        if (strcmp(json_string_value(json_object_get(json, "tokenizer")), rows[_i].key) == 0) {
            for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
                if (json_object_get(json, ways[i].key))
                    assert_ids(&ids, text, json_object_get(json, ways[i].key), ways[i].how,
                               ways[i].key);
            assert_ids(&ids, text, json_object_get(json, "added_tokens_matched"), TOKENIZER_SPECIAL,
                       rows[_i].key);
            assert_text(&ids, json_object_get(json, "decode_keep_special"), TOKENIZER_SPECIAL,
                        "keep");
            assert_text(&ids, json_object_get(json, "decode_skip_special"), TOKENIZER_PLAIN,
                        "skip");
            n++;
        }
        json_decref(json);
    }
    ck_assert_int_gt(n, 2);
    list_tokens_free(&ids);
    fclose(in);
}
END_TEST

/* The SHA-256 of the ids, 4 bytes each, as `sha256sum` prints it. */
static void sha256(char hex[65], const struct token_list *ids)
{
    char path[TEMP_PATH], command[TEMP_PATH + 32];
    FILE *out;

    temp_folder_write(temp_folder_path(path, folder, "ids"), ids->ids, (size_t)ids->count * 4);
    snprintf(command, sizeof command, "sha256sum < '%s'", path);
    out = popen(command, "r"); /* NOLINT(cert-env33-c) */
    ck_assert(out && fgets(hex, 65, out));
    pclose(out);
}

/* Whole texts of the examples, against the stored number of ids and their SHA-256. */
START_TEST(test_texts)
{
    char path[TEMP_PATH], name[TEMP_PATH], hex[65];
    json_t *all = json_load_file(
        temp_folder_source(path, "tests/data/tokenizers/corpus_digests.json"), 0, NULL);
    struct token_list ids = {0};
    const json_t *each;
    size_t i, n;
    int found = 0;

    stored_tokenizer_open(&t, folder, rows[_i].file);
    json_array_foreach(all, i, each)
    {
        const char *file = json_string_value(json_object_get(each, "file"));
        const json_t *expected = json_object_get(json_object_get(each, "enc"), rows[_i].key);
        char *text;

        if (strncmp(file, "tinyshakespeare/", 16) != 0)
            continue;
        snprintf(name, sizeof name, "examples/data/%s", file);
        text = temp_folder_read(temp_folder_source(path, name), &n);
        ids.count = 0;
        OK(tokenizer_encode(&ids, &t, text, (int64_t)n, TOKENIZER_PLAIN));
        ck_assert_int_eq(ids.count, json_integer_value(json_object_get(expected, "tokens")));
        sha256(hex, &ids);
        ck_assert_str_eq(hex, json_string_value(json_object_get(expected, "sha256_u32le")));
        free(text);
        found++;
    }
    ck_assert_int_eq(found, 2);
    list_tokens_free(&ids);
    json_decref(all);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokenizer_golden");
    TCase *tests = tcase_create("tokenizer_golden");

    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, test_strings, 0, ROWS);
    tcase_add_loop_test(tests, test_written, PIECES, ROWS);
    tcase_add_test(tests, test_written_bytes);
    tcase_add_loop_test(tests, test_special, 0, STORIES); /* there are none for the last two */
    tcase_add_loop_test(tests, test_texts, 0, ROWS);
    suite_add_tcase(suite, tests);
    return check_unit(suite);
}
