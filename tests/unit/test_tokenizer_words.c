/* The parts of tokenizers against independent witnesses: cutting by hand against PCRE2, merging
 * against the definition, normal forms in pieces against the whole text. */
#include "common/base/rng.h"
#include "common/tokenizer/added.h"
#include "common/tokenizer/bpe.h"
#include "common/tokenizer/edit.h"
#include "common/tokenizer/pattern.h"
#include "common/tokenizer/scan.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

enum { LENGTH = 64, PLANES = 0x32400 /* above: nothing but private use, and marks */ };

/* ---- characters and words ---- */

/* The class that PCRE2 gives a code point, or -1 for one that it has not heard of: the two
 * libraries follow Unicode at their own pace. */
static int pcre2_class(int32_t code)
{
    static const char *const texts[] = {"\\p{Cn}", "\\p{L}", "\\p{N}", "\\s"};
    static struct pattern classes[4];
    static struct pattern_scratch scratch;
    unsigned char text[4];
    int64_t n = utf8proc_encode_char(code, text), begin, end;

    for (int i = 0; i < 4; i++) {
        if (!classes[i].code)
            OK(pattern_open(&classes[i], texts[i], strlen(texts[i])));
        OK(pattern_next(&begin, &end, &classes[i], &scratch, text, n, 0));
        if (end > begin)
            return i ? i : -1;
    }
    return SCAN_OTHER;
}

START_TEST(test_classes)
{
    int unknown = 0;

    for (int32_t code = 0; code < PLANES; code++) {
        int expected = code >= 0xd800 && code < 0xe000 ? SCAN_OTHER : pcre2_class(code);

        if (expected < 0)
            unknown += scan_class(code) != SCAN_OTHER;
        else
            ck_assert_msg((int)scan_class(code) == expected, "U+%04X: %d, not %d", (unsigned)code,
                          (int)scan_class(code), expected);
    }
    ck_assert_int_lt(unknown, 10000); /* what the younger of the two tables has more */
}
END_TEST

/* A random text of what the patterns speak about; every fourth with characters of all scripts. */
static int64_t random_text(unsigned char *out, uint64_t seed, int most)
{
    static const char *const parts[] = {"a",
                                        "B",
                                        "s",
                                        "S",
                                        "t",
                                        "l",
                                        "r",
                                        "e",
                                        "V",
                                        "1",
                                        "2",
                                        "9",
                                        "\xc2\xbd",
                                        "'",
                                        "'",
                                        "'",
                                        " ",
                                        " ",
                                        " ",
                                        "\n",
                                        "\r",
                                        "\t",
                                        "\v",
                                        ".",
                                        "!",
                                        "-",
                                        "_",
                                        "\xc5\xbf",
                                        "\xc2\xa0",
                                        "\xe3\x80\x80",
                                        "\xe1\xa0\x8e",
                                        "\xe2\x80\xa8",
                                        "\xcc\x81",
                                        "\xc3\xa9",
                                        "\xd9\xa3",
                                        "\xe4\xb8\xad",
                                        "\xf0\x9f\x98\x80",
                                        "\xc2\x85"};
    struct rng_key key = rng_key(seed, RNG_TEST, 7);
    uint64_t n = rng_below(&key, 0, (uint64_t)most), at = 0;

    for (uint64_t i = 0; i < n; i++) {
        const char *part = parts[rng_below(&key, 2 * i + 1, sizeof parts / sizeof *parts)];
        int32_t code = (int32_t)rng_below(&key, 2 * i + 2, 0x3000);

        if (seed % 4 == 0 && i % 3 == 0 && pcre2_class(code) >= 0) {
            at += (uint64_t)utf8proc_encode_char(code, out + at);
        } else {
            memcpy(out + at, part, strlen(part));
            at += strlen(part);
        }
    }
    return (int64_t)at;
}

/* The words of random texts, by hand and by the expression. */
START_TEST(test_words)
{
    static const struct {
        const char *text;
        int digits; /* 0: GPT-2 */
    } rows[] = {{SCAN_GPT2, 0}, {SCAN_CL100K("{1,3}"), 3}, {SCAN_CL100K(""), 1}};
    struct pattern_scratch scratch = {0};
    unsigned char text[4 * LENGTH];
    struct pattern p;
    int64_t begin, end, by_hand, words = 0;
    int digits = rows[_i].digits;

    OK(pattern_open(&p, rows[_i].text, strlen(rows[_i].text)));
    for (uint64_t seed = 1; seed <= 20000; seed++) {
        int64_t n = random_text(text, seed, LENGTH);

        for (int64_t at = 0; at < n; at = end, words++) {
            OK(pattern_next(&begin, &end, &p, &scratch, text, n, at));
            by_hand = digits ? scan_cl100k(text, n, at, digits) : scan_gpt2(text, n, at);
            ck_assert_msg(begin == at && by_hand == end,
                          "text %llu, '%.*s': word at %d ends at %d, "
                          "by hand at %d",
                          (unsigned long long)seed, (int)n, (const char *)text, (int)at, (int)end,
                          (int)by_hand);
        }
    }
    ck_assert_int_gt(words, 100000);
    pattern_scratch_free(&scratch);
    pattern_close(&p);
}
END_TEST

/* Bytes that are no UTF-8 are characters of the class "other", and all of the text is covered. */
START_TEST(test_bad_utf8)
{
    struct rng_key key = rng_key(3, RNG_TEST, 9);
    unsigned char text[LENGTH];

    for (uint64_t round = 0; round < 20000; round++) {
        int64_t n = 1 + (int64_t)rng_below(&key, 100 * round, LENGTH - 1);

        for (int64_t i = 0; i < n; i++)
            text[i] = (unsigned char)rng_below(&key, 100 * round + (uint64_t)i + 1, 256);
        for (int64_t at = 0, end = 0; at < n; at = end) {
            end = round % 2 ? scan_gpt2(text, n, at) : scan_cl100k(text, n, at, 3);
            ck_assert(end > at && end <= n);
        }
    }
    ck_assert_int_eq(scan_gpt2((const unsigned char *)"\xff\xfe!a", 4, 0), 3);
}
END_TEST

/* ---- merging ---- */

/* The definition: the lowest rank, the leftmost first, over and over. */
static int64_t merge_slowly(int32_t *ids, int64_t n, const struct bpe *b, const int32_t *rank)
{
    for (;;) {
        int64_t best = -1;

        for (int64_t i = 0; i + 1 < n; i++) {
            int32_t made = bpe_made(b, ids[i], ids[i + 1]);

            if (made >= 0 && (best < 0 || rank[made] < rank[bpe_made(b, ids[best], ids[best + 1])]))
                best = i;
        }
        if (best < 0)
            return n;
        ids[best] = bpe_made(b, ids[best], ids[best + 1]);
        memmove(ids + best + 1, ids + best + 2, (size_t)(n - best - 2) * sizeof *ids);
        n--;
    }
}

/* Random merges (ranks in no order, some shared) on random words, short and long. */
START_TEST(test_merging)
{
    enum { LETTERS = 3, TOKENS = 60, WORD = 300 };
    struct bpe_scratch scratch = {0};

    for (uint64_t round = 0; round < 400; round++) {
        struct rng_key key = rng_key(round, RNG_TEST, 11);
        int32_t rank[TOKENS] = {0}, ids[WORD], copy[WORD];
        struct bpe b;

        OK(bpe_open(&b, TOKENS));
        for (int32_t id = LETTERS; id < TOKENS; id++) {
            rank[id] = (int32_t)rng_below(&key, (uint64_t)(3 * id), 40);
            bpe_add(&b, (int32_t)rng_below(&key, (uint64_t)(3 * id + 1), (uint64_t)id),
                    (int32_t)rng_below(&key, (uint64_t)(3 * id + 2), (uint64_t)id), id, rank[id]);
        }
        for (uint64_t word = 0; word < 20; word++) {
            int64_t n = (int64_t)rng_below(&key, 1000 + word, word < 10 ? 32 : WORD), m = n;

            for (int64_t i = 0; i < n; i++)
                copy[i] = ids[i] =
                    (int32_t)rng_below(&key, 10000 + 400 * word + (uint64_t)i, LETTERS);
            OK(bpe_run(ids, &m, &b, &scratch));
            n = merge_slowly(copy, n, &b, rank);
            ck_assert_msg(m == n && memcmp(ids, copy, (size_t)n * sizeof *ids) == 0,
                          "round %d, word %d", (int)round, (int)word);
        }
        bpe_close(&b);
    }
    bpe_scratch_free(&scratch);
}
END_TEST

/* ---- normal forms ---- */

/* The form of the whole text at once, by utf8proc. */
static void assert_form(const struct edits *e, struct byte_list buffer[2],
                        const unsigned char *text, int64_t n, utf8proc_option_t options)
{
    const unsigned char *got = text;
    utf8proc_uint8_t *whole;
    int64_t m = n, length = utf8proc_map(text, n, &whole, UTF8PROC_STABLE | options);

    ck_assert_int_ge(length, 0);
    OK(edit_run(&got, &m, e, buffer, 1));
    ck_assert_msg(m == length && memcmp(got, whole, (size_t)m) == 0, "'%.*s': '%.*s', not '%s'",
                  (int)n, (const char *)text, (int)m, (const char *)got, (const char *)whole);
    free(whole);
}

START_TEST(test_normal_forms)
{
    static const struct {
        enum edit_kind kind;
        utf8proc_option_t options;
    } rows[] = {{EDIT_NFC, UTF8PROC_COMPOSE},
                {EDIT_NFD, UTF8PROC_DECOMPOSE},
                {EDIT_NFKC, UTF8PROC_COMPOSE | UTF8PROC_COMPAT},
                {EDIT_NFKD, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT}};
    struct byte_list buffer[2] = {{0}, {0}};
    struct edits e = {0};
    unsigned char text[8 * LENGTH];

    OK(edit_add(&e, rows[_i].kind, NULL, NULL));
    for (int32_t code = 1; code < PLANES; code++) { /* every character, after an e */
        int64_t n;

        if (code >= 0xd800 && code < 0xe000)
            continue;
        text[0] = 'e';
        n = 1 + utf8proc_encode_char(code, text + 1);
        assert_form(&e, buffer, text, n, rows[_i].options);
    }
    for (uint64_t seed = 0; seed < 6000; seed++) {
        struct rng_key key = rng_key(seed, RNG_TEST, 13);
        int64_t n = 0;

        for (uint64_t i = 0; i < 12; i++) {
            int32_t base = rng_below(&key, 3 * i, 3) ? 0 : 0x1100 * (int32_t)(seed % 3);
            int32_t code = base + (int32_t)rng_below(&key, 3 * i + 1, 0x380);

            n += utf8proc_encode_char(code ? code : 'e', text + n);
        }
        assert_form(&e, buffer, text, n, rows[_i].options);
    }
    list_bytes_free(&buffer[0]);
    list_bytes_free(&buffer[1]);
}
END_TEST

START_TEST(test_spaces)
{
    static const struct {
        enum edit_kind kind;
        const char *in, *out;
    } rows[] = {{EDIT_ONE_SPACE, "  a  b   c ", "a b c"},
                {EDIT_ONE_SPACE, "   ", ""},
                {EDIT_ONE_SPACE, "a", "a"},
                {EDIT_PREPEND, "a", "_a"},
                {EDIT_PREPEND, "_a", "__a"},
                {EDIT_PREPEND, "", ""},
                {EDIT_LEAD, "a", "_a"},
                {EDIT_LEAD, "_a", "_a"},
                {EDIT_REPLACE, " a  b ", "_a__b_"},
                {EDIT_REPLACE, "ab", "ab"}};
    struct byte_list buffer[2] = {{0}, {0}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const unsigned char *text = (const unsigned char *)rows[i].in;
        int64_t n = (int64_t)strlen(rows[i].in);
        struct edits e = {0};

        OK(edit_add(&e, rows[i].kind, rows[i].kind == EDIT_REPLACE ? " " : NULL, "_"));
        OK(edit_run(&text, &n, &e, buffer, 1));
        ck_assert_msg((size_t)n == strlen(rows[i].out) && !memcmp(text, rows[i].out, (size_t)n),
                      "row %zu: '%.*s'", i, (int)n, (const char *)text);
    }
    list_bytes_free(&buffer[0]);
    list_bytes_free(&buffer[1]);
}
END_TEST

/* ---- added tokens ---- */

/* Longest first, lstrip, rstrip, single_word, special only when asked for. */
START_TEST(test_added)
{
    static struct added_token tokens[] = {{.id = 1, .n = 3, .text = "<a>", .special = 1},
                                          {.id = 2, .n = 5, .text = "<a>bc"},
                                          {.id = 3, .n = 3, .text = "<l>", .lstrip = 1},
                                          {.id = 4, .n = 3, .text = "<r>", .rstrip = 1},
                                          {.id = 5, .n = 2, .text = "wo", .single_word = 1}};
    static const struct {
        const char *text;
        int special, id, begin, end;
    } rows[] = {{"x<a>y", 1, 1, 1, 4},     {"x<a>y", 0, -1, 5, 5},   {"<a>bc", 1, 2, 0, 5},
                {"<a>b<a>bc", 0, 2, 4, 9}, {"x \t<l> ", 1, 3, 1, 6}, {"x<r> \xc2\xa0y", 1, 4, 1, 7},
                {"two wo", 0, 5, 4, 6},    {"wow", 0, -1, 3, 3},     {"\xc3\xa9wo", 0, -1, 4, 4},
                {"-wo-", 0, 5, 1, 3}};
    struct added a = {0};

    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++)
        OK(added_put(&a, &tokens[i]));
    OK(added_seal(&a));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t begin, end;
        const struct added_token *t =
            added_next(&begin, &end, &a, (const unsigned char *)rows[i].text,
                       (int64_t)strlen(rows[i].text), 0, rows[i].special);

        ck_assert_msg((t ? t->id : -1) == rows[i].id && begin == rows[i].begin &&
                          end == rows[i].end,
                      "row %zu: %d at [%d, %d)", i, t ? (int)t->id : -1, (int)begin, (int)end);
    }
    added_close(&a);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokenizer_words");
    TCase *tests = tcase_create("tokenizer_words");

    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, test_classes);
    tcase_add_loop_test(tests, test_words, 0, 3);
    tcase_add_test(tests, test_bad_utf8);
    tcase_add_test(tests, test_merging);
    tcase_add_loop_test(tests, test_normal_forms, 0, 4);
    tcase_add_test(tests, test_spaces);
    tcase_add_test(tests, test_added);
    suite_add_tcase(suite, tests);
    return check_unit(suite);
}
