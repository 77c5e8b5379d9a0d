/* Weights of a model as a folder: config.json, model.safetensors, narrows.yaml.
 *
 * Tensors are whole, real rows only (no padding of the vocabulary), in Hugging Face's names and
 * order [out, in]; the factors of a low-rank projection are `.down.weight` (A, [r, in]) and
 * `.up.weight` (B, [out, r]). Values are stored in the wide type, F32 or F64, exactly. The file
 * depends on the model alone, not on the layout that wrote it: any layout loads it. narrows.yaml is
 * the whole configuration, as config_print writes it; common/cli reads it back.
 *
 * What source.h reads loads as well: folders of Hugging Face's (LLaMA, Qwen2; one file or several;
 * F64, F32, F16 or BF16), of CoLA's, and the .bin of llama2.c.
 */
#ifndef COMMON_CHECKPOINT_WEIGHTS_H
#define COMMON_CHECKPOINT_WEIGHTS_H

#include "common/backend/host.h"
#include "common/model/model.h"

/* Names within a folder of weights. */
#define WEIGHTS_CONFIG   "config.json"
#define WEIGHTS_TENSORS  "model.safetensors"
#define WEIGHTS_INDEX    "model.safetensors.index.json"
#define WEIGHTS_SETTINGS "narrows.yaml"

enum { WEIGHTS_PATH = 4096 }; /* bytes of a path, its end included */

/* Writes the exact values (masters where there are any) to dir, through a temporary folder
 * dir.partial that takes its place once everything is on disk; files in dir that are not of the
 * three stay. The folder above dir must be there. Collective over tp (the host group of TP ranks)
 * and the stages of a pipeline; rank 0 of the first stage writes. One replica calls it, or, where
 * weights_shared_save, all. A rank that fails leaves the others waiting until it calls host_agree,
 * as all must afterwards. Errors: ST_EIO naming the file and the cause (a full disk leaves what was
 * there before), ST_ENOMEM. */
enum status weights_save(const char *dir, const struct model *m, struct device *dev,
                         struct host *tp);

/* Nonzero when the exact values are spread over the replicas (ZeRO-1 with masters). */
int weights_shared_save(const struct model *m);

/* Writes narrows.yaml for cfg to path. Errors: ST_EIO. */
enum status weights_write_settings(const char *path, const struct config *cfg);

/* Removes what weights_save wrote to dir, and dir itself unless something else is in it. Local.
 * Errors: ST_EIO naming path and cause; none when nothing is there. */
enum status weights_remove(const char *dir);

/* Reads this rank's shards of every parameter from dir (a folder, or a .bin), which must describe
 * m. Local. Errors: ST_EIO; ST_EFORMAT naming the key of the model that differs or the tensor that
 * is missing, left over, there twice, of another shape or type, or not finite; ST_ENOMEM.
 * Parameters before the one that failed have then been set. */
enum status weights_load(struct model *m, struct device *dev, const char *dir);

/* The same from one safetensors file alone: the shapes of tensors are all that is checked. */
enum status weights_load_file(struct model *m, struct device *dev, const char *path);

/* Sets the model section of cfg (over config_default) and train.seq from dir/config.json or the
 * header of a .bin. Errors: ST_EIO, ST_EFORMAT naming the key. */
enum status weights_config(struct config *cfg, const char *dir);

/* Gives the keys of the model section that nobody has set the values of the weights that
 * train.init_from names; nothing when it names none, or a preset is named. (weights_load then
 * refuses a model that is not the same.) Local; reads a small file. Errors: those of weights_find
 * and weights_config. */
enum status weights_adopt(struct config *cfg);

/* out [WEIGHTS_PATH] = the weights that `where` means: itself (a folder, or a .bin), or in the
 * folder of a run final/, else best/. Errors: ST_EIO naming what was looked for. */
enum status weights_find(char *out, const char *where);

#endif
