/* Reading config.json. */
#include "common/checkpoint/hf_config.h"

#include "common/checkpoint/hf_rows.h"
#include "common/model/config_value.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

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

static enum status read_rows(struct config *cfg, const json_t *root, enum hf_kind kind)
{
    static const struct {
        const char *json, *key;
        int needed;
    } rows[] = {
#define X(json, key, needed) {json, key, needed},
        HF_ROWS(X)
#undef X
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const json_t *value = json_object_get(root, rows[i].json);

        if (value && !json_is_null(value))
            TRY(set_value(cfg, rows[i].json, rows[i].key, value));
        else if (rows[i].needed)
            return fail(ST_EFORMAT, "%s is missing", rows[i].json);
    }
    if (kind == HF_COLA && !json_object_get(root, "max_position_embeddings") &&
        json_object_get(root, HF_COLA_LENGTH))
        TRY(set_value(cfg, HF_COLA_LENGTH, "train.seq", json_object_get(root, HF_COLA_LENGTH)));
    if (!cfg->model.kv_heads)
        cfg->model.kv_heads = cfg->model.heads;
    return ST_OK;
}

/* ---- rotary positions ---- */

/* Nothing when an object that may describe scaling says that there is none. */
static enum status check_plain(const json_t *rope, const char *name)
{
    const json_t *part = json_object_get(rope, "partial_rotary_factor");
    const json_t *type = json_object_get(rope, "rope_type");

    if (!rope || json_is_null(rope))
        return ST_OK;
    if (!type)
        type = json_object_get(rope, "type");
    if (!json_is_object(rope) ||
        (type && !(json_is_string(type) && !strcmp(json_string_value(type), "default"))) ||
        (!type && json_object_get(rope, "factor")))
        return fail(ST_EFORMAT,
                    "%s asks for rope_type %.40s; only plain rotary positions (\"default\") are "
                    "computed",
                    name, json_is_string(type) ? json_string_value(type) : "(not named)");
    if (part && !json_is_null(part) && json_number_value(part) != 1.0)
        return fail(ST_EFORMAT, "%s: partial_rotary_factor is %g; all of a head is turned here",
                    name, json_number_value(part));
    return ST_OK;
}

/* rope_theta stands at the top or in rope_parameters; where in both, once is enough. */
static enum status read_rope(struct config *cfg, const json_t *root)
{
    const json_t *inner = json_object_get(root, "rope_parameters");
    const json_t *theta = json_object_get(root, "rope_theta");
    const json_t *part = json_object_get(root, "partial_rotary_factor");
    const json_t *own = json_object_get(inner, "rope_theta");

    TRY(check_plain(json_object_get(root, "rope_scaling"), "rope_scaling"));
    TRY(check_plain(inner, "rope_parameters"));
    if (part && !json_is_null(part) && json_number_value(part) != 1.0)
        return fail(ST_EFORMAT, "partial_rotary_factor is %g; all of a head is turned here",
                    json_number_value(part));
    if (theta && own && json_number_value(theta) != json_number_value(own))
        return fail(ST_EFORMAT, "rope_theta is %g and in rope_parameters %g",
                    json_number_value(theta), json_number_value(own));
    if (!theta)
        theta = own;
    return theta ? set_value(cfg, "rope_theta", "model.rope_theta", theta) : ST_OK;
}

/* ---- what is not computed ---- */

static enum status check_biases(const json_t *root)
{
    static const char *const biases[] = {"attention_bias", "mlp_bias", "bias", "use_bias"};

    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++)
        if (json_is_true(json_object_get(root, biases[i])))
            return fail(ST_EFORMAT,
                        "%s is true; the only biases here are those of q, k and v (model_type "
                        "qwen2)",
                        biases[i]);
    return ST_OK;
}

/* Some layers of another kind of attention. */
static enum status check_windows(const json_t *root)
{
    const json_t *types = json_object_get(root, "layer_types");

    if (json_is_true(json_object_get(root, "use_sliding_window")))
        return fail(ST_EFORMAT, "use_sliding_window is true; attention here sees the whole text");
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *name = json_string_value(json_array_get(types, i));

        if (!name || strcmp(name, "full_attention") != 0)
            return fail(ST_EFORMAT, "layer_types %zu is not \"full_attention\"", i);
    }
    return ST_OK;
}

/* Refuses what this program does not compute. */
static enum status check_kind(const struct config *cfg, const json_t *root)
{
    const json_t *act = json_object_get(root, "hidden_act");
    const json_t *head_dim = json_object_get(root, "head_dim");
    const json_t *quantised = json_object_get(root, "quantization_config");
    int64_t heads = cfg->model.heads;

    if (act && !(json_is_string(act) && !strcmp(json_string_value(act), "silu")))
        return fail(ST_EFORMAT, "hidden_act is not \"silu\", the only one that is computed");
    TRY(check_biases(root));
    TRY(check_windows(root));
    if (quantised && !json_is_null(quantised))
        return fail(ST_EFORMAT, "quantization_config is given; weights must be plain numbers");
    if (head_dim && !json_is_null(head_dim) &&
        (cfg->model.width % heads || json_integer_value(head_dim) != cfg->model.width / heads))
        return fail(ST_EFORMAT,
                    "head_dim %" JSON_INTEGER_FORMAT " is not hidden_size %" PRId64
                    " / num_attention_heads %" PRId64,
                    json_integer_value(head_dim), cfg->model.width, heads);
    return ST_OK;
}

/* ---- kinds ---- */

/* layer, rank, outer_silu, qkv_bias of "narrows"; the last came later and may be missing. */
static enum status read_narrows(struct config *cfg, const json_t *root)
{
    const json_t *value = json_object_get(root, "layer");

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
    TRY(set_value(cfg, "outer_silu", "model.outer_silu", value));
    value = json_object_get(root, "qkv_bias");
    return value ? set_value(cfg, "qkv_bias", "model.qkv_bias", value) : ST_OK;
}

/* rank and only_lr_act of "cola", with the defaults of CoLA's own configuration. */
static enum status read_cola(struct config *cfg, const json_t *root)
{
    const json_t *rank = json_object_get(root, "rank");
    const json_t *only = json_object_get(root, "only_lr_act");

    if (only && !json_is_boolean(only))
        return fail(ST_EFORMAT, "only_lr_act is neither true nor false");
    cfg->model.layer = LAYER_COLA;
    cfg->model.outer_silu = json_is_false(only) ? SILU_ON : SILU_OFF;
    if (rank && !json_is_null(rank))
        return set_value(cfg, "rank", "model.rank", rank);
    cfg->model.rank = json_integer_value(json_object_get(root, "hidden_size")) / 4;
    return cfg->model.rank > 0 ? ST_OK : fail(ST_EFORMAT, "rank is missing");
}

static enum status read_kind(struct config *cfg, enum hf_kind *kind, const json_t *root)
{
    const json_t *type = json_object_get(root, "model_type");
    const char *name = json_is_string(type) ? json_string_value(type) : "(none)";

    cfg->model.qkv_bias = !strcmp(name, "qwen2");
    if (!strcmp(name, "llama") || !strcmp(name, "qwen2")) {
        *kind = cfg->model.qkv_bias ? HF_QWEN2 : HF_LLAMA;
        cfg->model.layer = LAYER_FULL;
        cfg->model.outer_silu = SILU_ON;
        cfg->model.rank = 0;
        return ST_OK;
    }
    *kind = !strcmp(name, "cola") ? HF_COLA : HF_NARROWS;
    if (*kind == HF_COLA)
        return read_cola(cfg, root);
    if (!strcmp(name, "narrows"))
        return read_narrows(cfg, root);
    return fail(ST_EFORMAT,
                "model_type is %.40s; \"llama\", \"qwen2\", \"cola\" and \"narrows\" are known",
                name);
}

/* ---- the file ---- */

/* An id, or the first of several; -1 for none. */
static int64_t read_id(const json_t *root, const char *name)
{
    const json_t *value = json_object_get(root, name);

    if (json_is_array(value))
        value = json_array_get(value, 0);
    return json_is_integer(value) && json_integer_value(value) >= 0 ? json_integer_value(value)
                                                                    : -1;
}

static enum status read_root(struct config *cfg, enum hf_kind *kind, struct hf_ids *ids,
                             const json_t *root)
{
    if (!json_is_object(root))
        return fail(ST_EFORMAT, "it is no JSON object");
    TRY(read_kind(cfg, kind, root));
    TRY(read_rows(cfg, root, *kind));
    TRY(read_rope(cfg, root));
    ids->begin = read_id(root, "bos_token_id");
    ids->end = read_id(root, "eos_token_id");
    ids->pad = read_id(root, "pad_token_id");
    return check_kind(cfg, root);
}

enum status hf_config_read_all(struct config *cfg, enum hf_kind *kind, struct hf_ids *ids,
                               const char *path)
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
    st = read_root(cfg, kind, ids, root);
    if (st != ST_OK)
        status_prefix("%s: ", path);
    json_decref(root);
    return st;
}

enum status hf_config_read(struct config *cfg, const char *path)
{
    enum hf_kind kind;
    struct hf_ids ids;

    return hf_config_read_all(cfg, &kind, &ids, path);
}

enum status hf_config_same(const struct config *found, const struct config *expected)
{
    static const char *const keys[] = {
        "model.layer",    "model.width", "model.layers",     "model.heads",
        "model.kv_heads", "model.ffn",   "model.rank",       "model.vocab",
        "model.norm_eps", "model.tied",  "model.rope_theta", "model.outer_silu",
        "model.qkv_bias",
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
