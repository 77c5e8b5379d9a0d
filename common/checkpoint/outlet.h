/* A model's folder being written, tensor by tensor, whole or not at all. Local; one process. */
#ifndef COMMON_CHECKPOINT_OUTLET_H
#define COMMON_CHECKPOINT_OUTLET_H

#include "common/checkpoint/folder.h"
#include "common/checkpoint/hf_config.h"
#include "common/checkpoint/safetensors.h"

struct outlet {
    struct safetensors_writer out;
    char dir[FOLDER_PATH], partial[FOLDER_PATH];
    enum safetensors_type type;
    void *packed; /* a tensor in that type */
    size_t room;
};

/* Begins dir (under dir.partial) with tensors of those names and shapes; their type is set here:
 * F64, F32, F16 or BF16. dir must not exist or be empty. On failure nothing needs dropping.
 * Errors: ST_EUSAGE when there is something in dir; ST_EIO; ST_ENOMEM. */
enum status outlet_begin(struct outlet *o, const char *dir, enum safetensors_type type,
                         struct safetensors_spec *t, int n);

/* Writes the tensor called name: n values of type dt, rounded once. In any order. Errors: ST_EIO;
 * ST_EFORMAT naming the tensor for a value that the type cannot hold; ST_ENOMEM. */
enum status outlet_put(struct outlet *o, const char *name, const void *values, enum dtype dt,
                       int64_t n);

/* path [FOLDER_PATH] = a file of the folder that is being written; name: one of outlet_files. */
enum status outlet_path(char *path, const struct outlet *o, const char *name);

/* Copies from/name into the folder when it is there. *copied (may be NULL): whether it was. */
enum status outlet_copy(struct outlet *o, const char *from, const char *name, int *copied);

/* Copies a file into the folder, under that name. */
enum status outlet_copy_as(struct outlet *o, const char *path, const char *name);

/* Copies the tokenizer's files of folder `from`, those that are there; *n: how many. */
enum status outlet_copy_tokenizer(struct outlet *o, const char *from, int *n);

/* Makes the folder be there, whole. Releases o, also on failure. */
enum status outlet_commit(struct outlet *o);

/* Gives up: nothing of it stays. */
void outlet_drop(struct outlet *o);

/* "float32" and the like, as config.json names a type. */
const char *outlet_dtype(enum safetensors_type type);

#endif
