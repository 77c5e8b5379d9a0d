/* A model's shape from and to config.json. */
#include "common/checkpoint/hf_config.h"
#include "common/checkpoint/weights.h"
#include "tests/unit/check_unit.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/tiny_model.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

enum { SHAPE = 2048 };

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

static const char shape[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 512, \"hidden_size\": 64, "
    "\"intermediate_size\": 172, \"num_hidden_layers\": 5, \"num_attention_heads\": 8%s}";

static const char narrow[] =
    "{\"model_type\": \"narrows\", \"layer\": \"svd\", \"rank\": 16, \"outer_silu\": true, "
    "\"vocab_size\": 512, \"hidden_size\": 64, \"intermediate_size\": 172, "
    "\"num_hidden_layers\": 5, \"num_attention_heads\": 8%s}";

static enum status read_with(struct config *cfg, const char *text, const char *more)
{
    char path[TEMP_PATH], json[SHAPE];
    int n = snprintf(json, sizeof json, text, more);

    status_clear();
    temp_folder_write(temp_folder_path(path, folder, "config.json"), json, (size_t)n);
    config_default(cfg);
    return weights_config(cfg, folder);
}

START_TEST(test_shape)
{
    struct config cfg;

    OK(read_with(&cfg, shape, ""));
    ck_assert(cfg.model.layer == LAYER_FULL && cfg.model.outer_silu == SILU_ON);
    ck_assert_int_eq(cfg.model.width, 64);
    ck_assert_int_eq(cfg.model.ffn, 172);
    ck_assert_int_eq(cfg.model.layers, 5);
    ck_assert_int_eq(cfg.model.heads, 8);
    ck_assert_int_eq(cfg.model.kv_heads, 8);
    ck_assert_int_eq(cfg.model.vocab, 512);
    ck_assert(cfg.model.rope_theta == 10000 && cfg.model.norm_eps == 1e-6 && !cfg.model.tied);
    OK(read_with(&cfg, shape,
                 ", \"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-5, \"rope_theta\": 500000.0, "
                 "\"rope_scaling\": null, \"tie_word_embeddings\": true, \"head_dim\": 8, "
                 "\"max_position_embeddings\": 1024, \"attention_bias\": false"));
    ck_assert_int_eq(cfg.model.kv_heads, 2);
    ck_assert_int_eq(cfg.train.seq, 1024);
    ck_assert(cfg.model.rope_theta == 5e5 && cfg.model.norm_eps == 1e-5 && cfg.model.tied);
    OK(read_with(&cfg, shape,
                 ", \"rope_parameters\": {\"rope_theta\": 20000, \"rope_type\": \"default\"}"));
    ck_assert(cfg.model.rope_theta == 20000);
    OK(read_with(&cfg, shape,
                 ", \"rope_scaling\": {\"rope_type\": \"default\"}, \"layer_types\": "
                 "[\"full_attention\"], \"partial_rotary_factor\": 1.0"));
    OK(read_with(&cfg, narrow, ""));
    ck_assert(!cfg.model.qkv_bias);
    OK(read_with(&cfg, narrow, ", \"qkv_bias\": true"));
    ck_assert(cfg.model.qkv_bias);
    ck_assert(cfg.model.layer == LAYER_SVD && cfg.model.rank == 16 &&
              cfg.model.outer_silu == SILU_ON);
}
END_TEST

/* The shape of another kind. */
static enum status read_as(struct config *cfg, enum hf_kind *kind, struct hf_ids *ids,
                           const char *type, const char *more)
{
    char path[TEMP_PATH], json[SHAPE];
    int n = snprintf(json, sizeof json,
                     "{\"model_type\": \"%s\", \"vocab_size\": 512, \"hidden_size\": 64, "
                     "\"intermediate_size\": 172, \"num_hidden_layers\": 5, "
                     "\"num_attention_heads\": 8%s}",
                     type, more);

    status_clear();
    temp_folder_write(temp_folder_path(path, folder, "config.json"), json, (size_t)n);
    config_default(cfg);
    return hf_config_read_all(cfg, kind, ids, path);
}

START_TEST(test_kinds)
{
    struct config cfg;
    enum hf_kind kind;
    struct hf_ids ids;

    OK(read_as(&cfg, &kind, &ids, "qwen2",
               ", \"use_sliding_window\": false, \"sliding_window\": null, \"bos_token_id\": 7, "
               "\"eos_token_id\": [8, 9]"));
    ck_assert(kind == HF_QWEN2 && cfg.model.qkv_bias && cfg.model.layer == LAYER_FULL);
    ck_assert(ids.begin == 7 && ids.end == 8 && ids.pad == -1);
    OK(read_as(&cfg, &kind, &ids, "cola", ", \"max_sequence_length\": 1024"));
    ck_assert(kind == HF_COLA && cfg.model.layer == LAYER_COLA && cfg.model.rank == 16);
    ck_assert(cfg.model.outer_silu == SILU_OFF && cfg.train.seq == 1024);
    OK(read_as(&cfg, &kind, &ids, "cola", ", \"rank\": 24, \"only_lr_act\": false"));
    ck_assert(cfg.model.rank == 24 && cfg.model.outer_silu == SILU_ON);
    ck_assert_int_eq(read_as(&cfg, &kind, &ids, "cola", ", \"only_lr_act\": 1"), ST_EFORMAT);
    ck_assert_int_eq(read_as(&cfg, &kind, &ids, "cola", ", \"bias\": true"), ST_EFORMAT);
    ck_assert_int_eq(read_as(&cfg, &kind, &ids, "llama", ", \"eos_token_id\": []"), ST_OK);
    ck_assert(kind == HF_LLAMA && ids.end == -1);
}
END_TEST

START_TEST(test_shape_refused)
{
    static const char *const cases[][2] = {
        {", \"hidden_act\": \"gelu\"", "hidden_act"},
        {", \"attention_bias\": true", "attention_bias"},
        {", \"mlp_bias\": true", "mlp_bias"},
        {", \"head_dim\": 16", "head_dim 16"},
        {", \"head_dim\": 4611686018427387904", "head_dim"},
        {", \"rope_scaling\": {\"factor\": 8.0}", "rope_scaling"},
        {", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 8.0}", "rope_type linear"},
        {", \"rope_scaling\": 8.0", "rope_scaling"},
        {", \"rope_parameters\": {\"rope_type\": \"default\", \"partial_rotary_factor\": 0.5}",
         "partial_rotary_factor is 0.5"},
        {", \"partial_rotary_factor\": 0.25", "partial_rotary_factor is 0.25"},
        {", \"use_sliding_window\": true", "use_sliding_window"},
        {", \"layer_types\": [\"full_attention\", \"sliding_attention\"]", "layer_types 1"},
        {", \"quantization_config\": {\"bits\": 4}", "quantization_config"},
        {", \"rope_parameters\": {\"rope_type\": \"llama3\"}", "rope_type"},
        {", \"rope_theta\": 1e4, \"rope_parameters\": {\"rope_theta\": 2e4}", "rope_theta"},
        {", \"rms_norm_eps\": NaN", "config.json:1"},
        {", \"rms_norm_eps\": 7", "rms_norm_eps: model.norm_eps"},
        {", \"rms_norm_eps\": \"nan\"", "rms_norm_eps: model.norm_eps"},
        {", \"num_key_value_heads\": -2", "num_key_value_heads: model.kv_heads"},
        {", \"num_key_value_heads\": [2]", "num_key_value_heads"},
        {", \"tie_word_embeddings\": 1", "tie_word_embeddings: model.tied"},
        {", \"hidden_size\": 64", "duplicate"},
        {"} x", "config.json:1"},
    };
    struct config cfg;
    char text[SHAPE];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_msg(read_with(&cfg, shape, cases[i][0]) == ST_EFORMAT, "%s", cases[i][0]);
        ck_assert_msg(strstr(status_message(), cases[i][1]) && strstr(status_message(), folder),
                      "%s: %s", cases[i][0], status_message());
    }
    snprintf(text, sizeof text, "%s", shape);
    memcpy(strstr(text, "vocab_size"), "vocab_siZe", 10);
    ck_assert_int_eq(read_with(&cfg, text, ""), ST_EFORMAT);
    ck_assert_str_eq(strstr(status_message(), "vocab_size"), "vocab_size is missing");
    memcpy(strstr(text, "llama"), "mamba", 5);
    ck_assert_int_eq(read_with(&cfg, text, ""), ST_EFORMAT);
    ck_assert_msg(strstr(status_message(), "model_type is mamba") != NULL, "%s", status_message());
    snprintf(text, sizeof text, "%s", narrow);
    memcpy(strstr(text, "\"rank\""), "\"ranc\"", 6);
    ck_assert_int_eq(read_with(&cfg, text, ""), ST_EFORMAT);
    ck_assert_msg(strstr(status_message(), "rank is missing") != NULL, "%s", status_message());
    ck_assert_int_eq(read_with(&cfg, "[]%s", ""), ST_EFORMAT);
}
END_TEST

/* What a model is written as is read back as the same model. */
START_TEST(test_round_trip)
{
    static const char *const changes[][4] = {
        {"model.layer=full", "model.rope_theta=123456.7", "model.norm_eps=1e-5", NULL},
        {"model.layer=full", "model.outer_silu=off", NULL},
        {"model.layer=svd", "model.tied=on", NULL},
        {"model.layer=cola", "model.qkv_bias=on", NULL},
        {"model.layer=full", "model.qkv_bias=on", NULL}};
    char path[TEMP_PATH];
    struct config cfg, found;

    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        size_t n;
        char *text;

        tiny_model_config(&cfg, changes[i], 1);
        OK(hf_config_write(temp_folder_path(path, folder, "config.json"), &cfg, DT_F32));
        config_default(&found);
        OK(weights_config(&found, folder));
        OK(hf_config_same(&found, &cfg));
        ck_assert_int_eq(found.train.seq, cfg.train.seq);
        text = temp_folder_read(path, &n);
        ck_assert_int_eq(strstr(text, "\"LlamaForCausalLM\"") != NULL, i == 0);
        ck_assert_int_eq(strstr(text, "\"llama\"") != NULL, i == 0);
        ck_assert_int_eq(strstr(text, "\"Qwen2ForCausalLM\"") != NULL, i == 4);
        ck_assert_int_eq(strstr(text, "\"qwen2\"") != NULL, i == 4);
        if (i == 1) /* a real number is written as one */
            ck_assert_ptr_nonnull(strstr(text, "\"rope_theta\": 10000.0,"));
        free(text);
        found.model.rank++;
        ck_assert_int_eq(hf_config_same(&found, &cfg), ST_EFORMAT);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hf_config");
    TCase *c = tcase_create("hf_config");

    tcase_add_checked_fixture(c, setup, teardown);
    tcase_set_timeout(c, 120);
    suite_add_tcase(suite, c);
    tcase_add_test(c, test_shape);
    tcase_add_test(c, test_kinds);
    tcase_add_test(c, test_shape_refused);
    tcase_add_test(c, test_round_trip);
    return check_unit(suite);
}
