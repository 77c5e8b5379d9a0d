/* Token shards of other programs: read as they are, and refused when anything disagrees. */
#include "common/data/corpus.h"

#include "tests/unit/check_unit.h"
#include "tests/unit/shard_files.h"
#include "tests/unit/temp_folder.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Opens folder/name. */
static enum status open_in(struct shard *s, const char *folder, const char *name)
{
    char path[TEMP_PATH];

    status_clear();
    return shard_open(s, temp_folder_path(path, folder, name));
}

static void assert_refused(const char *folder, const char *name, enum status want,
                           const char *const *words)
{
    struct shard s;

    ck_assert_msg(open_in(&s, folder, name) == want, "%s: %s", words[0], status_message());
    for (int i = 0; words[i]; i++)
        ck_assert_msg(strstr(status_message(), words[i]) != NULL, "'%s' lacks '%s'",
                      status_message(), words[i]);
}
#define REFUSED(folder, name, ...) \
    assert_refused(folder, name, ST_EFORMAT, (const char *const[]){__VA_ARGS__, NULL})

/* SHA-256 of all tokens as little-endian uint32, by another program. */
static void assert_sum(const struct shard *s, const char *want)
{
    char folder[TEMP_PATH], path[TEMP_PATH], command[2 * TEMP_PATH], got[65] = "";
    int32_t *ids = malloc((size_t)s->count * sizeof *ids);
    FILE *in;

    ck_assert_ptr_nonnull(ids);
    shard_read(ids, s, 0, s->count);
    temp_folder_make(folder);
    temp_folder_write(temp_folder_path(path, folder, "ids"), ids, (size_t)s->count * sizeof *ids);
    snprintf(command, sizeof command, "sha256sum '%s'", path);
    in = popen(command, "r");
    ck_assert_ptr_nonnull(in);
    ck_assert_uint_eq(fread(got, 1, 64, in), 64);
    pclose(in);
    ck_assert_str_eq(got, want);
    temp_folder_remove(folder);
    free(ids);
}

START_TEST(test_others_megatron)
{
    static const int64_t borders[] = {0, 31, 62, 97, 129, 255, 265, 302, 388, 431, 454, 500, 557};
    char folder[TEMP_PATH];
    int32_t ids[7];
    struct shard s;

    temp_folder_source(folder, "tests/data/shards");
    ck_assert_msg(open_in(&s, folder, "prose_val_dolma2_paragraphs_i32") == ST_OK, "%s",
                  status_message());
    ck_assert(s.format == SHARD_MEGATRON && s.type == SHARD_I32 && s.count == 45740);
    ck_assert(s.sequences == 557 && s.documents == 12);
    for (int j = 0; j <= 12; j++)
        ck_assert_int_eq(shard_document(&s, j), shard_sequence(&s, borders[j]));
    ck_assert(shard_sequence(&s, 1) == 2 && shard_sequence(&s, 557) == 45740);
    assert_sum(&s, "e2c1f67bf98a9bbed0c0d5f19b830e7f955d37b15b2e4536ac234c4c35348a3e");
    shard_close(&s);
    ck_assert_int_eq(open_in(&s, folder, "edge_u16.idx"), ST_OK);
    ck_assert(s.count == 7 && s.sequences == 4 && s.documents == 4 && s.type == SHARD_U16);
    shard_read(ids, &s, 0, 7);
    ck_assert(ids[0] == 1 && ids[2] == 3 && ids[6] == 8);
    ck_assert(shard_document(&s, 1) == 3 && shard_document(&s, 2) == 3); /* the empty one */
    assert_sum(&s, "512d24c4e058536c823b3e0a2747199603be9de7c65ec91616ed749c80670cf9");
    shard_close(&s);
}
END_TEST

START_TEST(test_others_llmc)
{
    char folder[TEMP_PATH];
    int32_t id;
    struct shard s;

    temp_folder_source(folder, "tests/data/shards");
    ck_assert_int_eq(open_in(&s, folder, "tiny_shakespeare_val.bin"), ST_OK);
    ck_assert(s.format == SHARD_LLMC && s.type == SHARD_U16 && s.count == 32768);
    ck_assert(s.documents == 1 && shard_document(&s, 0) == 0 && shard_document(&s, 1) == 32768);
    shard_close(&s);
    ck_assert_int_eq(open_in(&s, folder, "prose_val_dolma2_u32.bin"), ST_OK);
    ck_assert(s.type == SHARD_U32 && s.count == 32768);
    shard_read(&id, &s, 0, 1);
    ck_assert_int_eq(id, 100257);
    assert_sum(&s, "dfbe0af6a97be91eacf5c2542c9e4a8ae21c8739581a15ea70cb8a8561a85936");
    shard_close(&s);
}
END_TEST

/* D18: whatever is cut off, and whatever is added, is noticed. */
START_TEST(test_d18_cut_or_longer)
{
    static const char *const blocks[] = {"header", "lengths", "offsets", "borders"};
    static const int ends[] = {34, 50, 82, 122};
    char source[TEMP_PATH], folder[TEMP_PATH], path[TEMP_PATH];
    size_t n, m;
    char *index, *bin;
    struct shard s;

    temp_folder_make(folder);
    index = temp_folder_read(temp_folder_source(source, "tests/data/shards/edge_u16.idx"), &n);
    bin = temp_folder_read(temp_folder_source(source, "tests/data/shards/edge_u16.bin"), &m);
    temp_folder_write(temp_folder_path(path, folder, "x.bin"), bin, m);
    temp_folder_path(path, folder, "x.idx");
    for (size_t cut = 0, block = 0; cut < n; cut++) {
        block += cut == (size_t)ends[block];
        temp_folder_write(path, index, cut);
        REFUSED(folder, "x", "x.idx", "cut inside", blocks[block]);
    }
    temp_folder_write(path, index, n + 1);
    REFUSED(folder, "x", "x.idx", "1 bytes more");
    temp_folder_write(path, index, n);
    ck_assert_int_eq(open_in(&s, folder, "x"), ST_OK);
    shard_close(&s);
    temp_folder_path(path, folder, "x.bin");
    for (size_t cut = 0; cut < m; cut++) {
        temp_folder_write(path, bin, cut);
        REFUSED(folder, "x", "x.bin", "too short", "x.idx");
    }
    temp_folder_write(path, bin, m + 1);
    REFUSED(folder, "x", "x.bin", "15 bytes", "14", "belong together");
    free(index);
    free(bin);
    temp_folder_remove(folder);
}
END_TEST

/* Each number of a Megatron index set to something wrong. */
START_TEST(test_wrong_fields)
{
    static const struct {
        int offset, bytes;
        int64_t value;
        const char *word;
    } rows[] = {
        {0, 1, 'X', "no Megatron index"},
        {8, 1, 1, "no Megatron index"},
        {9, 8, 2, "version 2"},
        {17, 1, 0, "type code 0"},
        {17, 1, 9, "type code 9"},
        {17, 1, SHARD_F32, "float32"},
        {17, 1, SHARD_F64, "float64"},
        {17, 1, SHARD_I32, "sequence 1 begins at byte 6 of the tokens; the one before ends at 12"},
        {17, 1, SHARD_U8, "ends at 3"},
        {18, 8, 3, "bytes more"},
        {18, 8, 5, "cut inside"},
        {18, 8, INT64_MAX, "cut inside"},
        {18, 8, INT64_MAX / 12 + 1, "cut inside"},
        {18, 8, (INT64_C(1) << 62) / 3, "cut inside"},
        {18, 8, -1, "18446744073709551615 sequences"},
        {26, 8, 0, "no document borders"},
        {26, 8, 4, "bytes more"},
        {26, 8, 6, "cut inside the document borders"},
        {26, 8, INT64_MIN, "claims"},
        {34, 4, -1, "sequence 0 has -1 tokens"},
        {34, 4, 2, "sequence 1 begins at byte 6"},
        {34, 4, INT32_MAX, "too short"},
        {50, 8, 2, "sequence 0 begins at byte 2"},
        {58, 8, INT64_MIN, "sequence 1 begins"},
        {74, 8, 14, "sequence 3 begins"},
        {82, 8, 1, "first document"},
        {90, 8, 5, "border 1 is sequence 5"},
        {90, 8, -1, "border 1"},
        {98, 8, 0, "border 2 is sequence 0"},
        {114, 8, 3, "ends at sequence 3 of 4"},
    };
    char source[TEMP_PATH], folder[TEMP_PATH], path[TEMP_PATH];
    size_t n, m;
    char *index, *bin;

    temp_folder_make(folder);
    index = temp_folder_read(temp_folder_source(source, "tests/data/shards/edge_u16.idx"), &n);
    bin = temp_folder_read(temp_folder_source(source, "tests/data/shards/edge_u16.bin"), &m);
    temp_folder_write(temp_folder_path(path, folder, "x.bin"), bin, m);
    temp_folder_path(path, folder, "x.idx");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        temp_folder_write(path, index, n);
        shard_files_poke(path, rows[i].offset, &rows[i].value, (size_t)rows[i].bytes);
        REFUSED(folder, "x", "x.", rows[i].word);
    }
    free(index);
    free(bin);
    temp_folder_remove(folder);
}
END_TEST

/* D03: more sequences than 31 bits count, claimed by a small file: no memory is asked for. */
START_TEST(test_d03_claims)
{
    static const int64_t claim = (INT64_C(1) << 31) + 1;
    const struct shard_plan plan = {.type = SHARD_U16};
    char folder[TEMP_PATH], path[TEMP_PATH];

    temp_folder_make(folder);
    shard_files_index(folder, "x", &plan);
    temp_folder_write(temp_folder_path(path, folder, "x.bin"), "", 0);
    temp_folder_path(path, folder, "x.idx");
    shard_files_poke(path, 18, &claim, 8);
    REFUSED(folder, "x", "x.idx", "2147483649 sequences", "42 bytes");
    temp_folder_remove(folder);
}
END_TEST

/* Headers of llm.c; D17: counts that 31 bits do not hold. */
START_TEST(test_wrong_llmc)
{
    static const struct {
        int word;
        int32_t value;
        const char *say;
    } rows[] = {
        {0, 20240522, "questions for an evaluation"},
        {0, 20240326, "a model"},
        {0, 1, "begins with 1"},
        {0, SHARD_MAGIC_U32, "version 1"},
        {1, 2, "version 2"},
        {2, INT32_MAX, "2147483647 tokens"},
        {2, -1, "-1 tokens"},
        {2, INT32_MIN, "-2147483648 tokens"},
        {2, 4, "too long"},
        {2, 6, "cut"},
    };
    static const int32_t tokens[] = {1, 2, 3, 4, 5};
    char folder[TEMP_PATH], path[TEMP_PATH];
    struct shard s;

    temp_folder_make(folder);
    temp_folder_path(path, folder, "x.bin");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        shard_files_llmc(folder, "x", SHARD_U16, tokens, 5);
        shard_files_poke(path, 4 * rows[i].word, &rows[i].value, 4);
        REFUSED(folder, "x.bin", "x.bin", rows[i].say);
    }
    for (int64_t n = 0; n <= 1035; n++) {
        shard_files_llmc(folder, "x", SHARD_U16, tokens, 5);
        shard_files_stretch(path, n < 1034 ? n : 1035);
        REFUSED(folder, "x.bin", "x.bin", n < 4 ? "bytes" : n < 1034 ? "cut" : "too long");
    }
    shard_files_llmc(folder, "x", SHARD_U32, tokens, 5);
    ck_assert_int_eq(open_in(&s, folder, "x.bin"), ST_OK);
    shard_close(&s);
    ck_assert_int_eq(open_in(&s, folder, "y.bin"), ST_EIO);
    temp_folder_write(temp_folder_path(path, folder, "z.idx"), "", 0);
    ck_assert_int_eq(open_in(&s, folder, "z"), ST_EIO); /* z.bin is missing */
    temp_folder_remove(folder);
}
END_TEST

/* D01: 2.2 GB in one file, mostly a hole; the loader reads its last sample. */
START_TEST(test_d01_large_llmc)
{
    enum { COUNT = 1100000000 };
    static const int32_t header[] = {SHARD_MAGIC_U16, 1, COUNT};
    const struct tokenizer t = {.vocab = 65536, .pad = -1, .end = -1};
    const uint16_t first = 7, last[] = {50001, 50002};
    char folder[TEMP_PATH], path[TEMP_PATH];
    int32_t ids[3];
    struct corpus c;

    temp_folder_make(folder);
    temp_folder_path(path, folder, "big.bin");
    shard_files_stretch(path, 1024 + 2 * (int64_t)COUNT);
    shard_files_poke(path, 0, header, sizeof header);
    shard_files_poke(path, 1024, &first, 2);
    shard_files_poke(path, 1024 + 2 * ((int64_t)COUNT - 2), last, 4);
    ck_assert_msg(corpus_open_any(&c, path, &t, NULL) == ST_OK, "%s", status_message());
    ck_assert(c.count == COUNT && c.documents == 1 && !c.separated);
    corpus_read(ids, &c, 0, 1);
    corpus_read(ids + 1, &c, COUNT - 2, 2);
    ck_assert(ids[0] == 7 && ids[1] == 50001 && ids[2] == 50002);
    corpus_close(&c);
    temp_folder_remove(folder);
}
END_TEST

/* D02: offsets beyond 2^31 and 2^32 bytes. */
START_TEST(test_d02_large_offsets)
{
    static const int32_t lengths[] = {1500000000, 1500000000, 3};
    const struct shard_plan plan = {
        .type = SHARD_U16, .sequences = 3, .documents = 3, .lengths = lengths};
    const uint16_t mark[] = {11, 12, 13};
    char folder[TEMP_PATH], path[TEMP_PATH];
    int32_t ids[3];
    struct shard s;

    temp_folder_make(folder);
    shard_files_index(folder, "big", &plan);
    temp_folder_path(path, folder, "big.bin");
    shard_files_stretch(path, 6000000006);
    shard_files_poke(path, 6000000000, mark, sizeof mark);
    shard_files_poke(path, 3000000000, mark + 1, 2);
    ck_assert_msg(open_in(&s, folder, "big") == ST_OK, "%s", status_message());
    ck_assert_int_eq(s.count, 3000000003);
    ck_assert_int_eq(shard_document(&s, 2), 3000000000);
    shard_read(ids, &s, shard_document(&s, 2), 3);
    ck_assert(ids[0] == 11 && ids[1] == 12 && ids[2] == 13);
    shard_read(ids, &s, shard_document(&s, 1), 1);
    ck_assert_int_eq(ids[0], 12);
    ck_assert_int_eq(shard_check_ids(&s, 13, 2999999000, 1003), ST_EFORMAT);
    ck_assert_ptr_nonnull(strstr(status_message(), "position 3000000002 has id 13"));
    shard_close(&s);
    temp_folder_remove(folder);
}
END_TEST

/* D13: an id outside the vocabulary is found wherever it stands, in every type. */
START_TEST(test_d13_ids)
{
    static const enum shard_type types[] = {SHARD_U16, SHARD_I32, SHARD_I16, SHARD_I64, SHARD_U8};
    static const int32_t length = 3000;
    char folder[TEMP_PATH], path[TEMP_PATH], word[64];
    int32_t *tokens = calloc((size_t)length, sizeof *tokens);
    struct shard s;

    ck_assert_ptr_nonnull(tokens);
    temp_folder_make(folder);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        for (int32_t at = 0; at < length; at += at == 0 || at == 1234 ? 1234 : length - 1 - at) {
            int64_t id = types[i] == SHARD_U8 ? 200 : types[i] == SHARD_U16 ? 300 : -1;
            int width = shard_width(types[i]);

            if (types[i] == SHARD_I64 && at > 0)
                id = INT64_C(1) << 32; /* 0 as 32 bits */
            shard_files_megatron(folder, "x", types[i], tokens, &length, 1);
            shard_files_poke(temp_folder_path(path, folder, "x.bin"), (int64_t)at * width, &id,
                             (size_t)width);
            ck_assert_int_eq(open_in(&s, folder, "x"), ST_OK);
            ck_assert_int_eq(shard_check_ids(&s, 150, 0, at), ST_OK);
            ck_assert_int_eq(shard_check_ids(&s, 150, at + 1, length - at - 1), ST_OK);
            ck_assert_int_eq(shard_check_ids(&s, 150, 0, length), ST_EFORMAT);
            snprintf(word, sizeof word, "x.bin: the token at position %d has id %lld;", (int)at,
                     (long long)id);
            ck_assert_msg(strstr(status_message(), word) != NULL, "'%s' lacks '%s'",
                          status_message(), word);
            ck_assert_ptr_nonnull(strstr(status_message(), "0 to 149"));
            shard_close(&s);
            if (at == length - 1)
                break;
        }
    free(tokens);
    temp_folder_remove(folder);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("shard");
    TCase *c = tcase_create("shard");

    tcase_set_timeout(c, 60);
    tcase_add_test(c, test_others_megatron);
    tcase_add_test(c, test_others_llmc);
    tcase_add_test(c, test_d18_cut_or_longer);
    tcase_add_test(c, test_wrong_fields);
    tcase_add_test(c, test_d03_claims);
    tcase_add_test(c, test_wrong_llmc);
    tcase_add_test(c, test_d01_large_llmc);
    tcase_add_test(c, test_d02_large_offsets);
    tcase_add_test(c, test_d13_ids);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return check_unit(suite());
}
