/* Reading safetensors files: the stored cases, and damage. */
#include "common/checkpoint/safetensors.h"
#include "tests/unit/check_unit.h"
#include "tests/unit/temp_folder.h"

#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

enum { TEXT = 1 << 16, CASES = 86, STRICT = 7 };

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

/* A file with that header and n bytes of data. */
static const char *made_up(char path[TEMP_PATH], const char *header, size_t n)
{
    uint64_t length = strlen(header);
    unsigned char *bytes = calloc(1, 8 + length + n);

    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    temp_folder_write(temp_folder_path(path, folder, "made_up.safetensors"), bytes, 8 + length + n);
    free(bytes);
    return path;
}

/* "name:TYPE:[shape]:bytes;..." */
static void describe(char *out, const struct safetensors *f)
{
    size_t at = 0;

    out[0] = '\0';
    for (int i = 0; i < f->n; i++) {
        const struct safetensors_tensor *t = &f->tensor[i];

        at += (size_t)snprintf(out + at, TEXT - at, "%s%s:%s:[", i ? ";" : "", t->name,
                               safetensors_type_name(t->type));
        for (int j = 0; j < t->rank; j++)
            at += (size_t)snprintf(out + at, TEXT - at, "%s%lld", j ? ", " : "",
                                   (long long)t->shape[j]);
        at += (size_t)snprintf(out + at, TEXT - at, "]:%zu", t->end - t->begin);
    }
}

/* ---- the stored cases ---- */

static void check_case(const json_t *row, int *strict)
{
    const char *name = json_string_value(json_object_get(row, "file"));
    const char *said = json_string_value(json_object_get(row, "reference"));
    const char *tensors = json_string_value(json_object_get(row, "tensors"));
    int lenient = json_object_get(row, "strict_reader_may_reject") != NULL;
    int good = !strcmp(said, "accept") && !lenient;
    char part[256], path[TEMP_PATH], *found = malloc(TEXT);
    struct safetensors f;
    enum status st;

    *strict += lenient;
    snprintf(part, sizeof part, "tests/data/safetensors/cases/%s", name);
    status_clear();
    st = safetensors_open(&f, temp_folder_source(path, part));
    ck_assert_msg(st == (good ? ST_OK : ST_EFORMAT), "%s: status %d: %s", name, (int)st,
                  status_message());
    if (good) {
        size_t all = strlen(tensors);

        describe(found, &f);
        if (all > 3 && !strcmp(tensors + all - 3, "..."))
            found[all -= 3] = '\0'; /* the manifest cuts off a long list */
        ck_assert_msg(strlen(found) == all && !strncmp(found, tensors, all), "%s: %.200s", name,
                      found);
        safetensors_close(&f);
    } else {
        ck_assert_msg(strstr(status_message(), name) != NULL, "%s: %s", name, status_message());
    }
    free(found);
}

START_TEST(test_cases)
{
    char path[TEMP_PATH], *line = malloc(TEXT);
    FILE *in = fopen(temp_folder_source(path, "tests/data/safetensors/manifest.jsonl"), "r");
    int rows = 0, strict = 0;

    ck_assert_msg(in != NULL, "cannot read %s", path);
    while (fgets(line, TEXT, in)) {
        json_t *row = json_loads(line, 0, NULL);

        ck_assert_ptr_nonnull(row);
        check_case(row, &strict);
        json_decref(row);
        rows++;
    }
    ck_assert_int_eq(rows, CASES);
    ck_assert_int_eq(strict, STRICT);
    fclose(in);
    free(line);
}
END_TEST

/* ---- damage ---- */

/* Looks at every byte of every tensor: a wrong pointer does not survive it (AddressSanitizer). */
static void touch(const struct safetensors *f)
{
    for (int i = 0; i < f->n; i++)
        for (size_t j = 0; j < f->tensor[i].end - f->tensor[i].begin; j++)
            (void)((const volatile unsigned char *)f->tensor[i].data)[j];
}

START_TEST(test_cut_off)
{
    char path[TEMP_PATH], cut[TEMP_PATH];
    size_t n;
    char *bytes = temp_folder_read(
        temp_folder_source(path, "tests/data/safetensors/cases/metadata_and_tensor.safetensors"),
        &n);
    struct safetensors f;

    temp_folder_path(cut, folder, "cut.safetensors");
    for (size_t i = 0; i < n; i++) {
        temp_folder_write(cut, bytes, i);
        ck_assert_int_eq(safetensors_open(&f, cut), ST_EFORMAT);
    }
    temp_folder_write(cut, bytes, n);
    OK(safetensors_open(&f, cut));
    ck_assert_str_eq(safetensors_metadata(&f, "step"), "12");
    ck_assert_ptr_null(safetensors_metadata(&f, "no such key"));
    safetensors_close(&f);
    free(bytes);
}
END_TEST

START_TEST(test_changed_bytes)
{
    static const char values[] = {0, ' ', '"', '0', '9', '-', ',', ':', '[', '{', '\xff'};
    static const char *const names[] = {
        "tests/data/safetensors/cases/header_order_differs_from_data_order.safetensors",
        "tests/data/safetensors/cases/zero_sized_between.safetensors",
        "tests/data/safetensors/cases/metadata_and_tensor.safetensors"};
    char path[TEMP_PATH], changed[TEMP_PATH];
    struct safetensors f;
    size_t n, refused = 0;

    temp_folder_path(changed, folder, "changed.safetensors");
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        char *bytes = temp_folder_read(temp_folder_source(path, names[k]), &n);

        for (size_t i = 0; i < n * sizeof values; i++) {
            char was = bytes[i / sizeof values];

            bytes[i / sizeof values] = values[i % sizeof values];
            temp_folder_write(changed, bytes, n);
            bytes[i / sizeof values] = was;
            if (safetensors_open(&f, changed) != ST_OK) {
                refused++;
                continue;
            }
            touch(&f);
            safetensors_close(&f);
        }
        free(bytes);
    }
    ck_assert_uint_gt(refused, 1000);
}
END_TEST

START_TEST(test_deep)
{
    enum { DEPTH = 200000 };
    char path[TEMP_PATH], *header = malloc(2 * DEPTH + 64);
    struct safetensors f;
    int at = snprintf(header, 64, "{\"a\":");

    memset(header + at, '[', DEPTH);
    memset(header + at + DEPTH, ']', DEPTH);
    memcpy(header + at + 2 * DEPTH, "}", 2);
    ck_assert_int_eq(safetensors_open(&f, made_up(path, header, 0)), ST_EFORMAT);
    free(header);
}
END_TEST

START_TEST(test_message)
{
    static const char *const header[][2] = {
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", "span 4 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,9]}}", "outside the 4 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[3,4]}}",
         "tensor b begins at byte 3 of the data, where 4 is next: a overlap"},
        {"{\"\\u001b[2J\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1,5]}}",
         "tensor ?[2J: "},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1,-1],\"data_offsets\":[0,4]}}", "dimension 0"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,0.5],\"data_offsets\":[0,0]}}", "dimension 1"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", "4 to 0 lie outside"},
    };
    char path[TEMP_PATH];
    struct safetensors f;

    for (size_t i = 0; i < sizeof header / sizeof *header; i++) {
        status_clear();
        ck_assert_int_eq(safetensors_open(&f, made_up(path, header[i][0], 4)), ST_EFORMAT);
        ck_assert_msg(strstr(status_message(), header[i][1]) != NULL, "%s", status_message());
        ck_assert_msg(strstr(status_message(), path) != NULL, "%s", status_message());
    }
    status_clear();
    temp_folder_write(temp_folder_path(path, folder, "long"), "\0\0\0\0\0\0\0\x10", 8);
    ck_assert_int_eq(safetensors_open(&f, path), ST_EFORMAT);
    ck_assert_msg(strstr(status_message(), "at most 100000000") != NULL, "%s", status_message());
    status_clear();
    ck_assert_int_eq(safetensors_open(&f, temp_folder_path(path, folder, "nothing")), ST_EIO);
    ck_assert_msg(strstr(status_message(), "No such file") != NULL, "%s", status_message());
    ck_assert_int_eq(safetensors_open(&f, folder), ST_EIO);
}
END_TEST

START_TEST(test_unaligned)
{
    char path[TEMP_PATH];
    struct safetensors f;
    const struct safetensors_tensor *t;
    double value = 1;

    OK(safetensors_open(
        &f, made_up(path, "{\"ab\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4)));
    t = safetensors_find(&f, "ab");
    ck_assert_uint_ne((uintptr_t)t->data % 4, 0);
    OK(safetensors_read(&value, DT_F64, t, 0, 1));
    ck_assert(value == 0);
    safetensors_close(&f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("safetensors");
    TCase *c = tcase_create("safetensors");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 60);
    suite_add_tcase(suite, c);
    tcase_add_test(c, test_cases);
    tcase_add_test(c, test_cut_off);
    tcase_add_test(c, test_changed_bytes);
    tcase_add_test(c, test_deep);
    tcase_add_test(c, test_message);
    tcase_add_test(c, test_unaligned);
    return check_unit(suite);
}
