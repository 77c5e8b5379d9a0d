/* Weights as a folder: the same bits come back, in any layout; what does not fit is refused. */
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/weights.h"
#include "tests/unit/check_unit.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/tiny_model.h"

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

static char folder[TEMP_PATH], dir[TEMP_PATH];
static struct tiny_model a, b;

static void setup(void)
{
    temp_folder_make(folder);
    temp_folder_path(dir, folder, "final");
    status_clear();
}

static void teardown(void)
{
    temp_folder_remove(folder);
}

static const struct {
    const char *name;
    const char *changes[8];
} variants[] = {
    {"cola", {NULL}},
    {"cola with outer SiLU", {"model.outer_silu=on", NULL}},
    {"svd, tied", {"model.layer=svd", "model.tied=on", NULL}},
    {"full", {"model.layer=full", NULL}},
    {"full, vocabulary without padding", {"model.layer=full", "model.vocab=128", NULL}},
    {"full without SiLU", {"model.layer=full", "model.outer_silu=off", NULL}},
    {"bf16 with masters", {"train.precision=bf16", NULL}},
    {"pure bf16", {"train.precision=bf16", "train.pure_bf16=on", NULL}},
    {"fp64", {"train.precision=fp64", "model.layer=full", "model.tied=on", NULL}},
};

enum { VARIANTS = sizeof variants / sizeof *variants };

/* Model a of a variant, trained by nobody, saved to dir. */
static void save(const char *const *changes)
{
    tiny_model_config(&a.cfg, changes, 1);
    tiny_model_open(&a, 0, 1, 1, 1);
    OK(weights_save(dir, &a.m, a.dev, NULL));
}

static uint64_t hash(struct tiny_model *t)
{
    uint64_t h;

    OK(params_hash(&h, &t->m.params, t->dev, NULL));
    return h;
}

START_TEST(test_same_bits)
{
    uint64_t other;

    save(variants[_i].changes);
    ck_assert_int_eq(temp_folder_count(folder), 1);
    ck_assert_int_eq(temp_folder_count(dir), 3);
    b.cfg = a.cfg;
    tiny_model_open(&b, 0, 1, 1, 2);
    other = hash(&b);
    ck_assert_msg(other != hash(&a), "%s: both seeds give one model", variants[_i].name);
    OK(weights_load(&b.m, b.dev, dir));
    ck_assert_msg(hash(&b) == hash(&a), "%s", variants[_i].name);
    for (int i = 0; i < a.m.params.n; i++) /* w, which the masters' hash does not see */
        ck_assert_mem_eq(a.m.params.item[i].w.data, b.m.params.item[i].w.data,
                         (size_t)tensor_count(&a.m.params.item[i].w) *
                             dtype_size(a.m.params.item[i].w.dtype));
    tiny_model_close(&a);
    tiny_model_close(&b);
}
END_TEST

/* What is loaded on rank r of p is what that rank draws from the same seed. */
START_TEST(test_layouts)
{
    static const char *const changes[][3] = {
        {"model.kv_heads=4", NULL},
        {"model.kv_heads=4", "model.tied=on", NULL},
        {"model.kv_heads=4", "parallel.strategy=vanilla", NULL},
        {"model.kv_heads=4", "model.layer=full", NULL}};

    for (size_t k = 0; k < sizeof changes / sizeof *changes; k++) {
        save(changes[k]);
        for (int p = 2; p <= 4; p *= 2)
            for (int r = 0; r < p; r++) {
                struct tiny_model want;

                b.cfg = want.cfg = a.cfg;
                tiny_model_open(&b, r, p, 0, 2);
                tiny_model_open(&want, r, p, 0, 1);
                OK(weights_load(&b.m, b.dev, dir));
                ck_assert_mem_eq(b.state.base, want.state.base, b.state.used);
                tiny_model_close(&b);
                tiny_model_close(&want);
            }
        tiny_model_close(&a);
    }
}
END_TEST

START_TEST(test_content)
{
    struct safetensors f;
    const struct safetensors_tensor *t;
    char path[TEMP_PATH], *text, *want = NULL;
    size_t n, want_n = 0;
    FILE *out = open_memstream(&want, &want_n);

    save(NULL);
    OK(safetensors_open(&f, temp_folder_path(path, dir, "model.safetensors")));
    ck_assert_int_eq(f.n, 3 + 2 * 16);
    ck_assert_str_eq(safetensors_metadata(&f, "format"), "pt");
    t = safetensors_find(&f, "lm_head.weight");
    ck_assert(t->type == SAFETENSORS_F32 && t->rank == 2 && t->shape[0] == 70 && t->shape[1] == 32);
    t = safetensors_find(&f, "model.layers.1.mlp.down_proj.down.weight");
    ck_assert(t->rank == 2 && t->shape[0] == 8 && t->shape[1] == 48);
    t = safetensors_find(&f, "model.layers.0.self_attn.k_proj.up.weight");
    ck_assert(t->rank == 2 && t->shape[0] == 16 && t->shape[1] == 8);
    ck_assert_mem_eq(t->data, params_find(&a.m.params, t->name)->w.data, 16 * 8 * 4);
    t = safetensors_find(&f, "model.norm.weight");
    ck_assert(t->rank == 1 && t->shape[0] == 32);
    safetensors_close(&f);
    OK(config_print(out, &a.cfg));
    fclose(out);
    text = temp_folder_read(temp_folder_path(path, dir, "narrows.yaml"), &n);
    ck_assert_str_eq(text, want);
    free(text);
    free(want);
    tiny_model_close(&a);
}
END_TEST

/* ---- replacing ---- */

START_TEST(test_replace)
{
    char path[TEMP_PATH], *text;
    size_t n;
    uint64_t second;

    save(NULL);
    temp_folder_write(temp_folder_path(path, dir, "notes.txt"), "mine", 4);
    temp_folder_path(path, folder, "final.partial"); /* of a process that was ended */
    ck_assert_int_eq(rename(dir, path), 0);
    ck_assert_int_eq(weights_save(dir, &a.m, a.dev, NULL), ST_EIO); /* notes.txt is not its own */
    status_clear();
    ck_assert_int_eq(rename(path, dir), 0);
    OK(params_init(&a.m.params, a.dev, 5));
    second = hash(&a);
    OK(weights_save(dir, &a.m, a.dev, NULL));
    OK(params_init(&a.m.params, a.dev, 6));
    OK(weights_load(&a.m, a.dev, dir));
    ck_assert(hash(&a) == second);
    text = temp_folder_read(temp_folder_path(path, dir, "notes.txt"), &n);
    ck_assert_str_eq(text, "mine");
    ck_assert_int_eq(temp_folder_count(folder), 1);
    ck_assert_int_eq(temp_folder_count(dir), 4);
    free(text);
    tiny_model_close(&a);
}
END_TEST

START_TEST(test_full_disk)
{
    char before[TEMP_PATH], after[TEMP_PATH], *x, *y;
    size_t nx, ny;

    save(NULL);
    x = temp_folder_read(temp_folder_path(before, dir, "model.safetensors"), &nx);
    OK(params_init(&a.m.params, a.dev, 5));
    temp_folder_limit(16384);
    ck_assert_int_eq(weights_save(dir, &a.m, a.dev, NULL), ST_EIO);
    ck_assert_msg(strstr(status_message(), "final.partial/model.safetensors") &&
                      strstr(status_message(), "too large"),
                  "%s", status_message());
    ck_assert_int_eq(temp_folder_count(folder), 1);
    y = temp_folder_read(temp_folder_path(after, dir, "model.safetensors"), &ny);
    ck_assert(nx == ny && !memcmp(x, y, nx));
    free(x);
    free(y);
    tiny_model_close(&a);
}
END_TEST

START_TEST(test_no_folder)
{
    char path[TEMP_PATH];

    tiny_model_config(&a.cfg, NULL, 1);
    tiny_model_open(&a, 0, 1, 1, 1);
    temp_folder_path(path, folder, "none/final");
    ck_assert_int_eq(weights_save(path, &a.m, a.dev, NULL), ST_EIO);
    ck_assert_msg(strstr(status_message(), "none/final") != NULL, "%s", status_message());
    status_clear();
    temp_folder_write(dir, "a file", 6);
    ck_assert_int_eq(weights_save(dir, &a.m, a.dev, NULL), ST_EIO);
    ck_assert_msg(strstr(status_message(), "no folder") != NULL, "%s", status_message());
    tiny_model_close(&a);
}
END_TEST

START_TEST(test_find)
{
    char found[WEIGHTS_PATH], best[TEMP_PATH];

    save(NULL);
    OK(weights_find(found, folder));
    ck_assert_str_eq(found, dir);
    OK(weights_find(found, dir));
    ck_assert_str_eq(found, dir);
    ck_assert_int_eq(rename(dir, temp_folder_path(best, folder, "best")), 0);
    OK(weights_find(found, folder));
    ck_assert_str_eq(found, best);
    ck_assert_int_eq(weights_find(found, "/nonexistent"), ST_EIO);
    ck_assert_msg(strstr(status_message(), "/nonexistent") != NULL, "%s", status_message());
    tiny_model_close(&a);
}
END_TEST

/* ---- what does not fit ---- */

/* Puts `with` for the first `what` in a file of dir; lengths agree. */
static void edit(const char *name, const char *what, const char *with)
{
    char path[TEMP_PATH], *bytes, *at;
    size_t n;

    bytes = temp_folder_read(temp_folder_path(path, dir, name), &n);
    at = memmem(bytes, n, what, strlen(what));
    ck_assert_msg(at != NULL, "%s has no %s", name, what);
    ck_assert_uint_eq(strlen(what), strlen(with));
    memcpy(at, with, strlen(with));
    temp_folder_write(path, bytes, n);
    free(bytes);
}

static void refused(const char *message)
{
    status_clear();
    ck_assert_int_eq(weights_load(&a.m, a.dev, dir), ST_EFORMAT);
    ck_assert_msg(strstr(status_message(), message) && strstr(status_message(), folder), "%s",
                  status_message());
}

START_TEST(test_tensors_refused)
{
    struct param *row;

    save(NULL);
    edit("model.safetensors", "\"model.norm.weight\"", "\"model.noxm.weight\"");
    refused("no place for tensor model.noxm.weight");
    edit("model.safetensors", "\"model.noxm.weight\"", "\"rotary_emb.invfreq");
    refused("header, byte"); /* the JSON is broken now */
    OK(weights_save(dir, &a.m, a.dev, NULL));
    edit("model.safetensors", "[70,32]", "[32,70]");
    refused("tensor lm_head.weight has shape [32, 70] (2 dimensions); the model has [70, 32]");
    OK(weights_save(dir, &a.m, a.dev, NULL));
    edit("model.safetensors", "\"F32\",\"shape\":[70,32]", "\"I32\",\"shape\":[70,32]");
    refused("tensor lm_head.weight is of type I32");
    OK(weights_save(dir, &a.m, a.dev, NULL));
    edit("model.safetensors", "\"F32\",\"shape\":[32]", "\"F32\",\"shape\":[4] ");
    refused("span 128 bytes");
    OK(weights_save(dir, &a.m, a.dev, NULL));
    row = params_find(&a.m.params, "model.layers.1.mlp.up_proj.up.weight");
    dtype_store(row->w.data, DT_F32, 3 * 8 + 5, (double)NAN);
    OK(weights_save(dir, &a.m, a.dev, NULL));
    refused("tensor model.layers.1.mlp.up_proj.up.weight: row 3, column 5 is not finite");
    tiny_model_close(&a);
}
END_TEST

START_TEST(test_missing)
{
    static const char *const untied[] = {"model.layer=full", NULL};
    static const char *const tied[] = {"model.layer=full", "model.tied=on", NULL};

    save(tied);
    tiny_model_close(&a);
    tiny_model_config(&a.cfg, untied, 1);
    tiny_model_open(&a, 0, 1, 0, 1);
    refused("model.tied on, this one has off");
    edit("config.json", "\"tie_word_embeddings\": true,", "\"tie_word_embeddings\":false,");
    refused("tensor lm_head.weight is missing");
    tiny_model_close(&a);
}
END_TEST

START_TEST(test_other_model)
{
    save(NULL);
    edit("config.json", "\"num_attention_heads\": 4", "\"num_attention_heads\": 8");
    refused("num_attention_heads 8"); /* head_dim no longer fits */
    edit("config.json", "\"head_dim\": 8", "\"head_dim\": 4");
    refused("a model with model.heads 8, this one has 4");
    edit("config.json", "\"num_attention_heads\": 8", "\"num_attention_heads\": 4");
    edit("config.json", "\"head_dim\": 4", "\"head_dim\": 8");
    edit("config.json", "\"outer_silu\": false", "\"outer_silu\": true ");
    refused("model.outer_silu on, this one has off");
    edit("config.json", "\"outer_silu\": true ", "\"outer_silu\": false");
    OK(weights_load(&a.m, a.dev, dir));
    tiny_model_close(&a);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("weights");
    TCase *c = tcase_create("weights");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 60);
    suite_add_tcase(suite, c);
    tcase_add_loop_test(c, test_same_bits, 0, VARIANTS);
    tcase_add_test(c, test_layouts);
    tcase_add_test(c, test_content);
    tcase_add_test(c, test_replace);
    tcase_add_test(c, test_full_disk);
    tcase_add_test(c, test_no_folder);
    tcase_add_test(c, test_find);
    tcase_add_test(c, test_tensors_refused);
    tcase_add_test(c, test_missing);
    tcase_add_test(c, test_other_model);
    return check_unit(suite);
}
