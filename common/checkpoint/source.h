/* A model as it lies in files, whoever wrote them: one table of tensors under this program's names
 * and in its order [out, in], rows of q and k for half-split rotary positions.
 *
 * Three layouts are read. A folder with config.json and safetensors (one file, or several with
 * model.safetensors.index.json): Hugging Face's LLaMA and Qwen2, and this program's own. The same
 * with CoLA's factors: X.cola_a [in, rank] is X.down.weight turned, X.cola_b [rank, out] is
 * X.up.weight turned. And llama2.c's .bin (version 0): float32 in a fixed order, pairs of rotary
 * positions side by side; a negative vocabulary says that the head is a matrix of its own.
 *
 * Nothing is copied when a source is opened: files are mapped, elements are found when read.
 */
#ifndef COMMON_CHECKPOINT_SOURCE_H
#define COMMON_CHECKPOINT_SOURCE_H

#include "common/checkpoint/hf_config.h"
#include "common/checkpoint/safetensors.h"
#include "common/model/config.h"

/* How a tensor here comes from the one in the file. */
enum source_map {
    SOURCE_PLAIN,
    SOURCE_TURNED, /* rows and columns change places */
    SOURCE_HALVED  /* rows 2j, 2j + 1 of each head become j, j + head_dim / 2 */
};

struct source_tensor {
    char *name;
    struct safetensors_tensor raw; /* as in the file, without its shape */
    enum source_map map;
    int64_t head_dim;      /* SOURCE_HALVED */
    int rank;              /* dimensions in the file */
    int64_t rows, cols;    /* as here; of a vector 1 and its length, of a scalar 0 and 0 */
    const char *file_path; /* where it lies */
};

struct source {
    const char *where; /* the path that was opened, for messages; borrowed */
    enum hf_kind kind;
    struct hf_ids ids; /* of special tokens, from config.json */
    int bin;           /* llama2.c */
    struct safetensors *file;
    int files, file_room;
    void *map; /* of a .bin */
    size_t map_size;
    struct source_tensor *tensor; /* by name */
    int n, room;
};

/* Sets the model section of cfg (over config_default) and train.seq from path: a folder's
 * config.json, or the header of a .bin. Errors: ST_EIO; ST_EFORMAT naming the key. */
enum status source_config(struct config *cfg, const char *path);

/* Opens a folder, a .bin or a single .safetensors file: every header is checked, no value is read.
 * path stays the caller's and must outlive s. On failure nothing needs closing. Local. Errors:
 * ST_EIO; ST_EFORMAT with file and cause, also for a tensor that is there twice or that the index
 * names and its file lacks; ST_ENOMEM. */
enum status source_open(struct source *s, const char *path);
void source_close(struct source *s);

/* The tensor of that name, or NULL. */
const struct source_tensor *source_find(const struct source *s, const char *name);

/* out[i] = element [row, col + i] as here, i < n, rounded to dt (DT_F32 or DT_F64). Errors:
 * ST_EFORMAT for a type that is no real number; ST_EINTERNAL outside the tensor. */
enum status source_read(void *out, enum dtype dt, const struct source_tensor *t, int64_t row,
                        int64_t col, int64_t n);

/* All of it, row after row; every value must be finite. Errors: also ST_EFORMAT with the place of
 * one that is not. */
enum status source_read_all(void *out, enum dtype dt, const struct source_tensor *t);

/* Nonzero for a tensor that says nothing new: the frequencies of rotary positions, which old files
 * carry, and the head of a tied model where it is the embedding again. */
int source_redundant(const struct source *s, const struct source_tensor *t, int tied);

/* DT_F64 when any tensor is float64, else DT_F32: the type that holds all values exactly. */
enum dtype source_wide(const struct source *s);

#endif
