/* Weights of a model as a folder: config.json, model.safetensors, narrows.yaml.
 *
 * Tensors are whole, real rows only, in Hugging Face's names and order [out, in]; the factors of a
 * low-rank projection are `.down.weight` (A) and `.up.weight` (B). The file depends on the model
 * alone, not on the layout that wrote it: any layout loads it.
 */
#ifndef COMMON_CHECKPOINT_WEIGHTS_H
#define COMMON_CHECKPOINT_WEIGHTS_H

#include "common/backend/host.h"
#include "common/model/model.h"

/* Writes the exact values (masters where there are any) to dir, through a temporary folder that is
 * renamed over it once everything is on disk. Collective over tp (the host group of TP ranks);
 * its rank 0 writes. Errors: ST_EIO naming the file and the cause (a full disk leaves what was
 * there before), ST_ENOMEM. */
enum status weights_save(const char *dir, const struct model *m, struct device *dev,
                         struct host *tp);

/* Reads this rank's shards of every parameter from dir. Local. Errors: ST_EIO; ST_EFORMAT naming
 * the tensor that is missing, left over, of another shape or type, or not finite. */
enum status weights_load(struct model *m, struct device *dev, const char *dir);

/* The configuration that a folder of weights was saved with (narrows.yaml), or, for a folder of
 * Hugging Face's, the model's shape from config.json. Sets the model section of cfg.
 * Errors: ST_EIO, ST_EFORMAT naming the key. */
enum status weights_config(struct config *cfg, const char *dir);

#endif
