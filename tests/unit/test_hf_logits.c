/* Models that transformers made or read, against the logits that it computed: 32 positions each.
 * See validation/witness/hf_models.py. */
#include "common/backend/record.h"
#include "common/checkpoint/model_files.h"
#include "common/checkpoint/weights.h"
#include "common/train/generate.h"
#include "tests/unit/check_unit.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/tiny_model.h"

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

enum { POSITIONS = 32 };

/* Transformers computed in float32, and wrote seven digits. */
#define BOUND 1e-5

static const char *const names[] = {"llama", "qwen2", "cola", "cola_outer", "svd", "merged"};

static json_t *stored(const char *name)
{
    char path[TEMP_PATH], part[128];
    json_t *root;

    snprintf(part, sizeof part, "validation/data/hf/%s/logits.json", name);
    root = json_load_file(temp_folder_source(path, part), 0, NULL);
    ck_assert_msg(root != NULL, "%s", path);
    return root;
}

/* The worst difference over the largest logit, position by position. */
static double follow(const char *dir, json_t *root, const char *precision)
{
    json_t *tokens = json_object_get(root, "tokens"), *logits = json_object_get(root, "logits");
    struct tiny_model a;
    struct step_place at = {0};
    struct generator g;
    double worst = 0, size = 0;

    config_default(&a.cfg);
    OK(weights_config(&a.cfg, dir));
    OK(config_override(&a.cfg, precision));
    OK(config_resolve(&a.cfg, 1, 0));
    tiny_model_open(&a, 0, 1, 0, 1);
    OK(weights_load(&a.m, a.dev, dir));
    at.dev = a.dev;
    OK(record_comm(&at.tp, a.dev, 0, 1, NULL));
    OK(generator_open(&g, &a.m, &at, POSITIONS + 1, 0));
    ck_assert_uint_eq(json_array_size(logits), POSITIONS);
    for (size_t i = 0; i < POSITIONS; i++) {
        const json_t *row = json_array_get(logits, i);
        const float *x;

        OK(generator_push(&g, (int32_t)json_integer_value(json_array_get(tokens, i))));
        OK(generator_logits(&g, &x));
        ck_assert_int_eq((int64_t)json_array_size(row), a.cfg.model.vocab);
        for (size_t j = 0; j < json_array_size(row); j++) {
            double want = json_number_value(json_array_get(row, j));

            worst = fmax(worst, fabs((double)x[j] - want));
            size = fmax(size, fabs(want));
        }
    }
    generator_close(&g);
    comm_destroy(at.tp);
    tiny_model_close(&a);
    return worst / size;
}

START_TEST(test_logits)
{
    json_t *root = stored(names[_i]);
    char path[TEMP_PATH], part[128];
    double off;

    snprintf(part, sizeof part, "validation/data/hf/%s", names[_i]);
    temp_folder_source(path, part);
    off = follow(path, root, "train.precision=fp32");
    ck_assert_msg(off <= BOUND, "%s, fp32: %g", names[_i], off);
    off = follow(path, root, "train.precision=fp64");
    ck_assert_msg(off <= BOUND, "%s, fp64: %g", names[_i], off);
    json_decref(root);
}
END_TEST

/* What is imported and exported again has the same logits, whatever the layout of the files. */
START_TEST(test_there_and_back)
{
    json_t *root = stored(names[_i]);
    struct export_form form = {.type = SAFETENSORS_F32};
    char path[TEMP_PATH], part[128], folder[TEMP_PATH], in[TEMP_PATH], out[TEMP_PATH];
    struct model_files *f = malloc(sizeof *f);
    struct outlet o;
    double off;

    temp_folder_make(folder);
    temp_folder_path(in, folder, "in");
    temp_folder_path(out, folder, "out");
    snprintf(part, sizeof part, "validation/data/hf/%s", names[_i]);
    OK(model_files_open(f, temp_folder_source(path, part)));
    OK(model_files_import(f, in, NULL));
    model_files_close(f);
    OK(model_files_open(f, in));
    form.ids = f->source.ids;
    OK(model_files_export(&o, f, out, &form));
    OK(outlet_commit(&o));
    model_files_close(f);
    off = follow(out, root, "train.precision=fp32");
    ck_assert_msg(off <= BOUND, "%s: %g", names[_i], off);
    free(f);
    temp_folder_remove(folder);
    json_decref(root);
}
END_TEST

int main(void)
{
    int n = (int)(sizeof names / sizeof *names);
    Suite *suite = suite_create("hf_logits");
    TCase *c = tcase_create("hf_logits");

    tcase_set_timeout(c, 120);
    suite_add_tcase(suite, c);
    tcase_add_loop_test(c, test_logits, 0, n);
    tcase_add_loop_test(c, test_there_and_back, 0, n);
    return check_unit(suite);
}
