/* Writing config.json. */
#include "common/checkpoint/folder.h"
#include "common/checkpoint/hf_config.h"
#include "common/checkpoint/hf_rows.h"
#include "common/model/config_value.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* The words of a kind. */
struct kind_words {
    const char *type, *architecture, *config_class;
};

static const struct kind_words words_of[] = {
    [HF_LLAMA] = {"llama", "LlamaForCausalLM", NULL},
    [HF_QWEN2] = {"qwen2", "Qwen2ForCausalLM", NULL},
    [HF_NARROWS] = {"narrows", "NarrowsForCausalLM", "NarrowsConfig"},
    [HF_COLA] = {"cola", "ColaForCausalLM", "ColaConfig"},
};

enum hf_kind hf_config_kind(const struct config *cfg)
{
    if (cfg->model.layer != LAYER_FULL || cfg->model.outer_silu != SILU_ON)
        return HF_NARROWS;
    return cfg->model.qkv_bias ? HF_QWEN2 : HF_LLAMA;
}

/* The value of a key as JSON: a truth value, or a number (a real one shows that it is). */
static void json_value(char out[CONFIG_VALUE], const char *key, const struct config *cfg)
{
    const struct config_key *k = config_find(key);

    config_value_write(out, CONFIG_VALUE, k, cfg);
    if (k->type == CONFIG_IS_FLAG)
        snprintf(out, CONFIG_VALUE, "%s", strcmp(out, "on") == 0 ? "true" : "false");
    else if (k->type == CONFIG_IS_REAL && !strpbrk(out, ".e"))
        strncat(out, ".0", CONFIG_VALUE - strlen(out) - 1);
}

static const char *truth(int value)
{
    return value ? "true" : "false";
}

/* What makes a model no LLaMA. */
static void write_layer(FILE *out, const struct config *cfg, enum hf_kind kind)
{
    const struct config_model *m = &cfg->model;

    if (kind == HF_NARROWS)
        fprintf(out,
                "  \"layer\": \"%s\",\n  \"rank\": %" PRId64 ",\n  \"outer_silu\": %s,\n"
                "  \"qkv_bias\": %s,\n",
                config_choice_name("model.layer", (int)m->layer), m->rank,
                truth(m->outer_silu == SILU_ON), truth(m->qkv_bias));
    if (kind == HF_COLA) /* lr_act_type says what is done; CoLA's own code does not read it */
        fprintf(out,
                "  \"rank\": %" PRId64 ",\n  \"lr_act_type\": \"silu\",\n"
                "  \"only_lr_act\": %s,\n  \"" HF_COLA_LENGTH "\": %" PRId64 ",\n",
                m->rank, truth(m->outer_silu != SILU_ON), cfg->train.seq);
    if (kind == HF_QWEN2)
        fprintf(out,
                "  \"use_sliding_window\": false,\n  \"sliding_window\": null,\n"
                "  \"max_window_layers\": %" PRId64 ",\n",
                m->layers);
    else
        fputs("  \"attention_bias\": false,\n  \"mlp_bias\": false,\n  \"pretraining_tp\": 1,\n",
              out);
}

/* Both forms of the rotary base: readers of different age look in one or the other. */
static void write_rope(FILE *out, const struct config *cfg)
{
    char theta[CONFIG_VALUE];

    json_value(theta, "model.rope_theta", cfg);
    fprintf(out,
            "  \"rope_theta\": %s,\n"
            "  \"rope_scaling\": null,\n"
            "  \"rope_parameters\": {\"rope_theta\": %s, \"rope_type\": \"default\"},\n",
            theta, theta);
}

static void write_id(FILE *out, const char *name, int64_t id)
{
    if (id < 0)
        fprintf(out, "  \"%s_token_id\": null,\n", name);
    else
        fprintf(out, "  \"%s_token_id\": %" PRId64 ",\n", name, id);
}

static void write_ids(FILE *out, const struct hf_ids *ids)
{
    write_id(out, "bos", ids->begin);
    write_id(out, "eos", ids->end);
    write_id(out, "pad", ids->pad);
}

/* The classes of modeling_narrows.py, for readers that do not know the kind. */
static void write_code(FILE *out, const struct kind_words *w)
{
    fprintf(out,
            "  \"auto_map\": {\"AutoConfig\": \"modeling_narrows.%s\", "
            "\"AutoModelForCausalLM\": \"modeling_narrows.%s\"},\n",
            w->config_class, w->architecture);
}

static enum status close_file(FILE *out, const char *path)
{
    fputs("}\n", out);
    return folder_close(out, path);
}

enum status hf_config_export(const char *path, const struct config *cfg, const struct hf_form *form)
{
    static const char *const rows[][2] = {
#define X(json, key, needed) {json, key},
        HF_ROWS(X)
#undef X
    };
    const struct kind_words *w = &words_of[form->kind];
    FILE *out = fopen(path, "w");
    char value[CONFIG_VALUE];

    if (!out)
        return fail(ST_EIO, "cannot write %s: %s", path, strerror(errno));
    fprintf(out, "{\n  \"architectures\": [\"%s\"],\n", w->architecture);
    if (form->code && w->config_class)
        write_code(out, w);
    fprintf(out, "  \"model_type\": \"%s\",\n", w->type);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_value(value, rows[i][1], cfg);
        fprintf(out, "  \"%s\": %s,\n", rows[i][0], value);
    }
    fprintf(out, "  \"head_dim\": %" PRId64 ",\n", cfg->model.width / cfg->model.heads);
    write_layer(out, cfg, form->kind);
    write_rope(out, cfg);
    fputs("  \"hidden_act\": \"silu\",\n  \"attention_dropout\": 0.0,\n  \"use_cache\": true,\n",
          out);
    write_ids(out, &form->ids);
    fprintf(out, "  \"torch_dtype\": \"%s\"\n", form->dtype);
    return close_file(out, path);
}

enum status hf_config_write(const char *path, const struct config *cfg, enum dtype values)
{
    const struct hf_form form = {.kind = hf_config_kind(cfg),
                                 .dtype = values == DT_F64 ? "float64" : "float32",
                                 .ids = {-1, -1, -1}};

    return hf_config_export(path, cfg, &form);
}

enum status hf_generation_write(const char *path, const struct hf_ids *ids)
{
    FILE *out = fopen(path, "w");

    if (!out)
        return fail(ST_EIO, "cannot write %s: %s", path, strerror(errno));
    fputs("{\n", out);
    write_ids(out, ids);
    fputs("  \"_from_model_config\": true\n", out);
    return close_file(out, path);
}
