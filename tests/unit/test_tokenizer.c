/* UTF-8 and the byte tokenizer. */
#include "common/base/rng.h"
#include "common/base/utf8.h"
#include "common/tokenizer/decoder.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <string.h>

#define UTF8(text) utf8_invalid((const unsigned char *)(text), sizeof(text) - 1)

/* Every byte string of up to three bytes, counted: 128 + 1920 + 61440 of them are characters. */
START_TEST(test_utf8_short)
{
    int64_t count[5] = {0};

    for (uint32_t x = 0; x < 1u << 24; x++) {
        unsigned char text[3] = {(unsigned char)(x >> 16), (unsigned char)(x >> 8),
                                 (unsigned char)x};
        size_t length = utf8_length(text, 3);

        count[length]++;
        if (length == 3)
            ck_assert_uint_eq(utf8_length(text, 2), 0);
    }
    ck_assert_int_eq(count[1], INT64_C(128) << 16);
    ck_assert_int_eq(count[2], INT64_C(1920) << 8);
    ck_assert_int_eq(count[3], 61440);
    ck_assert_int_eq(count[4], 0);
}
END_TEST

/* Four bytes: all leads and second bytes, the edges of the others. 0x100000 / 64^2 pairs of lead
 * and second byte are right, and 0x80 and 0xbf of the six others each. */
START_TEST(test_utf8_long)
{
    static const unsigned char edges[6] = {0x00, 0x7f, 0x80, 0xbf, 0xc0, 0xff};
    int64_t count = 0;

    for (unsigned lead = 0xf0; lead < 256; lead++)
        for (unsigned second = 0; second < 256; second++)
            for (int i = 0; i < 36; i++) {
                unsigned char text[4] = {(unsigned char)lead, (unsigned char)second, edges[i / 6],
                                         edges[i % 6]};

                count += utf8_length(text, 4) == 4;
                ck_assert_uint_eq(utf8_length(text, 3), 0);
            }
    ck_assert_int_eq(count, 256 * 4);
}
END_TEST

START_TEST(test_utf8_places)
{
    ck_assert_uint_eq(UTF8(""), 0);
    ck_assert_uint_eq(UTF8("plain\n"), 6);
    ck_assert_uint_eq(UTF8("na\xc3\xafve \xe2\x82\xac \xf0\x9f\x98\x80"), 15);
    ck_assert_uint_eq(UTF8("ab\xff"), 2);
    ck_assert_uint_eq(UTF8("ab\xe2\x82"), 2);
    ck_assert_uint_eq(UTF8("\xc0\x80"), 0);
    ck_assert_uint_eq(UTF8("x\xed\xa0\x80"), 1);
    ck_assert_uint_eq(UTF8("x\xf4\x90\x80\x80"), 1);
    ck_assert_uint_eq(UTF8("a\0b\x80"), 3);
}
END_TEST

static void open_bytes(struct tokenizer *t)
{
    ck_assert_int_eq(tokenizer_open(t, "bytes"), ST_OK);
}

/* decode(encode(x)) = x for random strings of every length to 600 and for all bytes. */
START_TEST(test_round_trip)
{
    struct rng_key key = rng_key(1, RNG_TEST, 5);
    struct token_list ids = {0};
    struct byte_list out = {0};
    struct tokenizer t;
    char in[600];

    open_bytes(&t);
    for (int64_t n = 0; n <= 600; n++) {
        for (int64_t i = 0; i < n; i++)
            in[i] = (char)(n == 256 ? (uint64_t)i : rng_below(&key, (uint64_t)(600 * n + i), 256));
        ids.count = out.count = 0;
        ck_assert_int_eq(tokenizer_encode(&ids, &t, in, n, TOKENIZER_SPECIAL | TOKENIZER_FRAME),
                         ST_OK);
        ck_assert_int_eq(ids.count, n);
        for (int64_t i = 0; i < n; i++)
            ck_assert_int_eq(ids.ids[i], (unsigned char)in[i]);
        ck_assert_int_eq(tokenizer_decode(&out, &t, ids.ids, n, TOKENIZER_PLAIN), ST_OK);
        ck_assert_int_eq(out.count, n);
        ck_assert(n == 0 || memcmp(in, out.bytes, (size_t)n) == 0);
    }
    list_tokens_free(&ids);
    list_bytes_free(&out);
    tokenizer_close(&t);
}
END_TEST

START_TEST(test_special)
{
    static const int32_t ids[] = {256, 'H', 'i', 257, 258};
    struct byte_list out = {0};
    struct tokenizer t;

    open_bytes(&t);
    ck_assert_int_eq(t.vocab, 259);
    ck_assert(t.begin == 256 && t.end == 257 && t.pad == 258);
    ck_assert_int_eq(tokenizer_decode(&out, &t, ids, 5, TOKENIZER_PLAIN), ST_OK);
    ck_assert_int_eq(out.count, 2);
    ck_assert_mem_eq(out.bytes, "Hi", 2);
    ck_assert_int_eq(tokenizer_decode(&out, &t, ids, 5, TOKENIZER_SPECIAL), ST_OK);
    ck_assert_int_eq(out.count, 21);
    ck_assert_mem_eq(out.bytes, "Hi<begin>Hi<end><pad>", 21);
    ck_assert_int_eq(tokenizer_find(&t, "<end>", 5), 257);
    ck_assert_int_eq(tokenizer_find(&t, "H", 1), 'H');
    ck_assert_int_eq(tokenizer_find(&t, "Hi", 2), -1);
    list_bytes_free(&out);
    tokenizer_close(&t);
}
END_TEST

/* What comes out, piece by piece, is whole characters; bytes that are none do not wait. */
START_TEST(test_decoder)
{
    static const struct {
        const char *in, *out[6]; /* out[i]: after byte i; the last: at the end */
    } rows[] = {{"a\xc3\xa9", {"a", "", "\xc3\xa9", ""}},
                {"\xe2\x82\xac", {"", "", "\xe2\x82\xac", ""}},
                {"\xf0\x9f\x98\x80", {"", "", "", "\xf0\x9f\x98\x80", ""}},
                {"\xe2\x82x", {"", "", "\xe2\x82x", ""}},
                {"\xe2\xc3\xa9", {"", "\xe2", "\xc3\xa9", ""}},
                {"\x80\xbf", {"\x80", "\xbf", ""}},
                {"x\xf0\x9f", {"x", "", "", "\xf0\x9f"}}};
    struct tokenizer t;

    open_bytes(&t);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct decoder d = decoder_begin(&t, TOKENIZER_PLAIN);
        size_t n = strlen(rows[i].in);

        for (size_t j = 0; j <= n; j++) {
            struct byte_list out = {0};

            ck_assert_int_eq(j < n ? decoder_add(&out, &d, (unsigned char)rows[i].in[j])
                                   : decoder_end(&out, &d),
                             ST_OK);
            ck_assert_msg(out.count == (int64_t)strlen(rows[i].out[j]) &&
                              (!out.count || !memcmp(out.bytes, rows[i].out[j], (size_t)out.count)),
                          "row %zu, byte %zu", i, j);
            list_bytes_free(&out);
        }
    }
    tokenizer_close(&t);
}
END_TEST

START_TEST(test_names)
{
    static const struct {
        int32_t id;
        const char *name;
    } rows[] = {{'A', "A"},      {' ', " "},      {'\n', "\\x0a"},  {0, "\\x00"},   {0xc3, "\\xc3"},
                {0x7f, "\\x7f"}, {'\\', "\\x5c"}, {256, "<begin>"}, {257, "<end>"}, {258, "<pad>"}};
    struct tokenizer t;
    char name[16], tiny[3];

    open_bytes(&t);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_int_eq(tokenizer_name(name, sizeof name, &t, rows[i].id), ST_OK);
        ck_assert_str_eq(name, rows[i].name);
    }
    ck_assert_int_eq(tokenizer_name(tiny, sizeof tiny, &t, '\n'), ST_OK);
    ck_assert_str_eq(tiny, "\\x");
    tokenizer_close(&t);
}
END_TEST

START_TEST(test_refused)
{
    static const int32_t bad[][2] = {{65, 259}, {65, -1}, {65, INT32_MAX}, {65, INT32_MIN}};
    struct byte_list text = {0};
    struct tokenizer t, none;
    char out[16];

    open_bytes(&t);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        status_clear();
        ck_assert_int_eq(tokenizer_decode(&text, &t, bad[i], 2, TOKENIZER_PLAIN), ST_EFORMAT);
        ck_assert_ptr_nonnull(strstr(status_message(), "token 1 has id"));
        ck_assert_ptr_nonnull(strstr(status_message(), "0 to 258"));
        ck_assert_int_eq(tokenizer_name(out, sizeof out, &t, bad[i][1]), ST_EFORMAT);
    }
    status_clear();
    ck_assert_int_eq(tokenizer_open(&none, "byte-pair"), ST_ECONFIG);
    ck_assert_ptr_nonnull(strstr(status_message(), "'byte-pair'"));
    ck_assert_ptr_nonnull(strstr(status_message(), "bytes"));
    list_bytes_free(&text);
    tokenizer_close(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tokenizer");
    TCase *tests = tcase_create("tokenizer");

    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, test_utf8_short);
    tcase_add_test(tests, test_utf8_long);
    tcase_add_test(tests, test_utf8_places);
    tcase_add_test(tests, test_round_trip);
    tcase_add_test(tests, test_special);
    tcase_add_test(tests, test_decoder);
    tcase_add_test(tests, test_names);
    tcase_add_test(tests, test_refused);
    suite_add_tcase(suite, tests);
    return check_unit(suite);
}
