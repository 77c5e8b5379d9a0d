/* Private to source*.c: how the table of a source is filled. */
#ifndef COMMON_CHECKPOINT_SOURCE_TABLE_H
#define COMMON_CHECKPOINT_SOURCE_TABLE_H

#include "common/checkpoint/source.h"

/* Appends a tensor; name is copied. raw lies in memory that s keeps. Errors: ST_ENOMEM. */
enum status source_add(struct source *s, const char *name, const struct safetensors_tensor *raw,
                       enum source_map map, int64_t head_dim, const char *file_path);

/* Nonzero for a path that names a .bin. */
int source_is_bin(const char *path);

/* Maps a .bin of llama2.c and appends its tensors. Errors as source_open. */
enum status source_bin_open(struct source *s, const char *path);

/* The shape in its header. Errors as source_config. */
enum status source_bin_config(struct config *cfg, const char *path);

#endif
