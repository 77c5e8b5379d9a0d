/* What the program writes is what other programs would have written, whole or not at all. */
#include "common/data/shard_write.h"

#include "tests/unit/check_unit.h"
#include "tests/unit/shard_files.h"
#include "tests/unit/temp_folder.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct scene {
    char folder[TEMP_PATH], prefix[TEMP_PATH];
    struct shard_write w;
};

static void begin(struct scene *s)
{
    temp_folder_make(s->folder);
    temp_folder_path(s->prefix, s->folder, "x");
}

static enum status open_it(struct scene *s, enum shard_format format, int64_t vocab, int overwrite)
{
    status_clear();
    return shard_write_open(&s->w, s->prefix, format, vocab, overwrite);
}

#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s", status_message())

static void assert_same_file(const char *folder, const char *a, const char *b)
{
    char path[TEMP_PATH];
    size_t n, m;
    char *x = temp_folder_read(temp_folder_path(path, folder, a), &n);
    char *y = temp_folder_read(temp_folder_path(path, folder, b), &m);

    ck_assert_uint_eq(n, m);
    ck_assert_mem_eq(x, y, n);
    free(x);
    free(y);
}

/* Byte for byte the files of tests/unit/shard_files.c, and of Megatron-LM itself. */
START_TEST(test_bytes)
{
    static const int32_t tokens[] = {1, 2, 3, 4, 5, 70000, 7}, lengths[] = {3, 1, 3};
    struct scene s;

    begin(&s);
    for (int wide = 0; wide < 2; wide++) {
        int32_t ids[7];

        memcpy(ids, tokens, sizeof ids);
        ids[5] = wide ? 70000 : 65498;
        shard_files_megatron(s.folder, "want", wide ? SHARD_I32 : SHARD_U16, ids, lengths, 3);
        OK(open_it(&s, SHARD_MEGATRON, wide ? 65500 : 65499, wide));
        for (int j = 0, at = 0; j < 3; at += lengths[j++]) {
            OK(shard_write_tokens(&s.w, ids + at, 1)); /* in pieces */
            OK(shard_write_tokens(&s.w, ids + at + 1, lengths[j] - 1));
            OK(shard_write_sequence(&s.w));
            OK(shard_write_document(&s.w));
        }
        OK(shard_write_finish(&s.w));
        assert_same_file(s.folder, "x.bin", "want.bin");
        assert_same_file(s.folder, "x.idx", "want.idx");
    }
    temp_folder_remove(s.folder);
}
END_TEST

START_TEST(test_bytes_llmc)
{
    static const int32_t tokens[] = {1, 65535, 65536};
    struct scene s;

    begin(&s);
    for (int wide = 0; wide < 2; wide++) {
        shard_files_llmc(s.folder, "want", wide ? SHARD_U32 : SHARD_U16, tokens, 2 + wide);
        OK(open_it(&s, SHARD_LLMC, 65536 + wide, wide));
        OK(shard_write_tokens(&s.w, tokens, 2 + wide));
        OK(shard_write_sequence(&s.w));
        OK(shard_write_document(&s.w));
        OK(shard_write_finish(&s.w));
        assert_same_file(s.folder, "x.bin", "want.bin");
        ck_assert_int_eq(temp_folder_count(s.folder), 2);
    }
    temp_folder_remove(s.folder);
}
END_TEST

/* Sequence i of a shard, token by token. */
static void copy_sequence(struct shard_write *w, const struct shard *from, int64_t i)
{
    int32_t id;

    for (int64_t k = shard_sequence(from, i); k < shard_sequence(from, i + 1); k++) {
        shard_read(&id, from, k, 1);
        OK(shard_write_tokens(w, &id, 1));
    }
    OK(shard_write_sequence(w));
}

/* Reads a shard of another program and writes it again: the same files. Many sequences, so that
 * the offsets are written in several pieces. */
START_TEST(test_there_and_back)
{
    char source[TEMP_PATH], path[TEMP_PATH], command[5 * TEMP_PATH];
    static const char *const names[] = {"edge_u16", "prose_val_dolma2_paragraphs_i32"};
    struct scene s;
    struct shard from;

    begin(&s);
    for (int k = 0; k < 2; k++) {
        int64_t sequence = 0;

        snprintf(path, sizeof path, "tests/data/shards/%s", names[k]);
        OK(shard_open(&from, temp_folder_source(source, path)));
        OK(open_it(&s, SHARD_MEGATRON, k ? 100278 : 65499, 1));
        for (int64_t j = 0; j < from.documents; j++) {
            for (; sequence < shard_number(from.index.documents, j + 1, 8); sequence++)
                copy_sequence(&s.w, &from, sequence);
            OK(shard_write_document(&s.w));
        }
        OK(shard_write_finish(&s.w));
        snprintf(command, sizeof command, "cmp '%s.bin' '%s.bin' && cmp '%s.idx' '%s.idx'", source,
                 s.prefix, source, s.prefix);
        ck_assert_int_eq(system(command), 0);
        shard_close(&from);
    }
    temp_folder_remove(s.folder);
}
END_TEST

START_TEST(test_many_sequences)
{
    enum { MANY = 5000 };
    struct scene s;
    struct shard back;

    begin(&s);
    OK(open_it(&s, SHARD_MEGATRON, 300, 0));
    for (int32_t i = 0; i < MANY; i++) {
        for (int32_t k = 0; k < i % 7; k++)
            OK(shard_write_tokens(&s.w, &k, 1));
        OK(shard_write_sequence(&s.w));
        if (i % 3 == 0)
            OK(shard_write_document(&s.w));
    }
    OK(shard_write_document(&s.w));
    OK(shard_write_finish(&s.w));
    OK(shard_open(&back, s.prefix));
    ck_assert(back.sequences == MANY && back.documents == MANY / 3 + 2);
    for (int64_t i = 0; i < MANY; i++)
        ck_assert_int_eq(shard_sequence(&back, i + 1) - shard_sequence(&back, i), i % 7);
    shard_close(&back);
    temp_folder_remove(s.folder);
}
END_TEST

/* Nothing is left of what was not finished; what was there before stays. */
START_TEST(test_all_or_nothing)
{
    static const int32_t ids[1000] = {1}, lengths[] = {1000};
    struct scene s;
    struct shard_write second;

    begin(&s);
    OK(open_it(&s, SHARD_MEGATRON, 300, 0));
    ck_assert_int_eq(shard_write_open(&second, s.prefix, SHARD_MEGATRON, 300, 1), ST_EIO);
    ck_assert_ptr_nonnull(strstr(status_message(), "another process"));
    OK(shard_write_tokens(&s.w, ids, 1000));
    shard_write_abandon(&s.w);
    ck_assert_int_eq(temp_folder_count(s.folder), 0);
    OK(open_it(&s, SHARD_MEGATRON, 300, 0));
    ck_assert_int_eq(shard_write_finish(&s.w), ST_EFORMAT); /* no token */
    ck_assert_int_eq(temp_folder_count(s.folder), 0);
    shard_files_megatron(s.folder, "x", SHARD_U16, ids, lengths, 1);
    shard_files_megatron(s.folder, "want", SHARD_U16, ids, lengths, 1);
    ck_assert_int_eq(open_it(&s, SHARD_MEGATRON, 300, 0), ST_ECONFIG);
    ck_assert_ptr_nonnull(strstr(status_message(), "x.bin is there already"));
    ck_assert_int_eq(open_it(&s, SHARD_LLMC, 300, 0), ST_ECONFIG);
    temp_folder_remove(s.folder);
}
END_TEST

/* A disk that is full while tokens are written, and one that is when they are flushed. */
START_TEST(test_full_disk)
{
    static const int32_t ids[1000] = {1}, lengths[] = {1000};
    static const int times[] = {1000, 4};
    struct scene s;
    enum status st = ST_OK;

    begin(&s);
    shard_files_megatron(s.folder, "x", SHARD_U16, ids, lengths, 1);
    shard_files_megatron(s.folder, "want", SHARD_U16, ids, lengths, 1);
    temp_folder_limit(7000);
    for (int k = 0; k < 2; k++) {
        st = open_it(&s, SHARD_MEGATRON, 300, 1);
        for (int i = 0; i < times[k] && st == ST_OK; i++)
            st = shard_write_tokens(&s.w, ids, 1000);
        if (k == 0)
            shard_write_abandon(&s.w);
        else if (st == ST_OK && shard_write_sequence(&s.w) == ST_OK &&
                 shard_write_document(&s.w) == ST_OK)
            st = shard_write_finish(&s.w);
        ck_assert_int_eq(st, ST_EIO);
        ck_assert_ptr_nonnull(strstr(status_message(), "x.bin.part"));
    }
    assert_same_file(s.folder, "x.bin", "want.bin");
    assert_same_file(s.folder, "x.idx", "want.idx");
    ck_assert_int_eq(temp_folder_count(s.folder), 4);
    temp_folder_remove(s.folder);
}
END_TEST

/* D17: what the formats cannot count is refused, not cut. */
START_TEST(test_d17_counts)
{
    static const int32_t ids[10] = {1};
    struct scene s;

    begin(&s);
    OK(open_it(&s, SHARD_LLMC, 300, 0));
    s.w.count = INT64_C(2147483647) - 10;
    OK(shard_write_tokens(&s.w, ids, 10));
    ck_assert_int_eq(shard_write_tokens(&s.w, ids, 1), ST_ECONFIG);
    ck_assert_ptr_nonnull(strstr(status_message(), "--format megatron"));
    shard_write_abandon(&s.w);
    OK(open_it(&s, SHARD_MEGATRON, 300, 0));
    s.w.count = INT64_C(1) << 40;
    s.w.length = INT64_C(2147483647) - 10;
    OK(shard_write_tokens(&s.w, ids, 10));
    ck_assert_int_eq(shard_write_tokens(&s.w, ids, 1), ST_ECONFIG);
    shard_write_abandon(&s.w);
    temp_folder_remove(s.folder);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("shard_write");
    TCase *c = tcase_create("shard_write");

    tcase_add_test(c, test_bytes);
    tcase_add_test(c, test_bytes_llmc);
    tcase_add_test(c, test_there_and_back);
    tcase_add_test(c, test_many_sequences);
    tcase_add_test(c, test_all_or_nothing);
    tcase_add_test(c, test_full_disk);
    tcase_add_test(c, test_d17_counts);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return check_unit(suite());
}
