/* From files to files: import, export, merging; and rounding to the types of files. */
#include "common/checkpoint/model_files.h"
#include "common/checkpoint/weights.h"
#include "tests/unit/check_unit.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/tiny_model.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

#undef fail

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

/* Models of every kind, with distinct gains: a swap of two norms would show. */
static const char *const models[][5] = {
    {"model.layer=full", NULL},
    {"model.layer=full", "model.tied=on", "model.kv_heads=1", "model.qkv_bias=on", NULL},
    {"model.layer=full", "model.outer_silu=off", "model.rope_theta=500000", NULL},
    {"model.layer=cola", "model.kv_heads=4", NULL},
    {"model.layer=cola", "model.qkv_bias=on", "model.outer_silu=on", NULL},
    {"model.layer=svd", "model.tied=on", NULL},
    {"model.layer=svd", "train.precision=fp64", NULL}};

enum { MODELS = sizeof models / sizeof *models };

/* Every vector gets values of its own. */
static void set_vectors(struct tiny_model *a)
{
    for (int i = 0; i < a->m.params.n; i++) {
        struct param *row = &a->m.params.item[i];
        char values[512 * sizeof(double)];

        if (!param_is_vector(row))
            continue;
        for (int64_t j = 0; j < row->cols; j++)
            dtype_store(values, a->m.params.wide, j, 0.01 * i + 0.3 + 0.001 * (double)j);
        OK(param_set(&a->m.params, row, a->dev, values));
    }
}

/* Saves models[i] to folder/name as a training does; path [TEMP_PATH]. */
static void save(char *path, const char *name, int i)
{
    struct tiny_model a;

    tiny_model_config(&a.cfg, models[i], 1);
    tiny_model_open(&a, 0, 1, 1, 3);
    set_vectors(&a);
    OK(weights_save(temp_folder_path(path, folder, name), &a.m, a.dev, NULL));
    tiny_model_close(&a);
}

static int same_file(const char *a, const char *b, const char *name)
{
    char path[TEMP_PATH];
    size_t n, m;
    char *x = temp_folder_read(temp_folder_path(path, a, name), &n);
    char *y = temp_folder_read(temp_folder_path(path, b, name), &m);
    int same = n == m && !memcmp(x, y, n);

    free(x);
    free(y);
    return same;
}

static enum status export_to(const char *from, const char *to, enum safetensors_type type,
                             int merge, struct device *products)
{
    struct export_form form = {.type = type, .merge = merge, .products = products};
    struct model_files *f = malloc(sizeof *f);
    struct outlet o;
    enum status st;

    st = model_files_open(f, from);
    if (st == ST_OK) {
        form.ids = f->source.ids;
        st = model_files_export(&o, f, to, &form);
        model_files_close(f);
        if (st == ST_OK)
            st = outlet_commit(&o);
    }
    free(f);
    return st;
}

static enum status import_to(const char *from, const char *to)
{
    struct model_files *f = malloc(sizeof *f);
    enum status st = model_files_open(f, from);

    if (st == ST_OK) {
        st = model_files_import(f, to, NULL);
        model_files_close(f);
    }
    free(f);
    return st;
}

/* save -> export -> import gives the saved file; export -> import -> export the exported one. */
START_TEST(test_round_trip)
{
    enum safetensors_type type = _i == MODELS - 1 ? SAFETENSORS_F64 : SAFETENSORS_F32;
    char own[TEMP_PATH], out[TEMP_PATH], in[TEMP_PATH], again[TEMP_PATH];

    save(own, "own", _i);
    temp_folder_path(out, folder, "out");
    temp_folder_path(in, folder, "in");
    temp_folder_path(again, folder, "again");
    OK(export_to(own, out, type, 0, NULL));
    OK(import_to(out, in));
    ck_assert(same_file(own, in, WEIGHTS_TENSORS));
    OK(export_to(in, again, type, 0, NULL));
    ck_assert(same_file(out, again, WEIGHTS_TENSORS));
    ck_assert(same_file(out, again, WEIGHTS_CONFIG));
    ck_assert(same_file(out, again, "generation_config.json"));
}
END_TEST

/* In bf16 or f16 it is the identity from the first export on. */
START_TEST(test_round_trip_of_halves)
{
    enum safetensors_type type = _i % 2 ? SAFETENSORS_BF16 : SAFETENSORS_F16;
    char own[TEMP_PATH], out[TEMP_PATH], in[TEMP_PATH], again[TEMP_PATH];

    save(own, "own", _i / 2);
    temp_folder_path(out, folder, "out");
    temp_folder_path(in, folder, "in");
    temp_folder_path(again, folder, "again");
    OK(export_to(own, out, type, 0, NULL));
    OK(import_to(out, in));
    OK(export_to(in, again, type, 0, NULL));
    ck_assert(same_file(out, again, WEIGHTS_TENSORS));
    ck_assert(same_file(out, again, WEIGHTS_CONFIG));
}
END_TEST

/* ---- merging ---- */

static void check_product(const struct source *s, const struct source_tensor *w)
{
    const struct source_tensor *a, *b;
    double ax[64 * 64], bx[64 * 64];
    float wx[64 * 64];
    char name[128];
    size_t stem = strlen(w->name) - strlen(".weight");

    snprintf(name, sizeof name, "%.*s.down.weight", (int)stem, w->name);
    a = source_find(s, name);
    snprintf(name, sizeof name, "%.*s.up.weight", (int)stem, w->name);
    b = source_find(s, name);
    ck_assert(a && b);
    OK(source_read_all(ax, DT_F64, a));
    OK(source_read_all(bx, DT_F64, b));
    OK(source_read_all(wx, DT_F32, w));
    for (int64_t i = 0; i < w->rows; i++)
        for (int64_t j = 0; j < w->cols; j++) {
            long double sum = 0, size = 0;

            for (int64_t k = 0; k < a->rows; k++) {
                sum += (long double)bx[i * b->cols + k] * ax[k * a->cols + j];
                size += fabsl((long double)bx[i * b->cols + k] * ax[k * a->cols + j]);
            }
            /* float64's own error could only show where the sum lies between two floats */
            if (wx[i * w->cols + j] != (float)sum)
                ck_assert_msg(fabsl(wx[i * w->cols + j] - sum) <=
                                  fabsl((float)sum - sum) + 16 * 0x1p-53L * size,
                              "%s [%d, %d]", w->name, (int)i, (int)j);
        }
}

/* Each matrix is B A in float64, rounded once; the rest is as it was. */
START_TEST(test_merge)
{
    struct device_options cpu = {.threads = 1, .local_size = 1};
    char own[TEMP_PATH], out[TEMP_PATH];
    struct source s, d;
    struct device *products;
    struct config cfg;
    int merged = 0;

    save(own, "own", 5);
    OK(device_open(&products, &ref64_backend, &cpu));
    OK(export_to(own, temp_folder_path(out, folder, "out"), SAFETENSORS_F32, 1, products));
    device_close(products);
    config_default(&cfg);
    OK(weights_config(&cfg, out));
    ck_assert(cfg.model.layer == LAYER_FULL && cfg.model.tied);
    OK(source_open(&s, own));
    OK(source_open(&d, out));
    ck_assert_int_eq(d.kind, HF_LLAMA);
    for (int i = 0; i < d.n; i++)
        if (!source_find(&s, d.tensor[i].name)) {
            check_product(&s, &d.tensor[i]);
            merged++;
        }
    ck_assert_int_eq(merged, 7 * 2);
    source_close(&d);
    source_close(&s);
}
END_TEST

START_TEST(test_refused)
{
    char own[TEMP_PATH], out[TEMP_PATH];

    save(own, "own", 3);
    temp_folder_path(out, folder, "out");
    ck_assert_int_eq(export_to(own, out, SAFETENSORS_F32, 1, NULL), ST_EUSAGE);
    ck_assert_msg(strstr(status_message(), "no dense matrix") != NULL, "%s", status_message());
    status_clear();
    ck_assert_int_eq(import_to(own, own), ST_EUSAGE);
    ck_assert_msg(strstr(status_message(), "not empty") != NULL, "%s", status_message());
    save(own, "full", 0);
    status_clear();
    ck_assert_int_eq(export_to(own, out, SAFETENSORS_F32, 1, NULL), ST_EUSAGE);
    ck_assert_msg(strstr(status_message(), "full rank") != NULL, "%s", status_message());
    ck_assert_int_eq(temp_folder_count(folder), 2);
}
END_TEST

/* A value that float16 cannot hold: nothing is left behind. */
START_TEST(test_too_large)
{
    char own[TEMP_PATH], out[TEMP_PATH];
    struct tiny_model a;
    float big[64];

    tiny_model_config(&a.cfg, models[0], 1);
    tiny_model_open(&a, 0, 1, 1, 3);
    for (int i = 0; i < 64; i++)
        big[i] = 65519.0f;
    OK(param_set(&a.m.params, params_find(&a.m.params, "model.norm.weight"), a.dev, big));
    temp_folder_path(own, folder, "own");
    temp_folder_path(out, folder, "out");
    OK(weights_save(own, &a.m, a.dev, NULL));
    OK(export_to(own, out, SAFETENSORS_F16, 0, NULL));
    temp_folder_path(out, folder, "more");
    big[7] = 65520.0f;
    OK(param_set(&a.m.params, params_find(&a.m.params, "model.norm.weight"), a.dev, big));
    OK(weights_save(own, &a.m, a.dev, NULL));
    ck_assert_int_eq(export_to(own, out, SAFETENSORS_F16, 0, NULL), ST_EFORMAT);
    ck_assert_msg(strstr(status_message(), "model.norm.weight: value 7 is 65520") != NULL, "%s",
                  status_message());
    ck_assert_int_eq(temp_folder_count(folder), 2);
    tiny_model_close(&a);
}
END_TEST

/* ---- rounding ---- */

/* Every half comes back from what it stands for, and halfway goes to the even neighbour. */
START_TEST(test_halves)
{
    for (uint32_t i = 0; i < 0x7c00; i++) {
        uint16_t h = (uint16_t)i, up = (uint16_t)(i + 1), got;
        struct safetensors_tensor t = {
            .name = "h", .type = SAFETENSORS_F16, .count = 1, .data = &h};
        double x, y = 65536.0, middle;

        OK(safetensors_read(&x, DT_F64, &t, 0, 1));
        OK(safetensors_pack(&got, SAFETENSORS_F16, &x, DT_F64, 1));
        ck_assert_uint_eq(got, h);
        t.data = &up;
        if (up < 0x7c00)
            OK(safetensors_read(&y, DT_F64, &t, 0, 1));
        middle = (x + y) / 2;
        for (int side = -1; side <= 1 && up < 0x7c00; side++) {
            double z = side < 0 ? nextafter(middle, x) : side > 0 ? nextafter(middle, y) : middle;
            uint16_t want = side < 0 ? h : side > 0 ? up : i % 2 ? up : h;

            OK(safetensors_pack(&got, SAFETENSORS_F16, &z, DT_F64, 1));
            ck_assert_uint_eq(got, want);
            z = -z;
            OK(safetensors_pack(&got, SAFETENSORS_F16, &z, DT_F64, 1));
            ck_assert_uint_eq(got, want | 0x8000u);
        }
    }
}
END_TEST

/* A double is rounded to bf16 once: not first to float, which would make this one even. */
START_TEST(test_bf16_once)
{
    double above = 1.0 + 0x1p-8 + 0x1p-40, below = 1.0 + 0x1p-8 - 0x1p-40;
    double odd = 1.0 + 0x1p-7 + 0x1p-8 - 0x1p-40;
    uint16_t got;

    OK(safetensors_pack(&got, SAFETENSORS_BF16, &above, DT_F64, 1));
    ck_assert_uint_eq(got, 0x3f81);
    OK(safetensors_pack(&got, SAFETENSORS_BF16, &below, DT_F64, 1));
    ck_assert_uint_eq(got, 0x3f80);
    OK(safetensors_pack(&got, SAFETENSORS_BF16, &odd, DT_F64, 1));
    ck_assert_uint_eq(got, 0x3f81);
    for (uint32_t i = 0; i < 0x7f80; i++) {
        double x = (double)bf16_to_float((uint16_t)i);

        OK(safetensors_pack(&got, SAFETENSORS_BF16, &x, DT_F64, 1));
        ck_assert_uint_eq(got, i);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("model_files");
    TCase *c = tcase_create("model_files");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 120);
    suite_add_tcase(suite, c);
    tcase_add_loop_test(c, test_round_trip, 0, MODELS);
    tcase_add_loop_test(c, test_round_trip_of_halves, 0, 2 * MODELS);
    tcase_add_test(c, test_merge);
    tcase_add_test(c, test_refused);
    tcase_add_test(c, test_too_large);
    tcase_add_test(c, test_halves);
    tcase_add_test(c, test_bf16_once);
    return check_unit(suite);
}
