/* config.json: the shape of a model in Hugging Face's words.
 *
 * A full-rank model is a LLaMA ("model_type": "llama"), with its rotary base both at the top
 * (rope_theta) and in rope_parameters, since readers of different age look in one or the other.
 * Any other model has "model_type": "narrows" and three keys more: layer ("full", "cola", "svd"),
 * rank, outer_silu. Local functions.
 */
#ifndef COMMON_CHECKPOINT_HF_CONFIG_H
#define COMMON_CHECKPOINT_HF_CONFIG_H

#include "common/model/config.h"
#include "common/tensor/dtype.h"

/* Writes config.json for a resolved configuration; values: the type of the stored weights (DT_F32
 * or DT_F64). Ids of special tokens are null: they belong to a tokenizer. Errors: ST_EIO. */
enum status hf_config_write(const char *path, const struct config *cfg, enum dtype values);

/* Sets the model section of cfg (over config_default) and train.seq (max_position_embeddings) from
 * a config.json. Errors: ST_EIO; ST_EFORMAT with file and key for what is missing, of a wrong kind
 * or out of range, and for models that this program does not compute (biases, another activation,
 * scaled rotary positions, a head_dim of its own). */
enum status hf_config_read(struct config *cfg, const char *path);

/* Nothing when both describe the same model. Errors: ST_EFORMAT with the first key that differs. */
enum status hf_config_same(const struct config *found, const struct config *expected);

#endif
