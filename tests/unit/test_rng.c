/* Random numbers, the elementary functions under them, and hashes. */
#include "common/base/elementary.h"
#include "common/base/hash.h"
#include "common/base/rng.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct rng_key test_key(void)
{
    return rng_key(1, RNG_TEST, 0);
}

/* Known answers of Philox4x32-10 (Random123's own test vectors). */
START_TEST(test_philox_vectors)
{
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const uint32_t *c = rows[i].counter;
        struct rng_key key = {{rows[i].key[0], rows[i].key[1], c[2], c[3]}};
        uint32_t got[4];

        rng_block(got, &key, (uint64_t)c[1] << 32 | c[0], 0);
        for (int j = 0; j < 4; j++)
            ck_assert_uint_eq(got[j], rows[i].want[j]);
    }
}
END_TEST

/* Computed apart, in Python with 120 bits: what a seed means must not change unnoticed. */
START_TEST(test_key_and_lane)
{
    static const uint32_t words[4] = {0x6ea75acb, 0x0c7a63e2, 0x6437a389, 0x5a635225};
    static const uint32_t block[4] = {0xd93d8345, 0xbe04eca9, 0xb4eb3e15, 0x43cb9f7f};
    struct rng_key key = rng_key(42, RNG_INIT, hash_text("layers.0.attn.q.A"));
    uint32_t got[4];

    ck_assert_mem_eq(key.word, words, sizeof words);
    rng_block(got, &key, 5, 7);
    ck_assert_mem_eq(got, block, sizeof block);
}
END_TEST

START_TEST(test_normal_values)
{
    static const struct {
        uint64_t index;
        double want;
    } rows[] = {{0, -1.0831986022912558969},
                {1, 0.098035130978052629573},
                {2, -0.14077153626634470049},
                {3, 1.5886526944947046466},
                {UINT64_C(1000000000001), -1.452425533164237347}};
    struct rng_key key = rng_key(42, RNG_INIT, hash_text("layers.0.attn.q.A"));

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double got = rng_normal(&key, rows[i].index);

        ck_assert_double_eq_tol(got, rows[i].want, 4e-15);
    }
}
END_TEST

/* The bits themselves, as this code gives them on every machine. */
START_TEST(test_normal_bits)
{
    struct rng_key key = test_key();
    struct hash h;
    double *z = malloc(100000 * sizeof *z);

    ck_assert_ptr_nonnull(z);
    rng_normal_fill64(z, &key, 0, 100000, 0.02);
    hash_begin(&h);
    hash_add(&h, z, 100000 * sizeof *z);
    ck_assert_uint_eq(hash_value(&h), UINT64_C(12118866873433516530));
    free(z);
}
END_TEST

START_TEST(test_streams_differ)
{
    struct rng_key a = rng_key(1, RNG_INIT, 7);
    struct rng_key others[] = {rng_key(2, RNG_INIT, 7), rng_key(UINT64_C(1) << 32 | 1, RNG_INIT, 7),
                               rng_key(1, RNG_ORDER, 7), rng_key(1, RNG_INIT, 8),
                               rng_key(1, RNG_INIT, UINT64_C(7) << 32)};

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        int equal = 0;

        for (uint64_t j = 0; j < 64; j++)
            equal += rng_bits64(&a, j) == rng_bits64(&others[i], j);
        ck_assert_int_eq(equal, 0);
    }
    for (uint64_t j = 0; j < 64; j++)
        ck_assert_uint_ne(rng_bits64(&a, j), rng_bits64(&a, j + (UINT64_C(1) << 33)));
}
END_TEST

/* A shard drawn alone has the bits of the whole; any cut, odd places included. */
START_TEST(test_shards)
{
    enum { N = 1001 };
    struct rng_key key = test_key();
    uint64_t base = (UINT64_C(1) << 40) - 3;
    float whole[N], part[N], uniform[N];
    double wide[N], wide_part[N];

    rng_normal_fill(whole, &key, base, N, 0.02);
    rng_normal_fill64(wide, &key, base, N, 0.02);
    rng_uniform_fill(uniform, &key, base, N, -1, 1);
    for (size_t cut = 0; cut <= N; cut += 77) {
        rng_normal_fill(part, &key, base, cut, 0.02);
        rng_normal_fill(part + cut, &key, base + cut, N - cut, 0.02);
        ck_assert_mem_eq(part, whole, sizeof whole);
        rng_normal_fill64(wide_part, &key, base, cut, 0.02);
        rng_normal_fill64(wide_part + cut, &key, base + cut, N - cut, 0.02);
        ck_assert_mem_eq(wide_part, wide, sizeof wide);
    }
    for (size_t i = 0; i < N; i++) {
        ck_assert(wide[i] == 0.02 * rng_normal(&key, base + i));
        ck_assert(whole[i] == (float)wide[i]);
        ck_assert(uniform[i] == (float)(2 * rng_uniform(&key, base + i) - 1));
    }
}
END_TEST

/* Moments over a million values, within 5 standard errors; neighbours are not correlated. */
START_TEST(test_normal_moments)
{
    enum { N = 1000000 };
    struct rng_key key = test_key();
    double sum = 0, square = 0, cube = 0, fourth = 0, lag = 0, before = 0, n = N;

    for (uint64_t i = 0; i < N; i++) {
        double z = rng_normal(&key, i);

        ck_assert(fabs(z) < 8.58);
        sum += z, square += z * z, cube += z * z * z, fourth += z * z * z * z;
        lag += z * before;
        before = z;
    }
    ck_assert_double_eq_tol(sum / n, 0, 5 / sqrt(n));
    ck_assert_double_eq_tol(square / n, 1, 5 * sqrt(2 / n));
    ck_assert_double_eq_tol(cube / n, 0, 5 * sqrt(15 / n));
    ck_assert_double_eq_tol(fourth / n, 3, 5 * sqrt(96 / n));
    ck_assert_double_eq_tol(lag / n, 0, 5 / sqrt(n));
}
END_TEST

/* Chi-square within 5 standard deviations of its mean, the degrees of freedom. */
static void assert_even(const int64_t *count, int cells, int64_t draws)
{
    double expected = (double)draws / cells, chi = 0;

    for (int i = 0; i < cells; i++)
        chi += ((double)count[i] - expected) * ((double)count[i] - expected) / expected;
    ck_assert_double_lt(chi, cells - 1 + 5 * sqrt(2.0 * (cells - 1)));
}

START_TEST(test_uniform)
{
    enum { N = 640000 };
    struct rng_key key = test_key();
    int64_t count[64] = {0}, count24[64] = {0};

    for (uint64_t i = 0; i < N; i++) {
        double u = rng_uniform(&key, i);
        float v = rng_uniform24(&key, i);

        ck_assert(u >= 0 && u < 1 && v >= 0 && v < 1);
        ck_assert(floor(u * 0x1p53) == u * 0x1p53 && floorf(v * 0x1p24f) == v * 0x1p24f);
        count[(int)(u * 64)]++;
        count24[(int)(v * 64)]++;
    }
    assert_even(count, 64, N);
    assert_even(count24, 64, N);
}
END_TEST

START_TEST(test_below)
{
    struct rng_key key = test_key();
    uint64_t three_quarters = UINT64_C(3) << 62; /* a quarter of all draws is rejected */
    int64_t count[63] = {0}, low = 0;

    for (uint64_t i = 0; i < 630000; i++)
        count[rng_below(&key, i, 63)]++;
    assert_even(count, 63, 630000);
    for (uint64_t i = 0; i < 100000; i++) {
        uint64_t x = rng_below(&key, i, three_quarters);

        ck_assert_uint_lt(x, three_quarters);
        low += x < three_quarters / 2;
        ck_assert_uint_eq(rng_below(&key, i, 1), 0);
    }
    /* A plain remainder would give 5/8 here instead of 1/2. */
    ck_assert_double_eq_tol((double)low / 1e5, 0.5, 5 * 0.5 / sqrt(1e5));
}
END_TEST

/* Worst error in units of the last place of want. */
static double ulps(double got, double want)
{
    return fabs(got - want) / (nextafter(fabs(want), INFINITY) - fabs(want));
}

START_TEST(test_log_exp)
{
    struct rng_key key = test_key();
    double worst_log = 0, worst_exp = 0;

    for (uint64_t i = 0; i < 200000; i++) {
        double u = rng_uniform(&key, 2 * i), wide = (2 * rng_uniform(&key, 2 * i + 1) - 1) * 700;
        double x = i % 2 ? u + 0.5 : exp(wide);

        worst_log = fmax(worst_log, ulps(elementary_log(x), log(x)));
        worst_exp = fmax(worst_exp, ulps(elementary_exp(wide), exp(wide)));
        worst_exp = fmax(worst_exp, ulps(elementary_exp(-u), exp(-u)));
    }
    ck_assert_double_le(worst_log, 2);
    ck_assert_double_le(worst_exp, 2);
    ck_assert(elementary_log(1) == 0 && elementary_exp(0) == 1);
    ck_assert(elementary_log(0) == -INFINITY && isnan(elementary_log(-1)));
    ck_assert(elementary_log(INFINITY) == INFINITY && isnan(elementary_log(NAN)));
    ck_assert(elementary_exp(-INFINITY) == 0 && elementary_exp(INFINITY) == INFINITY);
    ck_assert(elementary_exp(-746) == 0 && elementary_exp(710) == INFINITY);
    ck_assert(isnan(elementary_exp(NAN)));
    ck_assert_double_eq_tol(elementary_log(0x1p-1074), -744.4400719213812, 1e-12);
    ck_assert(elementary_exp(-745) == 0x1p-1074);
}
END_TEST

START_TEST(test_sincos)
{
    static const double exact[4][2] = {{0, 1}, {1, 0}, {0, -1}, {-1, 0}};
    struct rng_key key = test_key();
    double s, c, worst = 0;

    for (uint64_t i = 0; i < 200000; i++) {
        double turns = rng_uniform(&key, i);
        /* long double: 2 pi turns must not be rounded to double before the function is taken */
        long double angle = 2 * 3.14159265358979323846264338327950288L * (long double)turns;

        elementary_sincos_turns(&s, &c, turns);
        worst = fmax(worst, fabs(s - (double)sinl(angle)));
        worst = fmax(worst, fabs(c - (double)cosl(angle)));
    }
    ck_assert_double_le(worst, 4e-16);
    for (int quarter = -8; quarter <= 8; quarter++) {
        elementary_sincos_turns(&s, &c, quarter / 4.0);
        ck_assert(s == exact[quarter & 3][0] && !(s == 0 && signbit(s)));
        ck_assert(c == exact[quarter & 3][1] && !(c == 0 && signbit(c)));
    }
    elementary_sincos_turns(&s, &c, 1000000.125);
    ck_assert_double_eq_tol(s, c, 1e-15);
    elementary_sincos_turns(&s, &c, -1e-30);
    ck_assert(fabs(s) < 1e-15 && c == 1);
    elementary_sincos_turns(&s, &c, INFINITY);
    ck_assert(isnan(s) && isnan(c));
}
END_TEST

START_TEST(test_hash)
{
    char hex[HASH_HEX], text[300];
    struct hash h, fork;

    ck_assert_uint_eq(hash_bytes(NULL, 0), UINT64_C(0xef46db3751d8e999));
    ck_assert_uint_eq(hash_text("a"), UINT64_C(0xd24ec4f1a98c6e5b));
    ck_assert_uint_eq(hash_text("abc"), UINT64_C(0x44bc2cf5ad770999));
    hash_hex(hex, hash_bytes(NULL, 0));
    ck_assert_str_eq(hex, "ef46db3751d8e999");
    hash_hex(hex, 0x1f);
    ck_assert_str_eq(hex, "000000000000001f");
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)(i * 37);
    for (size_t cut = 0; cut <= sizeof text; cut++) {
        hash_begin(&h);
        hash_add(&h, text, cut);
        fork = h;
        hash_add(&h, text + cut, sizeof text - cut);
        ck_assert_uint_eq(hash_value(&h), hash_bytes(text, sizeof text));
        ck_assert_uint_eq(hash_value(&fork), hash_bytes(text, cut));
    }
    ck_assert_uint_ne(hash_more(hash_text("a"), "b", 1), hash_more(hash_text("b"), "a", 1));
    ck_assert_uint_ne(hash_more(1, NULL, 0), hash_more(2, NULL, 0));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rng");
    TCase *tests = tcase_create("rng");

    tcase_add_test(tests, test_philox_vectors);
    tcase_add_test(tests, test_key_and_lane);
    tcase_add_test(tests, test_normal_values);
    tcase_add_test(tests, test_normal_bits);
    tcase_add_test(tests, test_streams_differ);
    tcase_add_test(tests, test_shards);
    tcase_add_test(tests, test_normal_moments);
    tcase_add_test(tests, test_uniform);
    tcase_add_test(tests, test_below);
    tcase_add_test(tests, test_log_exp);
    tcase_add_test(tests, test_sincos);
    tcase_add_test(tests, test_hash);
    suite_add_tcase(suite, tests);
    return check_unit(suite);
}
