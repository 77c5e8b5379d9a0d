/* Which tokens each row of each batch holds. */
#include "common/data/loader.h"
#include "common/data/order.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAD = 999999, MAX = 4096 };

/* A corpus in memory: token i has id i, so that every token tells its place. starts is filled with
 * documents of the given lengths; NULL makes one document. */
struct memory {
    int32_t tokens[MAX];
    int64_t starts[MAX];
    char path[8];
    struct corpus corpus;
};

static struct memory *make(int64_t count, const int64_t *lengths, int64_t documents)
{
    struct memory *m = calloc(1, sizeof *m);

    ck_assert_ptr_nonnull(m);
    for (int64_t j = 0; j < documents; j++)
        m->starts[j + 1] = m->starts[j] + (lengths ? lengths[j] : count);
    count = m->starts[documents];
    ck_assert_int_le(count, MAX);
    for (int32_t i = 0; i < count; i++)
        m->tokens[i] = i;
    snprintf(m->path, sizeof m->path, "memory");
    m->corpus = (struct corpus){.path = m->path,
                                .tokens = m->tokens,
                                .starts = m->starts,
                                .count = count,
                                .documents = documents,
                                .vocab = 1000000,
                                .pad = PAD,
                                .token_bytes = 4,
                                .separated = lengths != NULL};
    return m;
}

static struct loader open_loader(const struct memory *m, struct loader_options options)
{
    struct loader l;

    status_clear();
    ck_assert_msg(loader_open(&l, &m->corpus, &options) == ST_OK, "%s", status_message());
    return l;
}

static void get(int32_t *x, int32_t *y, const struct loader *l, int64_t step, int64_t first,
                int64_t rows)
{
    for (int64_t i = 0; i < rows * l->options.seq; i++)
        x[i] = y[i] = -77;
    ck_assert_int_eq(loader_rows(x, y, l, step, first, rows), ST_OK);
}

/* Targets are the inputs shifted, where they are valid; padding only at the end. */
static int64_t assert_row(const int32_t *x, const int32_t *y, int64_t seq)
{
    int64_t valid = 0;

    while (valid < seq && y[valid] != LOADER_IGNORED)
        valid++;
    for (int64_t i = 0; i < seq; i++) {
        ck_assert_int_eq(y[i], i < valid ? x[i] + 1 : LOADER_IGNORED);
        if (i + 1 < valid)
            ck_assert_int_eq(x[i + 1], y[i]);
        if (i > valid)
            ck_assert_int_eq(x[i], PAD);
    }
    return valid;
}

/* D21: documents of 300 and 10 tokens (and their ends): every token but the first is a target
 * once an epoch, every token but the last an input once; for many lengths of text and row. */
START_TEST(test_every_token_once)
{
    int32_t x[512], y[512];

    for (int64_t count = 2; count < 330; count += count == 2 ? 310 : 1)
        for (int64_t seq = 1; seq <= 300; seq += 51) {
            struct memory *m = make(count, NULL, 1);
            char seen[512] = {0};
            struct loader l;

            if (count <= seq) {
                free(m);
                continue;
            }
            l = open_loader(m, (struct loader_options){.packing = 1, .seq = seq, .batch = 1});
            ck_assert_int_eq(l.samples, (count - 1 + seq - 1) / seq);
            for (int64_t step = 0; step < l.samples; step++) {
                get(x, y, &l, step, 0, 1);
                for (int64_t i = 0, valid = assert_row(x, y, seq); i < valid; i++)
                    ck_assert_int_eq(seen[y[i]]++, 0);
            }
            ck_assert(!seen[0] && !memchr(seen + 1, 0, (size_t)count - 1) && !seen[count]);
            ck_assert(l.valid == count - 1 && l.lost == 0);
            free(m);
        }
}
END_TEST

enum { SEQ = 8, BATCH = 16 };

/* Takes a step's rows on dp ranks: they are those of the whole batch. Counts the samples seen. */
static void take_step(int *seen, const struct loader *l, int64_t step, int dp)
{
    int32_t x[BATCH * SEQ], y[BATCH * SEQ], part_x[BATCH * SEQ], part_y[BATCH * SEQ];
    int rows = BATCH / dp;

    get(x, y, l, step, 0, BATCH);
    for (int rank = 0; rank < dp; rank++) {
        get(part_x, part_y, l, step, rank * rows, rows);
        ck_assert_mem_eq(part_x, x + rank * rows * SEQ, sizeof *x * rows * SEQ);
        ck_assert_mem_eq(part_y, y + rank * rows * SEQ, sizeof *y * rows * SEQ);
        for (int i = 0; i < rows; i++)
            seen[part_x[i * SEQ] / SEQ]++;
    }
}

/* N27: 64 numbered sequences on 4 ranks: each exactly once an epoch; and the rows of a step are
 * the same however they are dealt to ranks. */
START_TEST(test_ranks)
{
    struct memory *m = make(64 * SEQ + 1, NULL, 1);
    struct loader l = open_loader(
        m, (struct loader_options){.packing = 1, .seq = SEQ, .batch = BATCH, .seed = 3});

    ck_assert_int_eq(l.samples, 64);
    for (int64_t epoch = 0; epoch < 3; epoch++)
        for (int dp = 1; dp <= 16; dp *= 2) {
            int seen[64] = {0};

            for (int64_t step = 4 * epoch; step < 4 * epoch + 4; step++)
                take_step(seen, &l, step, dp);
            for (int k = 0; k < 64; k++)
                ck_assert_int_eq(seen[k], 1);
        }
    free(m);
}
END_TEST

/* Takes batches over six epochs; returns how many positions have the same sample an epoch later. */
static int64_t take_epochs(const struct loader *l)
{
    int64_t samples = l->samples, batch = l->options.batch, seen[16] = {0}, position = 0, same = 0;
    int32_t x[64], y[64];

    for (int64_t step = 0; position < 6 * samples; step++) {
        get(x, y, l, step, 0, batch);
        for (int64_t i = 0; i < batch; i++, position++) {
            int64_t k = x[2 * i] / 2;

            ck_assert_int_eq(seen[k]++, position / samples);
            ck_assert_int_eq(k, loader_sample(l, position));
            same += k == loader_sample(l, position + samples);
        }
    }
    return same;
}

/* D08, D09: batches that end an epoch, miss its end by one, and cross it; each epoch of positions
 * is a permutation, none like the one before. */
START_TEST(test_epoch_borders)
{
    for (int64_t samples = 1; samples <= 9; samples += 4)
        for (int64_t batch = samples > 1 ? samples - 1 : 1; batch <= 2 * samples + 1; batch++) {
            struct memory *m = make(2 * samples + 1, NULL, 1);
            struct loader l = open_loader(
                m, (struct loader_options){.packing = 1, .seq = 2, .batch = batch, .seed = 1});
            int64_t same = take_epochs(&l);

            ck_assert(samples == 1 || same < 3 * samples);
            free(m);
        }
}
END_TEST

static int64_t count_valid(const struct loader *l, int64_t step, int64_t first, int64_t rows)
{
    int64_t seq = l->options.seq, n = 0;
    int32_t *x = malloc((size_t)(rows * seq + 1) * sizeof *x);
    int32_t *y = malloc((size_t)(rows * seq + 1) * sizeof *y);

    ck_assert(x && y);
    get(x, y, l, step, first, rows);
    for (int64_t i = 0; i < rows; i++)
        n += assert_row(x + i * seq, y + i * seq, seq);
    free(x);
    free(y);
    return n;
}

/* The count that needs no tokens equals the count of the tokens, for batches and their parts. */
static void assert_counts(const struct loader *l, int64_t steps)
{
    int64_t batch = l->options.batch;

    for (int64_t step = 0; step < steps; step++) {
        int64_t whole, first, second;

        ck_assert_int_eq(loader_valid(&whole, l, step), ST_OK);
        ck_assert_int_eq(whole, count_valid(l, step, 0, batch));
        ck_assert_int_eq(loader_valid_rows(&first, l, step, 0, batch / 2), ST_OK);
        ck_assert_int_eq(loader_valid_rows(&second, l, step, batch / 2, batch - batch / 2), ST_OK);
        ck_assert_int_eq(first, count_valid(l, step, 0, batch / 2));
        ck_assert_int_eq(first + second, whole);
    }
}

START_TEST(test_valid)
{
    static const int64_t lengths[] = {2, 9, 3, 40, 8, 7, 2};

    for (int64_t batch = 1; batch <= 23; batch += 2) {
        struct memory *packed = make(45, NULL, 1), *documents = make(0, lengths, 7);
        struct loader_options options = {.seq = 7, .batch = batch, .seed = 8};

        for (int mode = LOADER_TRAIN; mode <= LOADER_EVAL; mode++) {
            struct loader l;

            options.mode = (enum loader_mode)mode;
            options.packing = 1;
            l = open_loader(packed, options);
            ck_assert_int_eq(l.samples, 7); /* the last holds 2 of 7 targets */
            assert_counts(&l, 40);
            options.packing = 0;
            l = open_loader(documents, options);
            ck_assert_int_eq(l.samples, 7);
            ck_assert_int_eq(l.valid, 1 + 7 + 2 + 7 + 7 + 6 + 1);
            assert_counts(&l, 40);
        }
        free(packed);
        free(documents);
    }
}
END_TEST

/* Packing off: a document a row, cut or padded; what cutting loses is counted. */
START_TEST(test_documents)
{
    static const int64_t lengths[] = {3, 12, 6};
    static const int32_t want_x[3][5] = {
        {0, 1, 2, PAD, PAD}, {3, 4, 5, 6, 7}, {15, 16, 17, 18, 19}};
    static const int32_t want_y[3][5] = {{1, 2, -1, -1, -1}, {4, 5, 6, 7, 8}, {16, 17, 18, 19, 20}};
    struct memory *m = make(0, lengths, 3);
    struct loader l = open_loader(m, (struct loader_options){.seq = 5, .batch = 3});
    int32_t x[5], y[5];

    ck_assert(l.samples == 3 && l.valid == 12 && l.lost == 6);
    for (int64_t sample = 0; sample < 3; sample++) {
        loader_row(x, y, &l, sample);
        ck_assert_mem_eq(x, want_x[sample], sizeof x);
        ck_assert_mem_eq(y, want_y[sample], sizeof y);
    }
    m->corpus.pad = -1; /* a tokenizer without padding: any id will do */
    loader_row(x, y, &l, 0);
    ck_assert(x[3] == 0 && x[4] == 0 && y[2] == -1);
    free(m);
}
END_TEST

/* N02, N28: an evaluation visits each sample once in file order, whatever the batch; rows past
 * the end count for nothing. */
START_TEST(test_evaluation)
{
    struct memory *m = make(62, NULL, 1);
    int32_t x[70], y[70];

    for (int64_t batch = 1; batch <= 10; batch++)
        for (int64_t limit = 0; limit <= 12; limit += 3) {
            struct loader l = open_loader(
                m,
                (struct loader_options){
                    .mode = LOADER_EVAL, .packing = 1, .seq = 7, .batch = batch, .limit = limit});
            int64_t samples = limit == 0 || limit > 9 ? 9 : limit, total = 0, next = 0, valid;

            ck_assert_int_eq(l.samples, samples);
            ck_assert_int_eq(loader_batches(&l), (samples + batch - 1) / batch);
            for (int64_t step = 0; step < loader_batches(&l); step++) {
                get(x, y, &l, step, 0, batch);
                for (int64_t i = 0; i < batch; i++, next++)
                    ck_assert_int_eq(x[7 * i], next < samples ? 7 * next : PAD);
                ck_assert_int_eq(loader_valid(&valid, &l, step), ST_OK);
                ck_assert_int_eq(valid, count_valid(&l, step, 0, batch));
                total += valid;
            }
            ck_assert(total == l.valid && total == (samples == 9 ? 61 : 7 * samples));
        }
    free(m);
}
END_TEST

/* N42, D04: counts beyond 24, 31 and 32 bits are exact. */
START_TEST(test_large_numbers)
{
    struct memory *m = make(9, NULL, 1);
    struct loader l = open_loader(
        m, (struct loader_options){.packing = 1, .seq = 3, .batch = 1000003, .seed = 2});
    int64_t step = INT64_C(1) << 41, position = step * 1000003 + 5, valid;
    int32_t x[3], y[3];

    ck_assert_int_eq(loader_packed_samples((INT64_C(1) << 24) + 1, 32), 524288);
    ck_assert_int_eq(loader_packed_samples((INT64_C(1) << 24) + 2, 32), 524289);
    ck_assert_int_eq(loader_packed_samples((INT64_C(1) << 31) + 7, 32), 67108865);
    ck_assert_int_eq(loader_packed_samples((INT64_C(1) << 40) + 3, 32), INT64_C(34359738369));
    ck_assert(loader_packed_samples(1, 32) == 0 && loader_packed_samples(0, 32) == 0);
    ck_assert_int_eq(l.samples, 3);
    get(x, y, &l, step, 5, 1);
    ck_assert_int_eq(x[0] / 3, order_sample(2, position / 3, 3, position % 3));
    /* 1000003 rows of 3 targets; the last sample lacks 1 and comes 333334 or 333335 times */
    ck_assert_int_eq(loader_valid(&valid, &l, step), ST_OK);
    ck_assert(valid >= 3000009 - 333335 && valid <= 3000009 - 333333);
    ck_assert_double_eq_tol(loader_epochs(&l, 3000000), 1000003e6, 1);
    ck_assert_int_eq(loader_rows(x, y, &l, INT64_MAX / 1000003, 0, 1), ST_ECONFIG);
    ck_assert_int_eq(loader_valid(&valid, &l, INT64_MAX), ST_ECONFIG);
    free(m);
}
END_TEST

static void assert_refused(const struct memory *m, struct loader_options options, enum status want,
                           const char *word)
{
    struct loader l;

    status_clear();
    ck_assert_int_eq(loader_open(&l, &m->corpus, &options), want);
    ck_assert_msg(strstr(status_message(), word) != NULL, "'%s' lacks '%s'", status_message(),
                  word);
}

START_TEST(test_refused)
{
    static const int64_t ones[] = {1, 1};
    struct memory *m = make(20, NULL, 1), *short_documents = make(0, ones, 2);
    struct loader_options good = {.packing = 1, .seq = 19, .batch = 1}, o;
    struct loader l = open_loader(m, good);
    int32_t x[19], y[19];

    o = good, o.seq = 20;
    assert_refused(m, o, ST_EFORMAT, "holds 20 tokens; one sequence of 20 needs 21");
    o.mode = LOADER_EVAL;
    ck_assert_int_eq(open_loader(m, o).samples, 1);
    m->corpus.count = 1;
    assert_refused(m, o, ST_EFORMAT, "holds 1 tokens; one sequence of 20 needs 2");
    m->corpus.count = 20;
    o = good, o.seq = 0;
    assert_refused(m, o, ST_ECONFIG, "at least 1");
    o = good, o.batch = 0;
    assert_refused(m, o, ST_ECONFIG, "at least 1");
    o = good, o.limit = 5;
    assert_refused(m, o, ST_EINTERNAL, "limit");
    o = good, o.packing = 0;
    assert_refused(m, o, ST_ECONFIG, "data.document_separator is not set");
    assert_refused(short_documents, o, ST_EFORMAT, "at least 2");
    m->corpus.count = (INT64_C(1) << 41) + 7;
    o = good, o.seq = 1;
    assert_refused(m, o, ST_ECONFIG, "2199023255558 sequences");
    m->corpus.count = 20;
    ck_assert_int_eq(loader_rows(x, y, &l, 0, 0, 2), ST_EINTERNAL);
    ck_assert_int_eq(loader_rows(x, y, &l, 0, 2, 0), ST_EINTERNAL);
    ck_assert_int_eq(loader_rows(x, y, &l, -1, 0, 1), ST_EINTERNAL);
    free(m);
    free(short_documents);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loader");
    TCase *tests = tcase_create("loader");

    tcase_set_timeout(tests, 0);
    tcase_add_test(tests, test_every_token_once);
    tcase_add_test(tests, test_ranks);
    tcase_add_test(tests, test_epoch_borders);
    tcase_add_test(tests, test_valid);
    tcase_add_test(tests, test_documents);
    tcase_add_test(tests, test_evaluation);
    tcase_add_test(tests, test_large_numbers);
    tcase_add_test(tests, test_refused);
    suite_add_tcase(suite, tests);
    return check_unit(suite);
}
