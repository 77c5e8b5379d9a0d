#include "common/checkpoint/hf_config.h"

#include "common/checkpoint/folder.h"
#include "common/model/config_value.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

/* Whole numbers and real ones that stand under the same meaning on both sides. */
struct row {
    const char *json, *key;
    int needed;
};

static const struct row rows[] = {
    {"vocab_size", "model.vocab", 1},
    {"hidden_size", "model.width", 1},
    {"intermediate_size", "model.ffn", 1},
    {"num_hidden_layers", "model.layers", 1},
    {"num_attention_heads", "model.heads", 1},
    {"num_key_value_heads", "model.kv_heads", 0},
    {"max_position_embeddings", "train.seq", 0},
    {"initializer_range", "model.init_std", 0},
    {"rms_norm_eps", "model.norm_eps", 0},
    {"tie_word_embeddings", "model.tied", 0},
};

enum { ROWS = sizeof rows / sizeof *rows };

/* ---- writing ---- */

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

/* What LLaMA has and this program does not vary. */
static void write_constants(FILE *out, enum dtype values)
{
    fprintf(out,
            "  \"hidden_act\": \"silu\",\n"
            "  \"attention_bias\": false,\n"
            "  \"attention_dropout\": 0.0,\n"
            "  \"mlp_bias\": false,\n"
            "  \"pretraining_tp\": 1,\n"
            "  \"use_cache\": true,\n"
            "  \"bos_token_id\": null,\n"
            "  \"eos_token_id\": null,\n"
            "  \"pad_token_id\": null,\n"
            "  \"torch_dtype\": \"%s\"\n",
            values == DT_F64 ? "float64" : "float32");
}

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

/* Nonzero for a model that is a LLaMA word for word. */
static int is_llama(const struct config *cfg)
{
    return cfg->model.layer == LAYER_FULL && cfg->model.outer_silu == SILU_ON;
}

enum status hf_config_write(const char *path, const struct config *cfg, enum dtype values)
{
    FILE *out = fopen(path, "w");
    int llama = is_llama(cfg);
    char value[CONFIG_VALUE];

    if (!out)
        return fail(ST_EIO, "cannot write %s: %s", path, strerror(errno));
    fprintf(out, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n",
            llama ? "LlamaForCausalLM" : "NarrowsForCausalLM", llama ? "llama" : "narrows");
    if (!llama)
        fprintf(out, "  \"layer\": \"%s\",\n  \"rank\": %" PRId64 ",\n  \"outer_silu\": %s,\n",
                config_choice_name("model.layer", (int)cfg->model.layer), cfg->model.rank,
                cfg->model.outer_silu == SILU_ON ? "true" : "false");
    for (int i = 0; i < ROWS; i++) {
        json_value(value, rows[i].key, cfg);
        fprintf(out, "  \"%s\": %s,\n", rows[i].json, value);
    }
    fprintf(out, "  \"head_dim\": %" PRId64 ",\n", cfg->model.width / cfg->model.heads);
    write_rope(out, cfg);
    write_constants(out, values);
    fputs("}\n", out);
    return folder_close(out, path);
}

/* ---- reading ---- */

/* Sets a key of cfg from a value of the file; its bounds are those of the key. */
static enum status set_value(struct config *cfg, const char *json, const char *key,
                             const json_t *value)
{
    char text[64];

    if (json_is_integer(value))
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        snprintf(text, sizeof text, "%.17g", json_real_value(value));
    else if (json_is_boolean(value))
        snprintf(text, sizeof text, "%s", json_is_true(value) ? "on" : "off");
    else if (json_is_string(value) && json_string_length(value) < sizeof text)
        snprintf(text, sizeof text, "%s", json_string_value(value));
    else
        return fail(ST_EFORMAT, "%s is neither a number nor a truth value", json);
    if (config_set(cfg, key, text, ORIGIN_FILE, 0) != ST_OK) {
        status_prefix("%s: ", json);
        return ST_EFORMAT;
    }
    return ST_OK;
}

static enum status read_rows(struct config *cfg, const json_t *root)
{
    for (int i = 0; i < ROWS; i++) {
        const json_t *value = json_object_get(root, rows[i].json);

        if (value && !json_is_null(value))
            TRY(set_value(cfg, rows[i].json, rows[i].key, value));
        else if (rows[i].needed)
            return fail(ST_EFORMAT, "%s is missing", rows[i].json);
    }
    if (!cfg->model.kv_heads)
        cfg->model.kv_heads = cfg->model.heads;
    return ST_OK;
}

/* rope_theta stands at the top or in rope_parameters; where in both, once is enough. */
static enum status read_rope(struct config *cfg, const json_t *root)
{
    const json_t *inner = json_object_get(root, "rope_parameters");
    const json_t *scaling = json_object_get(root, "rope_scaling");
    const json_t *theta = json_object_get(root, "rope_theta");
    const json_t *type = json_object_get(inner, "rope_type"), *own = NULL;

    own = json_object_get(inner, "rope_theta");
    if (scaling && !json_is_null(scaling))
        return fail(ST_EFORMAT, "rope_scaling is given; only plain rotary positions are computed");
    if (type && !(json_is_string(type) && !strcmp(json_string_value(type), "default")))
        return fail(ST_EFORMAT, "rope_type is not \"default\"; only plain rotary positions are "
                                "computed");
    if (theta && own && json_number_value(theta) != json_number_value(own))
        return fail(ST_EFORMAT, "rope_theta is %g and in rope_parameters %g",
                    json_number_value(theta), json_number_value(own));
    if (!theta)
        theta = own;
    return theta ? set_value(cfg, "rope_theta", "model.rope_theta", theta) : ST_OK;
}

/* Refuses what this program does not compute. */
static enum status check_kind(const struct config *cfg, const json_t *root)
{
    static const char *const biases[] = {"attention_bias", "mlp_bias"};
    const json_t *act = json_object_get(root, "hidden_act");
    const json_t *head_dim = json_object_get(root, "head_dim");
    int64_t heads = cfg->model.heads;

    if (act && !(json_is_string(act) && !strcmp(json_string_value(act), "silu")))
        return fail(ST_EFORMAT, "hidden_act is not \"silu\", the only one that is computed");
    for (int i = 0; i < 2; i++)
        if (json_is_true(json_object_get(root, biases[i])))
            return fail(ST_EFORMAT, "%s is true; layers here have no bias", biases[i]);
    if (head_dim && !json_is_null(head_dim) &&
        (cfg->model.width % heads || json_integer_value(head_dim) != cfg->model.width / heads))
        return fail(ST_EFORMAT,
                    "head_dim %" JSON_INTEGER_FORMAT " is not hidden_size %" PRId64
                    " / num_attention_heads %" PRId64,
                    json_integer_value(head_dim), cfg->model.width, heads);
    return ST_OK;
}

/* layer, rank, outer_silu: given for "narrows", fixed for "llama". */
static enum status read_kind(struct config *cfg, const json_t *root)
{
    const json_t *kind = json_object_get(root, "model_type"), *value;
    const char *name = json_is_string(kind) ? json_string_value(kind) : "(none)";

    if (!strcmp(name, "llama")) {
        cfg->model.layer = LAYER_FULL;
        cfg->model.outer_silu = SILU_ON;
        cfg->model.rank = 0;
        return ST_OK;
    }
    if (strcmp(name, "narrows") != 0)
        return fail(ST_EFORMAT, "model_type is %.40s; \"llama\" and \"narrows\" are known", name);
    value = json_object_get(root, "layer");
    if (!json_is_string(value))
        return fail(ST_EFORMAT, "layer is missing or no text");
    TRY(set_value(cfg, "layer", "model.layer", value));
    value = json_object_get(root, "rank");
    if (!json_is_integer(value))
        return fail(ST_EFORMAT, "rank is missing or no whole number");
    TRY(set_value(cfg, "rank", "model.rank", value));
    value = json_object_get(root, "outer_silu");
    if (!json_is_boolean(value))
        return fail(ST_EFORMAT, "outer_silu is missing or neither true nor false");
    return set_value(cfg, "outer_silu", "model.outer_silu", value);
}

static enum status read_root(struct config *cfg, const json_t *root)
{
    if (!json_is_object(root))
        return fail(ST_EFORMAT, "it is no JSON object");
    TRY(read_kind(cfg, root));
    TRY(read_rows(cfg, root));
    TRY(read_rope(cfg, root));
    return check_kind(cfg, root);
}

enum status hf_config_read(struct config *cfg, const char *path)
{
    FILE *in = fopen(path, "r");
    json_error_t error;
    json_t *root;
    enum status st;

    if (!in)
        return fail(ST_EIO, "cannot read %s: %s", path, strerror(errno));
    root = json_loadf(in, JSON_REJECT_DUPLICATES, &error);
    fclose(in);
    if (!root)
        return fail(ST_EFORMAT, "%s:%d: %s", path, error.line, error.text);
    st = read_root(cfg, root);
    if (st != ST_OK)
        status_prefix("%s: ", path);
    json_decref(root);
    return st;
}

enum status hf_config_same(const struct config *found, const struct config *expected)
{
    static const char *const keys[] = {
        "model.layer",    "model.width", "model.layers",     "model.heads",
        "model.kv_heads", "model.ffn",   "model.rank",       "model.vocab",
        "model.norm_eps", "model.tied",  "model.rope_theta", "model.outer_silu",
    };
    char a[CONFIG_VALUE], b[CONFIG_VALUE];

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        config_value_write(a, sizeof a, config_find(keys[i]), found);
        config_value_write(b, sizeof b, config_find(keys[i]), expected);
        if (strcmp(a, b) != 0)
            return fail(ST_EFORMAT, "the weights are of a model with %s %s, this one has %s",
                        keys[i], a, b);
    }
    return ST_OK;
}
