/* Writing safetensors files, values that come back, and what a full disk leaves. */
#include "common/checkpoint/safetensors.h"
#include "tests/unit/check_unit.h"
#include "tests/unit/temp_folder.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

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

/* ---- values ---- */

/* The number that a half stands for, by its definition. */
static double half(unsigned h)
{
    int exponent = (int)(h >> 10 & 31), part = (int)(h & 1023);
    double sign = h & 0x8000 ? -1 : 1;

    if (exponent == 31)
        return part ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(1024 + part, exponent - 25) : ldexp(part, -24));
}

START_TEST(test_half)
{
    static const struct safetensors_spec spec = {"h", SAFETENSORS_F16, 1, {65536}};
    uint16_t *in = malloc(65536 * sizeof *in);
    double *out = malloc(65536 * sizeof *out);
    struct safetensors_writer w;
    struct safetensors f;
    char path[TEMP_PATH];

    for (int i = 0; i < 65536; i++)
        in[i] = (uint16_t)i;
    OK(safetensors_create(&w, temp_folder_path(path, folder, "half"), &spec, 1, NULL));
    OK(safetensors_put(&w, "h", in));
    OK(safetensors_finish(&w));
    OK(safetensors_open(&f, path));
    OK(safetensors_read(out, DT_F64, safetensors_find(&f, "h"), 0, 65536));
    for (unsigned i = 0; i < 65536; i++) {
        double want = half(i);

        ck_assert(isnan(want) ? isnan(out[i])
                              : out[i] == want && !signbit(out[i]) == !signbit(want));
    }
    safetensors_close(&f);
    free(in);
    free(out);
}
END_TEST

START_TEST(test_values)
{
    static const struct safetensors_spec spec[] = {{"b", SAFETENSORS_BF16, 2, {1, 2}},
                                                   {"d", SAFETENSORS_F64, 1, {2}},
                                                   {"f", SAFETENSORS_F32, 2, {2, 2}},
                                                   {"i", SAFETENSORS_I8, 0, {0}},
                                                   {"none", SAFETENSORS_F32, 2, {0, 7}}};
    static const char *const metadata[] = {"format", "pt", NULL};
    static const uint16_t b[] = {0x3f80, 0xc040};
    static const double d[] = {0.1, -1e300};
    static const float f32[] = {1.5f, -2.25f, 3e38f, 1e-40f};
    static const int8_t i8 = -7;
    const void *data[] = {b, d, f32, &i8, NULL};
    struct safetensors_writer w;
    struct safetensors f;
    char path[TEMP_PATH];
    double wide[4];
    float single[4];

    OK(safetensors_create(&w, temp_folder_path(path, folder, "values"), spec, 5, metadata));
    for (int i = 4; i >= 0; i--)
        OK(safetensors_put(&w, spec[i].name, data[i]));
    OK(safetensors_finish(&w));
    OK(safetensors_open(&f, path));
    ck_assert_str_eq(safetensors_metadata(&f, "format"), "pt");
    ck_assert_int_eq(f.n, 5);
    ck_assert_ptr_null(safetensors_find(&f, "x"));
    ck_assert_uint_eq(safetensors_find(&f, "d")->begin, 0); /* by falling size of an element */
    ck_assert_uint_eq(safetensors_find(&f, "f")->begin, 16);
    ck_assert_uint_eq(safetensors_find(&f, "b")->begin, 32);
    ck_assert_uint_eq(safetensors_find(&f, "i")->begin, 36);
    ck_assert_uint_eq((size_t)((const char *)safetensors_find(&f, "d")->data - (char *)f.map) % 8,
                      0);
    OK(safetensors_read(wide, DT_F64, safetensors_find(&f, "b"), 0, 2));
    ck_assert(wide[0] == 1.0 && wide[1] == -3.0);
    OK(safetensors_read(single, DT_F32, safetensors_find(&f, "d"), 0, 2));
    ck_assert(single[0] == 0.1f && isinf(single[1]));
    OK(safetensors_read(wide, DT_F64, safetensors_find(&f, "f"), 1, 3));
    ck_assert(wide[0] == -2.25 && wide[1] == (double)3e38f && wide[2] == (double)1e-40f);
    OK(safetensors_read(single, DT_F32, safetensors_find(&f, "f"), 0, 4));
    ck_assert_mem_eq(single, f32, sizeof f32);
    OK(safetensors_read(single, DT_F32, safetensors_find(&f, "none"), 0, 0));
    ck_assert_int_eq(safetensors_read(single, DT_F32, safetensors_find(&f, "i"), 0, 1), ST_EFORMAT);
    ck_assert_int_eq(safetensors_read(single, DT_F32, safetensors_find(&f, "f"), 1, 4),
                     ST_EINTERNAL);
    safetensors_close(&f);
}
END_TEST

/* ---- writing ---- */

static void write_one(const char *path, float value)
{
    static const struct safetensors_spec spec = {"x", SAFETENSORS_F32, 1, {1}};
    struct safetensors_writer w;

    OK(safetensors_create(&w, path, &spec, 1, NULL));
    OK(safetensors_put(&w, "x", &value));
    OK(safetensors_finish(&w));
}

/* path still holds `value` and nothing unfinished lies beside it. */
static void assert_holds(const char *path, float value)
{
    struct safetensors f;
    char partial[TEMP_PATH + 16];
    float found;

    OK(safetensors_open(&f, path));
    OK(safetensors_read(&found, DT_F32, safetensors_find(&f, "x"), 0, 1));
    ck_assert(found == value);
    safetensors_close(&f);
    snprintf(partial, sizeof partial, "%s.partial", path);
    ck_assert_int_ne(access(partial, F_OK), 0);
}

START_TEST(test_unfinished)
{
    static const struct safetensors_spec two[] = {{"x", SAFETENSORS_F32, 1, {1}},
                                                  {"y", SAFETENSORS_F32, 1, {1}}};
    static const struct safetensors_spec twice[] = {{"x", SAFETENSORS_F32, 1, {1}},
                                                    {"x", SAFETENSORS_F64, 1, {1}}};
    struct safetensors_writer w;
    char path[TEMP_PATH];
    float value = 2;

    write_one(temp_folder_path(path, folder, "file"), 1);
    OK(safetensors_create(&w, path, two, 2, NULL));
    OK(safetensors_put(&w, "x", &value));
    ck_assert_int_eq(safetensors_put(&w, "x", &value), ST_EINTERNAL);
    ck_assert_int_eq(safetensors_put(&w, "z", &value), ST_EINTERNAL);
    ck_assert_int_eq(safetensors_finish(&w), ST_EINTERNAL);
    assert_holds(path, 1);
    OK(safetensors_create(&w, path, two, 2, NULL));
    safetensors_drop(&w);
    assert_holds(path, 1);
    ck_assert_int_eq(safetensors_create(&w, path, twice, 2, NULL), ST_EINTERNAL);
    assert_holds(path, 1);
    write_one(path, 3);
    assert_holds(path, 3);
}
END_TEST

START_TEST(test_no_folder)
{
    static const struct safetensors_spec spec = {"x", SAFETENSORS_F32, 1, {1}};
    struct safetensors_writer w;
    char path[TEMP_PATH];

    ck_assert_int_eq(
        safetensors_create(&w, temp_folder_path(path, folder, "no/file"), &spec, 1, NULL), ST_EIO);
    ck_assert_msg(strstr(status_message(), "no/file") && strstr(status_message(), "No such file"),
                  "%s", status_message());
}
END_TEST

START_TEST(test_full_disk)
{
    static const struct safetensors_spec spec = {"x", SAFETENSORS_F32, 1, {100000}};
    struct safetensors_writer w;
    float *values = calloc(100000, sizeof *values);
    char path[TEMP_PATH];

    write_one(temp_folder_path(path, folder, "file"), 1);
    temp_folder_limit(65536);
    OK(safetensors_create(&w, path, &spec, 1, NULL));
    ck_assert_int_eq(safetensors_put(&w, "x", values), ST_EIO);
    ck_assert_msg(strstr(status_message(), path) && strstr(status_message(), "too large"), "%s",
                  status_message());
    safetensors_drop(&w);
    assert_holds(path, 1);
    free(values);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("safetensors_write");
    TCase *c = tcase_create("safetensors_write");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 60);
    suite_add_tcase(suite, c);
    tcase_add_test(c, test_half);
    tcase_add_test(c, test_values);
    tcase_add_test(c, test_unfinished);
    tcase_add_test(c, test_no_folder);
    tcase_add_test(c, test_full_disk);
    return check_unit(suite);
}
