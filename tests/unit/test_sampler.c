/* Choice of a token from logits. */
#include "common/train/sampler.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { V = 6 };

static int32_t pick(struct sampler s, const float *logits, int32_t vocab, int64_t position)
{
    int32_t token = -1;

    ck_assert_int_eq(sampler_pick(&token, &s, logits, vocab, 3, position), ST_OK);
    ck_assert(token >= 0 && token < vocab);
    return token;
}

/* How often each of V tokens is drawn in n positions. */
static void draw(int64_t count[V], struct sampler s, const float *logits, int64_t n)
{
    memset(count, 0, V * sizeof *count);
    for (int64_t i = 0; i < n; i++)
        count[pick(s, logits, V, i)]++;
}

START_TEST(test_greedy)
{
    static const float ties[V] = {-1, 2, 0.5f, 2, -3, 2};
    static const float zeros[V] = {-1, -0.0f, 0.0f, -1, -1, -1};

    for (int k = 0; k <= V; k++) {
        struct sampler s = {.temperature = 0, .top_k = k, .seed = 9};

        ck_assert_int_eq(pick(s, ties, V, k), 1);
        ck_assert_int_eq(pick(s, zeros, V, k), 1);
    }
}
END_TEST

/* Frequencies follow softmax(logits / T) within 5 standard errors. */
static void assert_softmax(struct sampler s, const float *logits, const int *kept)
{
    enum { N = 60000 };
    double weight[V], total = 0;
    int64_t count[V];

    draw(count, s, logits, N);
    for (int i = 0; i < V; i++) {
        weight[i] = kept[i] ? exp((double)logits[i] / s.temperature) : 0;
        total += weight[i];
    }
    for (int i = 0; i < V; i++) {
        double p = weight[i] / total;

        if (!kept[i])
            ck_assert_int_eq(count[i], 0);
        ck_assert_double_le(fabs((double)count[i] / N - p), 5 * sqrt(p * (1 - p) / N));
    }
}

START_TEST(test_temperature)
{
    static const float logits[V] = {-1, 0.5f, 2, 1, -INFINITY, 0};
    static const int kept[V] = {1, 1, 1, 1, 0, 1};

    assert_softmax((struct sampler){.temperature = 1, .seed = 1}, logits, kept);
    assert_softmax((struct sampler){.temperature = 0.5, .seed = 2}, logits, kept);
    assert_softmax((struct sampler){.temperature = 3, .top_k = 100, .seed = 3}, logits, kept);
}
END_TEST

START_TEST(test_top_k)
{
    static const float logits[V] = {0.5f, 1, -2, 1, 1, -0.5f};
    static const int one[V] = {0, 1, 0, 0, 0, 0}, two[V] = {0, 1, 0, 1, 0, 0};
    static const int four[V] = {1, 1, 0, 1, 1, 0}, five[V] = {1, 1, 0, 1, 1, 1};

    assert_softmax((struct sampler){.temperature = 1, .top_k = 1}, logits, one);
    assert_softmax((struct sampler){.temperature = 1, .top_k = 2}, logits, two);
    assert_softmax((struct sampler){.temperature = 1, .top_k = 4}, logits, four);
    assert_softmax((struct sampler){.temperature = 1, .top_k = 5}, logits, five);
}
END_TEST

/* The k highest of many, against a count of how many are higher. */
START_TEST(test_top_k_many)
{
    enum { N = 3000 };
    float *logits = malloc(N * sizeof *logits);

    ck_assert_ptr_nonnull(logits);
    for (int i = 0; i < N; i++)
        logits[i] = (float)((i * 7919) % 1009 - 500) * 0.37f;
    for (int k = 1; k < N; k += 97)
        for (int64_t position = 0; position < 20; position++) {
            struct sampler s = {.temperature = 1e6, .top_k = k};
            int32_t token = pick(s, logits, N, position);
            int before = 0;

            for (int i = 0; i < N; i++)
                before += logits[i] > logits[token] || (logits[i] == logits[token] && i < token);
            ck_assert_int_lt(before, k);
        }
    free(logits);
}
END_TEST

/* Columns that pad the vocabulary are not looked at, whatever they hold. */
START_TEST(test_padding)
{
    static const float logits[V] = {1, 2, 0, 1e30f, NAN, INFINITY};

    for (int64_t i = 0; i < 1000; i++) {
        struct sampler hot = {.temperature = 100, .top_k = 2}, greedy = {0};

        ck_assert_int_lt(pick(hot, logits, 3, i), 3);
        ck_assert_int_eq(pick(greedy, logits, 3, i), 1);
    }
}
END_TEST

START_TEST(test_key)
{
    static const float flat[V] = {0};
    struct sampler s = {.temperature = 1, .seed = 5}, other = {.temperature = 1, .seed = 6};
    int32_t a, b;
    int by_seed = 0, by_sequence = 0, by_position = 0;

    for (int64_t i = 0; i < 600; i++) {
        ck_assert_int_eq(pick(s, flat, V, i), pick(s, flat, V, i));
        by_seed += pick(s, flat, V, i) == pick(other, flat, V, i);
        by_position += pick(s, flat, V, i) == pick(s, flat, V, i + 1);
        sampler_pick(&a, &s, flat, V, 3, i);
        sampler_pick(&b, &s, flat, V, 4, i);
        by_sequence += a == b;
    }
    /* A sixth agrees by chance: 100, standard deviation 9. */
    ck_assert(abs(by_seed - 100) < 50 && abs(by_position - 100) < 50);
    ck_assert(abs(by_sequence - 100) < 50);
}
END_TEST

START_TEST(test_extremes)
{
    static const float large[V] = {-3e38f, 3e38f, 3e38f, -INFINITY, 0, 1};
    struct sampler s = {.temperature = 1};
    int64_t count[V];

    draw(count, s, large, 1000);
    ck_assert_int_eq(count[1] + count[2], 1000);
    ck_assert(count[1] > 400 && count[2] > 400);
    s.top_k = 1; /* both zeros are equal: the lower id stays */
    ck_assert_int_eq(pick(s, (const float[V]){-0.0f, 0, -1, -1, -1, -1}, V, 0), 0);
    s.top_k = 0;
    s.temperature = 1e-300;
    ck_assert_int_eq(pick(s, (const float[V]){0, 1, 2, 3, 4, 5}, V, 0), 5);
    s.top_k = 5;
    ck_assert_int_eq(pick(s, (const float[1]){-7}, 1, 0), 0);
}
END_TEST

static void assert_refused(struct sampler s, const float *logits, enum status want,
                           const char *word)
{
    int32_t token;

    status_clear();
    ck_assert_int_eq(sampler_pick(&token, &s, logits, V, 0, 0), want);
    ck_assert_msg(strstr(status_message(), word) != NULL, "'%s' lacks '%s'", status_message(),
                  word);
}

START_TEST(test_refused)
{
    static const float good[V] = {0}, nan_at_4[V] = {0, 0, 0, 0, NAN, 0};
    static const float inf_at_2[V] = {0, 0, INFINITY, 0, 0, 0};
    static const float none[V] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY};
    struct sampler greedy = {0}, hot = {.temperature = 1, .top_k = 1};

    assert_refused(greedy, nan_at_4, ST_ENUMERIC, "token 4");
    assert_refused(hot, nan_at_4, ST_ENUMERIC, "token 4");
    assert_refused(greedy, inf_at_2, ST_ENUMERIC, "token 2");
    assert_refused(greedy, none, ST_ENUMERIC, "-inf");
    assert_refused((struct sampler){.temperature = -1}, good, ST_ECONFIG, "temperature");
    assert_refused((struct sampler){.temperature = NAN}, good, ST_ECONFIG, "temperature");
    assert_refused((struct sampler){.top_k = -2}, good, ST_ECONFIG, "top_k is -2");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sampler");
    TCase *tests = tcase_create("sampler");

    tcase_add_test(tests, test_greedy);
    tcase_add_test(tests, test_temperature);
    tcase_add_test(tests, test_top_k);
    tcase_add_test(tests, test_top_k_many);
    tcase_add_test(tests, test_padding);
    tcase_add_test(tests, test_key);
    tcase_add_test(tests, test_extremes);
    tcase_add_test(tests, test_refused);
    suite_add_tcase(suite, tests);
    return check_unit(suite);
}
