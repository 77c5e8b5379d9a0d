/* Places where long texts are cut: the parts, encoded one by one, have the ids of the whole. */
#include "tests/unit/check_unit.h"
#include "tests/unit/stored_tokenizer.h"
#include "tests/unit/temp_folder.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

enum { TEXT = 400, TEXTS = 250 };

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

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 16;
}

/* Words, spaces and marks that tokenizers treat each in its way; some join or change when normal
 * forms are made, some are added tokens of the stored tokenizers. */
static int64_t draw_text(char *text, uint32_t *state)
{
    static const char *const parts[] = {"a",
                                        "be",
                                        "See",
                                        "Once",
                                        "1",
                                        "23",
                                        "4567",
                                        " ",
                                        " ",
                                        " ",
                                        " ",
                                        " ",
                                        "  ",
                                        "    ",
                                        "\n",
                                        "\n\n",
                                        "\r\n",
                                        "\t",
                                        "'",
                                        "'s",
                                        "'ll",
                                        "'RE",
                                        ".",
                                        ", ",
                                        "--",
                                        "!\n",
                                        "_",
                                        "\u00e9",
                                        "e\u0301",
                                        "\u0301",
                                        "\u212b",
                                        "\uac00",
                                        "\u4e2d",
                                        "\u3002",
                                        "\u2581",
                                        "\u00a0",
                                        "\u3000",
                                        "\u0663",
                                        "\ufb01",
                                        "\U0001f600",
                                        "<s>",
                                        "</s>",
                                        "<|endoftext|>",
                                        "|||IP_ADDRESS|||",
                                        "<0x0A>",
                                        "\u1100\u1161",
                                        "\u017f",
                                        "x"};
    int64_t n = 0;

    while (n < TEXT - 20) {
        const char *part = parts[next_random(state) % (sizeof parts / sizeof *parts)];

        memcpy(text + n, part, strlen(part));
        n += (int64_t)strlen(part);
    }
    return n;
}

/* Cuts text at the last border of its first `known` bytes and compares. Returns 0 for no border. */
static int check_cut(const struct tokenizer *t, const char *text, int64_t n, int64_t known)
{
    struct token_list whole = {0}, parts = {0};
    int64_t next = -1, at = tokenizer_border(&next, t, text, known, 1);

    if (at < 0)
        return 0;
    ck_assert(at >= 1 && at < known && next >= at && next < known);
    OK(tokenizer_encode(&whole, t, text, n, TOKENIZER_PLAIN));
    OK(tokenizer_encode(&parts, t, text, at, TOKENIZER_PLAIN));
    OK(tokenizer_encode(&parts, t, text + next, n - next, TOKENIZER_PLAIN));
    ck_assert_msg(whole.count == parts.count &&
                      memcmp(whole.ids, parts.ids, (size_t)whole.count * sizeof *whole.ids) == 0,
                  "%s: cut at %lld of %.*s", t->name, (long long)at, (int)n, text);
    list_tokens_free(&whole);
    list_tokens_free(&parts);
    return 1;
}

/* Number of borders found in random texts, all of them checked: behind each one, what follows is
 * random too. */
static int check_borders(const struct tokenizer *t)
{
    uint32_t state = 7;
    int found = 0;

    for (int i = 0; i < TEXTS; i++) {
        char text[TEXT];
        int64_t n = draw_text(text, &state);

        for (int64_t known = 1; known <= n; known += 1 + next_random(&state) % 9)
            if ((text[known % n] & 0xc0) != 0x80)
                found += check_cut(t, text, n, known);
    }
    return found;
}

START_TEST(test_stored)
{
    static const char *const names[] = {"gpt2.json",       "olmo-neox.json",   "dolma2.json",
                                        "minimind.json",   "mistral-v1.json",  "mistral-v1.model",
                                        "stories260k.bin", "stories260k.model"};
    struct tokenizer t;
    int found;

    stored_tokenizer_open(&t, folder, names[_i]);
    ck_assert(t.border != NULL);
    found = check_borders(&t);
    ck_assert_msg(found > 300, "%s: %d borders", names[_i], found);
    tokenizer_close(&t);
}
END_TEST

/* A tokenizer.json of these parts; its tokens are the ASCII characters and what is given. */
static void open_made(struct tokenizer *t, const char *parts, const char *more)
{
    char path[TEMP_PATH], *text = malloc(16384);
    int n = snprintf(text, 16384, "{%s,\"model\":{\"type\":\"BPE\",\"unk_token\":\"a\",\"vocab\":{",
                     parts);

    ck_assert_ptr_nonnull(text);
    for (int c = 33; c < 127; c++)
        n += snprintf(text + n, 16384 - (size_t)n, "%s\"%s%c\":%d", c > 33 ? "," : "",
                      c == '"' || c == '\\' ? "\\" : "", c, c - 33);
    snprintf(text + n, 16384 - (size_t)n, "%s},\"merges\":[]}}", more);
    temp_folder_path(path, folder, "made.json");
    temp_folder_write(path, text, strlen(text));
    free(text);
    status_clear();
    OK(tokenizer_open(t, path));
}

#define BYTES(prefix)                                                                              \
    "\"decoder\":{\"type\":\"ByteLevel\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_" \
    "space\":" prefix "}"
#define MARKED                                                                                     \
    "\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\u2581\"},\"pre_tokenizer\":{\"type\":" \
    "\"Metaspace\",\"replacement\":\"\u2581\",\"prepend_scheme\":"

/* What changes or takes along what stands near: a space before the text, added tokens that strip or
 * stand alone, normal forms; and what is not known to have borders. */
START_TEST(test_made)
{
    static const struct {
        const char *parts, *more;
        int borders;
    } made[] = {
        {BYTES("true") ",\"normalizer\":{\"type\":\"NFKC\"}", "", 1},
        {BYTES(
             "false") ",\"normalizer\":{\"type\":\"NFD\"},\"added_tokens\":[{\"id\":94,\"content\":"
                      "\"Once 1\",\"lstrip\":true,\"rstrip\":true},{\"id\":95,\"content\":"
                      "\"e be\",\"single_word\":true},{\"id\":96,\"content\":\"a  "
                      "\",\"special\":true}]",
         "", 1},
        {BYTES("false") ",\"added_tokens\":[{\"id\":94,\"content\":\"See \",\"normalized\":false,"
                        "\"rstrip\":true},{\"id\":95,\"content\":\"'s\",\"lstrip\":true}]",
         "", 1},
        {MARKED "\"first\"}", ",\"\u2581\":94", 1},
        {MARKED
         "\"always\"},\"added_tokens\":[{\"id\":95,\"content\":\"be 1\",\"normalized\":false}]",
         ",\"\u2581\":94", 1},
        {MARKED "\"never\"}", ",\"\u2581\":94", 1},
        {MARKED "\"never\"},\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a \"},"
                "\"content\":\"b\"}",
         ",\"\u2581\":94", 0},
        {"\"decoder\":{\"type\":\"ByteLevel\"},\"pre_tokenizer\":{\"type\":\"Sequence\","
         "\"pretokenizers\":["
         "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a-z]+ ?\"},\"behavior\":\"Isolated\"},"
         "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}",
         "", 0}};
    struct tokenizer t;

    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        open_made(&t, made[i].parts, made[i].more);
        ck_assert_msg((t.border != NULL) == made[i].borders, "made %zu", i);
        ck_assert_msg(!made[i].borders || check_borders(&t) > 2000, "made %zu", i);
        tokenizer_close(&t);
    }
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("tokenizer border");
    TCase *c = tcase_create("border");

    tcase_set_timeout(c, 120);
    tcase_add_checked_fixture(c, setup, teardown);
    tcase_add_loop_test(c, test_stored, 0, 8);
    tcase_add_test(c, test_made);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return check_unit(suite());
}
