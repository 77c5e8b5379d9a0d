/* Folders of Hugging Face's: a published checkpoint and its stored
 * logits, several files, and what is refused. */
#include "common/backend/record.h"
#include "common/checkpoint/safetensors.h"
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
#include <string.h>

#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

#define STORIES "validation/data/stories260k"

static char folder[TEMP_PATH];
static struct tiny_model a;

static void setup(void)
{
    temp_folder_make(folder);
    status_clear();
}

static void teardown(void)
{
    temp_folder_remove(folder);
}

/* ---- a published checkpoint ---- */

static json_t *stored(void)
{
    char path[TEMP_PATH];
    json_t *root =
        json_load_file(temp_folder_source(path, STORIES "/stories260k_logits.json"), 0, NULL);

    ck_assert_ptr_nonnull(root);
    return root;
}

/* Opens the checkpoint with masters where the precision has them. */
static void open_stories(const char *precision, const char *dir)
{
    config_default(&a.cfg);
    OK(weights_config(&a.cfg, dir));
    OK(config_override(&a.cfg, precision));
    OK(config_resolve(&a.cfg, 1, 0));
    tiny_model_open(&a, 0, 1, 0, 1);
    OK(weights_load(&a.m, a.dev, dir));
}

/* The difference of logits from those stored for a position, over their largest. */
static double off(const float *logits, const json_t *want)
{
    double most = 0, size = 0;

    for (size_t i = 0; i < json_array_size(want); i++) {
        double w = json_number_value(json_array_get(want, i));

        most = fmax(most, fabs((double)logits[i] - w));
        size = fmax(size, fabs(w));
    }
    return most / size;
}

/* 200 greedy tokens with the cache are the stored ones, and the logits agree. */
static void follow(const char *precision, double bound)
{
    json_t *root = stored(), *tokens = json_object_get(root, "tokens");
    json_t *logits = json_object_get(root, "logits");
    struct sampler greedy = {0};
    struct step_place at = {0};
    struct generator g;
    char path[TEMP_PATH], key[32];
    int compared = 0;

    open_stories(precision, temp_folder_source(path, STORIES));
    at.dev = a.dev;
    OK(record_comm(&at.tp, a.dev, 0, 1, NULL)); /* of one rank: nothing is sent */
    OK(generator_open(&g, &a.m, &at, 512, 0));
    for (size_t i = 0; i + 1 < json_array_size(tokens); i++) {
        const float *x;
        int32_t token;

        OK(generator_push(&g, (int32_t)json_integer_value(json_array_get(tokens, i))));
        OK(generator_logits(&g, &x));
        OK(sampler_pick(&token, &greedy, x, 512, 0, (int64_t)i));
        ck_assert_int_eq(token, json_integer_value(json_array_get(tokens, i + 1)));
        snprintf(key, sizeof key, "%zu", i);
        if (!json_object_get(logits, key))
            continue;
        ck_assert_msg(off(x, json_object_get(logits, key)) <= bound, "%s, position %zu: %g",
                      precision, i, off(x, json_object_get(logits, key)));
        compared++;
    }
    ck_assert_int_ge(compared, 3);
    generator_close(&g);
    comm_destroy(at.tp);
    tiny_model_close(&a);
    json_decref(root);
}

START_TEST(test_stories)
{
    follow("train.precision=fp32", 1e-5);
    follow("train.precision=fp64", 1e-7); /* stored with nine digits, ours pass as float */
}
END_TEST

/* ---- several files ---- */

/* Half of the model's tensors (odd: 1 or 0) as bf16 in a file of the folder. */
static void write_part(const char *name, const struct safetensors *f, int odd, json_t *map)
{
    struct safetensors_spec *spec = calloc((size_t)f->n, sizeof *spec);
    struct safetensors_writer w;
    char path[TEMP_PATH];
    int n = 0;

    for (int i = odd; i < f->n; i += 2) {
        spec[n] =
            (struct safetensors_spec){f->tensor[i].name, SAFETENSORS_BF16, f->tensor[i].rank, {0}};
        memcpy(spec[n].shape, f->tensor[i].shape,
               (size_t)f->tensor[i].rank * sizeof *spec[n].shape);
        n++;
        json_object_set_new(map, f->tensor[i].name, json_string(name));
    }
    OK(safetensors_create(&w, temp_folder_path(path, folder, name), spec, n, NULL));
    for (int i = odd; i < f->n; i += 2) {
        uint16_t *values = malloc((size_t)f->tensor[i].count * sizeof *values);

        for (int64_t j = 0; j < f->tensor[i].count; j++) {
            float x;

            OK(safetensors_read(&x, DT_F32, &f->tensor[i], j, 1));
            values[j] = bf16_from_float(x);
        }
        OK(safetensors_put(&w, f->tensor[i].name, values));
        free(values);
    }
    OK(safetensors_finish(&w));
    free(spec);
}

/* stories260k as two bf16 files with an index. */
static void write_parts(void)
{
    json_t *map = json_object(), *root = json_pack("{s:o}", "weight_map", map);
    char path[TEMP_PATH], *config;
    struct safetensors f;
    size_t n;

    OK(safetensors_open(&f, temp_folder_source(path, STORIES "/model.safetensors")));
    write_part("model-00001-of-00002.safetensors", &f, 0, map);
    write_part("model-00002-of-00002.safetensors", &f, 1, map);
    temp_folder_path(path, folder, WEIGHTS_INDEX);
    ck_assert_int_eq(json_dump_file(root, path, 0), 0);
    config = temp_folder_read(temp_folder_source(path, STORIES "/config.json"), &n);
    temp_folder_write(temp_folder_path(path, folder, "config.json"), config, n);
    free(config);
    json_decref(root);
    safetensors_close(&f);
}

START_TEST(test_parts)
{
    const struct safetensors_tensor *t;
    const struct param *row;
    struct safetensors f;
    char path[TEMP_PATH];

    write_parts();
    open_stories("train.precision=fp32", folder);
    OK(safetensors_open(&f, temp_folder_source(path, STORIES "/model.safetensors")));
    for (int i = 0; i < a.m.params.n; i++) {
        row = &a.m.params.item[i];
        t = safetensors_find(&f, row->name);
        for (int64_t j = 0; j < t->count; j++) {
            float x;

            OK(safetensors_read(&x, DT_F32, t, j, 1));
            ck_assert(((float *)row->w.data)[j] == bf16_to_float(bf16_from_float(x)));
        }
    }
    safetensors_close(&f);
    tiny_model_close(&a);
}
END_TEST

START_TEST(test_parts_refused)
{
    static const char away[] = "{\"weight_map\": {\"a\": \"../model.safetensors\"}}";
    static const char one[] = "{\"weight_map\": {\"a\": \"model-00001-of-00002.safetensors\"}}";
    static const char none[] = "{\"weights\": {}}";
    char path[TEMP_PATH];

    write_parts();
    open_stories("train.precision=fp32", folder);
    temp_folder_path(path, folder, WEIGHTS_INDEX);
    temp_folder_write(path, away, sizeof away - 1);
    ck_assert_int_eq(weights_load(&a.m, a.dev, folder), ST_EFORMAT);
    ck_assert_msg(strstr(status_message(), "no file name") != NULL, "%s", status_message());
    status_clear();
    temp_folder_write(path, none, sizeof none - 1);
    ck_assert_int_eq(weights_load(&a.m, a.dev, folder), ST_EFORMAT);
    ck_assert_msg(strstr(status_message(), "weight_map is missing") != NULL, "%s",
                  status_message());
    status_clear();
    temp_folder_write(path, one, sizeof one - 1);
    ck_assert_int_eq(weights_load(&a.m, a.dev, folder), ST_EFORMAT);
    ck_assert_msg(strstr(status_message(), "is missing") != NULL, "%s", status_message());
    tiny_model_close(&a);
}
END_TEST

/* The head of a tied model may be there again, if it is the same; old rotary tables may, too. */
START_TEST(test_redundant)
{
    static const char inv[] = "model.layers.0.self_attn.rotary_emb.inv_freq";
    struct safetensors_spec spec[64];
    struct safetensors_writer w;
    const struct safetensors_tensor *head;
    struct safetensors f;
    char path[TEMP_PATH];
    float *changed, freq[4] = {0};

    open_stories("train.precision=fp32", temp_folder_source(path, STORIES));
    OK(safetensors_open(&f, temp_folder_source(path, STORIES "/model.safetensors")));
    for (int i = 0; i < f.n; i++) {
        spec[i] =
            (struct safetensors_spec){f.tensor[i].name, SAFETENSORS_F32, f.tensor[i].rank, {0}};
        memcpy(spec[i].shape, f.tensor[i].shape, (size_t)f.tensor[i].rank * sizeof(int64_t));
    }
    spec[f.n] = (struct safetensors_spec){"lm_head.weight", SAFETENSORS_F32, 2, {512, 64}};
    spec[f.n + 1] = (struct safetensors_spec){inv, SAFETENSORS_F32, 1, {4}};
    head = safetensors_find(&f, "model.embed_tokens.weight");
    changed = malloc(512 * 64 * sizeof *changed);
    memcpy(changed, head->data, 512 * 64 * sizeof *changed);
    for (int bad = 0; bad < 2; bad++) {
        OK(safetensors_create(&w, temp_folder_path(path, folder, "m"), spec, f.n + 2, NULL));
        for (int i = 0; i < f.n; i++)
            OK(safetensors_put(&w, f.tensor[i].name, f.tensor[i].data));
        changed[77] += (float)bad;
        OK(safetensors_put(&w, "lm_head.weight", changed));
        OK(safetensors_put(&w, inv, freq));
        OK(safetensors_finish(&w));
        ck_assert_int_eq(weights_load_file(&a.m, a.dev, path), bad ? ST_EFORMAT : ST_OK);
    }
    ck_assert_msg(strstr(status_message(), "differs from the embedding") != NULL, "%s",
                  status_message());
    free(changed);
    safetensors_close(&f);
    tiny_model_close(&a);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hf_folder");
    TCase *c = tcase_create("hf_folder");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 120);
    suite_add_tcase(suite, c);
    tcase_add_test(c, test_stories);
    tcase_add_test(c, test_parts);
    tcase_add_test(c, test_parts_refused);
    tcase_add_test(c, test_redundant);
    return check_unit(suite);
}
