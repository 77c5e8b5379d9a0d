/* Sources in proportion, their epochs, and corpora over several shards. */
#include "common/data/mixture.h"
#include "common/data/sources.h"

#include "tests/unit/check_unit.h"
#include "tests/unit/shard_files.h"
#include "tests/unit/temp_folder.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQ = 4, SOURCES = 5 };

/* Corpora of int32 tokens in memory: token i of source k is 1000 k + i. */
struct scene {
    int32_t tokens[SOURCES][1000];
    int64_t starts[SOURCES][2];
    char name[8];
    struct corpus corpus[SOURCES];
    struct mixture m;
};

static struct scene *make(const int64_t *counts, const int64_t *weights, int n,
                          struct loader_options o)
{
    struct scene *s = calloc(1, sizeof *s);

    ck_assert_ptr_nonnull(s);
    snprintf(s->name, sizeof s->name, "memory");
    for (int k = 0; k < n; k++) {
        for (int32_t i = 0; i < 1000; i++)
            s->tokens[k][i] = 1000 * k + i;
        s->starts[k][1] = counts[k];
        s->corpus[k] = (struct corpus){.path = s->name,
                                       .tokens = s->tokens[k],
                                       .starts = s->starts[k],
                                       .count = counts[k],
                                       .documents = 1,
                                       .pad = -1,
                                       .token_bytes = 4};
    }
    status_clear();
    ck_assert_msg(mixture_open(&s->m, s->corpus, weights, n, &o) == ST_OK, "%s", status_message());
    return s;
}

static void end(struct scene *s)
{
    mixture_close(&s->m);
    free(s);
}

static const struct loader_options plain = {
    .mode = LOADER_TRAIN, .packing = 1, .seq = SEQ, .batch = 8, .seed = 5};

/* The counts are what the rows say; exact after each period; close in between; never backwards. */
START_TEST(test_proportions)
{
    static const int64_t counts[SOURCES] = {41, 81, 17, 161, 41};
    static const int64_t rows[][SOURCES] = {
        {1, 1, 1, 1, 1},    {700000, 300000, 0},   {1, 999},           {999, 1},
        {50, 30, 15, 4, 1}, {1, 1, 1000000, 1, 1}, {7, 11, 13, 17, 19}};

    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        int64_t seen[SOURCES] = {0}, inner;
        double sum = 0, worst = 0;
        struct scene *s;
        int n = 0, k;

        while (n < SOURCES && rows[r][n])
            sum += (double)rows[r][n++];
        s = make(counts, rows[r], n, plain);
        for (int64_t p = 0; p < 20000; p++) {
            for (k = 0; k < n; k++) {
                double share = (double)p * (double)rows[r][k] / sum;

                ck_assert_int_eq(mixture_taken(&s->m, k, p), seen[k]);
                worst = fmax(worst, fabs((double)seen[k] - share));
            }
            mixture_find(&k, &inner, &s->m, p);
            ck_assert(k >= 0 && k < n);
            ck_assert_int_eq(inner, seen[k]);
            seen[k]++;
        }
        ck_assert_double_le(worst, n == 2 ? 0.5 + 1e-9 : 1.5);
        for (k = 0; k < n; k++) /* far out: W million periods */
            ck_assert_int_eq(mixture_taken(&s->m, k, (int64_t)sum * 1000000), rows[r][k] * 1000000);
        end(s);
    }
}
END_TEST

/* Sources without weights end their epochs together; with weights each has its own. */
START_TEST(test_epochs)
{
    static const int64_t counts[] = {401, 41, 81}, weights[] = {1, 1, 2};
    int32_t x[SEQ], y[SEQ];

    for (int weighted = 0; weighted < 2; weighted++) {
        struct scene *s = make(counts, weighted ? weights : NULL, 3, plain);
        int used[3][1000] = {0}, epochs = 6;
        int64_t positions = weighted ? 100 * 4 * 3 : epochs * (100 + 10 + 20);

        for (int64_t p = 0; p < positions; p++) {
            ck_assert_int_eq(mixture_rows(x, y, NULL, &s->m, p / 8, p % 8, 1), ST_OK);
            for (int i = 0; i < SEQ; i++)
                if (y[i] != LOADER_IGNORED)
                    used[y[i] / 1000][y[i] % 1000]++;
        }
        for (int k = 0; k < 3; k++)
            for (int64_t i = 1; i < counts[k]; i++)
                ck_assert_int_eq(used[k][i],
                                 weighted ? 300 * weights[k] / ((counts[k] - 1) / SEQ) : epochs);
        if (!weighted)
            ck_assert_double_eq_tol(mixture_epochs(&s->m, 1, 130), 8, 1e-9);
        end(s);
    }
}
END_TEST

/* Every rank computes the targets of the batch without reading it; one source is as a loader. */
START_TEST(test_valid_and_one_source)
{
    static const int64_t counts[] = {39, 8, 70}, weights[] = {3, 1, 2};
    int32_t x[8 * SEQ], y[8 * SEQ], x1[8 * SEQ], y1[8 * SEQ];

    for (int mode = LOADER_TRAIN; mode <= LOADER_EVAL; mode++) {
        struct loader_options o = plain;
        struct scene *s, *one;

        o.mode = (enum loader_mode)mode;
        s = make(counts, weights, 3, o);
        one = make(counts, weights, 1, o);
        for (int64_t step = 0; step < 40; step++) {
            int64_t valid, part, count = 0;

            ck_assert_int_eq(mixture_rows(x, y, NULL, &s->m, step, 0, 8), ST_OK);
            ck_assert_int_eq(mixture_valid(&valid, &s->m, step), ST_OK);
            ck_assert_int_eq(mixture_valid_rows(&part, &s->m, step, 0, 3), ST_OK);
            for (int i = 0; i < 8 * SEQ; i++) {
                count += y[i] != LOADER_IGNORED;
                part -= i < 3 * SEQ && y[i] != LOADER_IGNORED;
            }
            ck_assert(count == valid && part == 0);
            ck_assert_int_eq(mixture_rows(x, y, NULL, &one->m, step, 0, 8), ST_OK);
            ck_assert_int_eq(loader_rows(x1, y1, &one->m.source[0], step, 0, 8), ST_OK);
            ck_assert_mem_eq(x, x1, sizeof x);
            ck_assert_mem_eq(y, y1, sizeof y);
        }
        ck_assert_int_eq(mixture_batches(&s->m), (10 + 2 + 18 + 7) / 8);
        end(s);
        end(one);
    }
}
END_TEST

/* D04: 2^31 samples and a million epochs, by arithmetic alone. D08: exactly k epochs, one sample
 * less, one more. */
START_TEST(test_d04_d08_counts)
{
    static const int64_t tiny[] = {9, 13};
    const int64_t million = 1000000;
    struct corpus large = {.path = (char[]){"large"}, .documents = 1, .pad = -1};
    int64_t sizes[2] = {0, (INT64_C(1) << 31) * SEQ + 1}, inner, valid;
    struct loader_options o = plain;
    struct mixture m;
    struct scene *s;
    int k;

    large.starts = sizes;
    large.count = sizes[1];
    ck_assert_int_eq(mixture_open(&m, &large, NULL, 1, &o), ST_OK);
    ck_assert_int_eq(m.samples, INT64_C(1) << 31);
    mixture_find(&k, &inner, &m, (INT64_C(1) << 31) * million + 17);
    ck_assert(k == 0 && inner == (INT64_C(1) << 31) * million + 17);
    ck_assert_int_lt(loader_sample(&m.source[0], inner), INT64_C(1) << 31);
    ck_assert_int_eq(mixture_valid(&valid, &m, (INT64_C(1) << 31) * 1000), ST_OK);
    ck_assert_int_eq(valid, 8 * SEQ);
    mixture_close(&m);
    o.batch = 1;
    s = make(tiny, NULL, 2, o); /* 2 + 3 samples an epoch */
    for (int64_t epochs = 1; epochs <= million; epochs *= 1000)
        for (int64_t needed = 5 * epochs - 1; needed <= 5 * epochs + 1; needed++) {
            int used[5] = {0};

            for (int64_t p = 5 * (epochs - 1); p < needed; p++) {
                mixture_find(&k, &inner, &s->m, p);
                used[2 * k + loader_sample(&s->m.source[k], inner)]++;
            }
            valid = used[0] + used[1] + used[2] + used[3] + used[4];
            ck_assert_int_eq(valid, needed - 5 * (epochs - 1));
            for (int i = 0; i < 5; i++)
                ck_assert(used[i] == 1 || (needed < 5 * epochs && used[i] == 0) ||
                          (needed > 5 * epochs && used[i] == 2));
        }
    end(s);
}
END_TEST

/* Where documents begin in packed rows of 4: of 0-2, 3, 4-5, none, 6-9. */
static void check_starts(const struct corpus *c)
{
    static const int32_t want[3][SEQ] = {{0, 0, 0, 3}, {0, 0, 2, 2}, {0, 0, 0, 0}};
    int32_t starts[SEQ];
    struct loader l;

    ck_assert_int_eq(loader_open(&l, c, &plain), ST_OK);
    ck_assert_int_eq(l.samples, 3);
    for (int64_t k = 0; k < 3; k++) {
        memset(starts, 77, sizeof starts);
        loader_starts(starts, &l, k);
        ck_assert_mem_eq(starts, want[k], sizeof starts);
    }
    loader_starts(starts, &l, -1);
    ck_assert_mem_eq(starts, want[2], sizeof starts);
}

/* D06: two shards as one corpus: documents 0 to 5, reading equal to A, then B; and its split. */
START_TEST(test_d06_shards_follow)
{
    static const int32_t a[] = {1, 2, 3, 4, 5, 6}, a_docs[] = {3, 1, 2};
    static const int32_t b[] = {7, 8, 9, 10}, b_docs[] = {0, 4};
    static const int64_t borders[] = {0, 3, 4, 6, 6, 10};
    static const int64_t owner[] = {0, 0, 0, 1, 2, 2, 4, 4, 4, 4};
    const struct tokenizer t = {.vocab = 300, .pad = -1};
    char folder[TEMP_PATH], path[TEMP_PATH];
    struct corpus c, held;
    int32_t ids[10];

    temp_folder_make(folder);
    shard_files_megatron(folder, "p-a", SHARD_I32, a, a_docs, 3);
    shard_files_megatron(folder, "p-b", SHARD_U16, b, b_docs, 2);
    ck_assert_msg(corpus_open_any(&c, temp_folder_path(path, folder, "p-*"), &t, NULL) == ST_OK,
                  "%s", status_message());
    ck_assert(c.count == 10 && c.documents == 5 && c.separated && c.shards->n == 2);
    for (int j = 0; j <= 5; j++)
        ck_assert_int_eq(corpus_start(&c, j), borders[j]);
    for (int i = 0; i < 10; i++) {
        ck_assert_int_eq(corpus_document(&c, i), owner[i]);
        for (int n = 0; i + n <= 10; n++) {
            corpus_read(ids, &c, i, n);
            for (int j = 0; j < n; j++)
                ck_assert_int_eq(ids[j], i + j + 1);
        }
    }
    check_starts(&c);
    ck_assert_int_eq(corpus_split(&held, &c, 0.5), ST_OK); /* B's four are not enough */
    ck_assert(c.count == 4 && c.documents == 2 && held.count == 6 && held.documents == 3);
    ck_assert(corpus_start(&held, 1) == 2 && corpus_start(&held, 2) == 2);
    corpus_close(&c);
    corpus_read(ids, &held, 0, 6);
    ck_assert(ids[0] == 5 && ids[5] == 10 && corpus_document(&held, 2) == 2);
    corpus_close(&held);
    ck_assert_int_eq(corpus_open_any(&c, temp_folder_path(path, folder, "q-*"), &t, NULL), ST_EIO);
    ck_assert_ptr_nonnull(strstr(status_message(), "no file matches"));
    temp_folder_remove(folder);
}
END_TEST

/* An empty document between others of one row. */
START_TEST(test_starts_empty)
{
    static const int32_t tokens[] = {1, 2, 3, 4, 5}, lengths[] = {1, 0, 1, 3};
    static const int32_t want[SEQ] = {0, 1, 2, 2};
    const struct tokenizer t = {.vocab = 300, .pad = -1};
    char folder[TEMP_PATH], path[TEMP_PATH];
    int32_t starts[SEQ];
    struct corpus c;
    struct loader l;

    temp_folder_make(folder);
    shard_files_megatron(folder, "x", SHARD_U16, tokens, lengths, 4);
    ck_assert_int_eq(corpus_open_any(&c, temp_folder_path(path, folder, "x"), &t, NULL), ST_OK);
    ck_assert_int_eq(loader_open(&l, &c, &plain), ST_OK);
    loader_starts(starts, &l, 0);
    ck_assert_mem_eq(starts, want, sizeof starts);
    corpus_close(&c);
    temp_folder_remove(folder);
}
END_TEST

/* Ranks that share the search for bad ids leave no token out. */
START_TEST(test_ids_shared)
{
    int32_t tokens[37] = {0}, length = 37;
    const struct tokenizer t = {.vocab = 300, .pad = -1};
    char folder[TEMP_PATH], path[TEMP_PATH];
    struct corpus c;

    temp_folder_make(folder);
    for (int at = 0; at < length; at++)
        for (int parts = 1; parts <= 40; parts += 13) {
            int found = 0;

            tokens[at] = 300;
            shard_files_megatron(folder, "x", SHARD_U16, tokens, &length, 1);
            tokens[at] = 0;
            ck_assert_int_eq(corpus_open_any(&c, temp_folder_path(path, folder, "x.bin"), &t, NULL),
                             ST_OK);
            for (int part = 0; part < parts; part++)
                found += corpus_check_ids(&c, 300, part, parts) == ST_EFORMAT;
            ck_assert_int_eq(found, 1);
            corpus_close(&c);
            status_clear();
        }
    temp_folder_remove(folder);
}
END_TEST

START_TEST(test_sources)
{
    static const char *const bad[][2] = {
        {"[]", "entry 1 of the list is empty"},
        {"[a, , b]", "entry 2"},
        {"[0 a]", "'0' is no weight"},
        {"[0.0000001 a]", "no weight"},
        {"[1.2.3 a]", "no weight"},
        {"[1000001 a]", "no weight"},
        {"[99999999999999999999999999.99999999999999999999999 a]", "no weight"},
        {"[1 a, b]", "some of its sources"},
        {"[a, 1 b]", "some of its sources"},
    };
    struct sources s;
    char many[1024] = "[";

    ck_assert_int_eq(sources_read(&s, "data.train", "a b.txt"), ST_OK);
    ck_assert(s.n == 1 && !s.weighted);
    ck_assert_str_eq(s.path[0], "a b.txt");
    sources_close(&s);
    ck_assert_int_eq(sources_read(&s, "data.train", "[0.7 a b,.3  c-[0-9].bin , 2 2]"), ST_OK);
    ck_assert(s.n == 3 && s.weighted);
    ck_assert(s.weight[0] == 700000 && s.weight[1] == 300000 && s.weight[2] == 2000000);
    ck_assert_str_eq(s.path[0], "a b");
    ck_assert_str_eq(s.path[1], "c-[0-9].bin");
    ck_assert_str_eq(s.path[2], "2");
    sources_close(&s);
    ck_assert_int_eq(sources_read(&s, "data.train", "[3rd part.txt, 7.txt]"), ST_OK);
    ck_assert_str_eq(s.path[0], "3rd part.txt");
    ck_assert(s.n == 2 && !s.weighted);
    sources_close(&s);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        status_clear();
        ck_assert_msg(sources_read(&s, "data.train", bad[i][0]) == ST_ECONFIG, "%s", bad[i][0]);
        ck_assert_msg(strstr(status_message(), bad[i][1]) != NULL, "%s", status_message());
    }
    for (int i = 0; i < SOURCES_MOST; i++)
        strncat(many, "a,", 3);
    strncat(many, "a]", 3);
    status_clear();
    ck_assert_int_eq(sources_read(&s, "data.train", many), ST_ECONFIG);
    ck_assert_ptr_nonnull(strstr(status_message(), "more than 64"));
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("mixture");
    TCase *c = tcase_create("mixture");

    tcase_set_timeout(c, 60);
    tcase_add_test(c, test_proportions);
    tcase_add_test(c, test_epochs);
    tcase_add_test(c, test_valid_and_one_source);
    tcase_add_test(c, test_d04_d08_counts);
    tcase_add_test(c, test_d06_shards_follow);
    tcase_add_test(c, test_starts_empty);
    tcase_add_test(c, test_ids_shared);
    tcase_add_test(c, test_sources);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return check_unit(suite());
}
