/* config.json: the shape of a model in Hugging Face's words.
 *
 * Four kinds: "llama", a full-rank model; "qwen2", one with biases behind q, k and v; "narrows",
 * any other of ours, with layer ("full", "cola", "svd"), rank, outer_silu and qkv_bias; and "cola",
 * the layout of CoLA's own checkpoints, with rank, only_lr_act (no outer SiLU) and
 * max_sequence_length. The rotary base is written both at the top (rope_theta) and in
 * rope_parameters, since readers of different age look in one or the other. Local functions.
 */
#ifndef COMMON_CHECKPOINT_HF_CONFIG_H
#define COMMON_CHECKPOINT_HF_CONFIG_H

#include "common/model/config.h"
#include "common/tensor/dtype.h"

enum hf_kind { HF_LLAMA, HF_QWEN2, HF_NARROWS, HF_COLA };

/* Ids of special tokens: begin, end, padding; -1: none. */
struct hf_ids {
    int64_t begin, end, pad;
};

/* How a configuration is written. */
struct hf_form {
    enum hf_kind kind;
    const char *dtype; /* of the stored values: "float32", "bfloat16", ... */
    struct hf_ids ids;
    int code; /* names the classes of modeling_narrows.py beside it ("narrows" and "cola") */
};

/* The kind that a resolved configuration is saved as: never HF_COLA. */
enum hf_kind hf_config_kind(const struct config *cfg);

/* Writes config.json for a resolved configuration. Errors: ST_EIO. */
enum status hf_config_export(const char *path, const struct config *cfg,
                             const struct hf_form *form);

/* The same in its own kind without ids, which belong to a tokenizer; values: DT_F32 or DT_F64. */
enum status hf_config_write(const char *path, const struct config *cfg, enum dtype values);

/* Writes generation_config.json. Errors: ST_EIO. */
enum status hf_generation_write(const char *path, const struct hf_ids *ids);

/* Sets the model section of cfg (over config_default) and train.seq (max_position_embeddings) from
 * a config.json. Errors: ST_EIO; ST_EFORMAT with file and key for what is missing, of a wrong kind
 * or out of range, and for models that this program does not compute (other biases, another
 * activation, scaled or partial rotary positions, a sliding window, quantised weights, a head_dim
 * of its own). */
enum status hf_config_read(struct config *cfg, const char *path);

/* The same, and the kind and the ids that stand there (of a list the first). */
enum status hf_config_read_all(struct config *cfg, enum hf_kind *kind, struct hf_ids *ids,
                               const char *path);

/* Nothing when both describe the same model. Errors: ST_EFORMAT with the first key that differs. */
enum status hf_config_same(const struct config *found, const struct config *expected);

#endif
