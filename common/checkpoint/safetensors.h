/* safetensors files: a strict reader and a writer that never leaves half a file behind.
 *
 * A file is a little-endian u64 N, N bytes of JSON, and the data. The JSON is one object: the name
 * of a tensor gives {"dtype", "shape", "data_offsets": [begin, end)}, offsets counted from the
 * first byte of the data; "__metadata__" maps texts to texts. Tensors are row-major and cover the
 * data exactly: no gap, no overlap, nothing behind the last.
 *
 * The reader trusts nothing: every number of the header is checked against the file before it is
 * used. It refuses what the format's text forbids or does not describe, also where other readers
 * are lenient (a header that does not begin with '{' or is padded with anything but spaces, a name
 * given twice, a further field in a tensor).
 */
#ifndef COMMON_CHECKPOINT_SAFETENSORS_H
#define COMMON_CHECKPOINT_SAFETENSORS_H

#include "common/base/status.h"
#include "common/tensor/dtype.h"

#include <stddef.h>
#include <stdint.h>

/* type, bytes of an element */
#define SAFETENSORS_TYPES(X) \
    X(F64, 8)                \
    X(F32, 4)                \
    X(F16, 2)                \
    X(BF16, 2)               \
    X(I64, 8)                \
    X(I32, 4)                \
    X(I16, 2)                \
    X(I8, 1)                 \
    X(U64, 8)                \
    X(U32, 4)                \
    X(U16, 2)                \
    X(U8, 1)                 \
    X(BOOL, 1)               \
    X(F8_E4M3, 1)            \
    X(F8_E5M2, 1)

enum safetensors_type {
#define X(type, bytes) SAFETENSORS_##type,
    SAFETENSORS_TYPES(X)
#undef X
        SAFETENSORS_TYPE_COUNT
};

enum { SAFETENSORS_RANK_WRITTEN = 4 }; /* most dimensions of a tensor that is written */

/* A tensor of an open file. All pointers lie in the file's memory. */
struct safetensors_tensor {
    const char *name;
    enum safetensors_type type;
    int rank; /* 0: a scalar */
    const int64_t *shape;
    int64_t count;     /* elements: the product of shape */
    const void *data;  /* count elements; not aligned */
    size_t begin, end; /* data_offsets */
};

struct safetensors {
    char *path;
    struct safetensors_tensor *tensor; /* by name */
    int n;
    void *map; /* the whole file */
    size_t size;
    int64_t *dims;
    void *header; /* parsed; names and metadata live in it */
};

/* "F32" and the like; and bytes of an element. */
const char *safetensors_type_name(enum safetensors_type type);
size_t safetensors_type_size(enum safetensors_type type);

/* Maps path and checks all of it but the values. On failure nothing needs closing. The file must
 * not shrink while it is open. Local. Errors: ST_EIO; ST_EFORMAT with file, tensor and cause;
 * ST_ENOMEM. */
enum status safetensors_open(struct safetensors *f, const char *path);
void safetensors_close(struct safetensors *f);

/* The tensor of that name, or NULL. */
const struct safetensors_tensor *safetensors_find(const struct safetensors *f, const char *name);

/* The text of a key of __metadata__, or NULL. */
const char *safetensors_metadata(const struct safetensors *f, const char *key);

/* out[i] = element first + i, i < n, rounded to dt (DT_F32 or DT_F64). Errors: ST_EFORMAT for a
 * tensor of another type than F64, F32, F16, BF16; ST_EINTERNAL for a range outside the tensor. */
enum status safetensors_read(void *out, enum dtype dt, const struct safetensors_tensor *t,
                             int64_t first, int64_t n);

/* out[i] = in[i] of type dt (DT_F32 or DT_F64) as F64, F32, F16 or BF16, rounded once to nearest,
 * ties to even, i < n. Errors: ST_EFORMAT with the place of a finite value that the type cannot
 * hold; ST_EINTERNAL for another type. */
enum status safetensors_pack(void *out, enum safetensors_type type, const void *in, enum dtype dt,
                             int64_t n);

/* A tensor to be written. */
struct safetensors_spec {
    const char *name;
    enum safetensors_type type;
    int rank;
    int64_t shape[SAFETENSORS_RANK_WRITTEN];
};

/* The header that a file of n tensors begins with, its length in front: *text [*bytes], freed by
 * the caller. offset[i]: where tensor i lies in that file, as safetensors_create would place it.
 * Errors: as safetensors_create, but for the file. */
enum status safetensors_header(char **text, size_t *bytes, uint64_t *offset,
                               const struct safetensors_spec *t, int n,
                               const char *const *metadata);

struct safetensors_slot {
    char *name;
    uint64_t offset, bytes; /* in the file */
    int written;
};

struct safetensors_writer {
    char *path, *temporary; /* path.partial until it is whole */
    int fd;
    struct safetensors_slot *slot; /* by name */
    int n;
};

/* Begins a file of n tensors under a temporary name beside path. metadata: key, text, key, text,
 * NULL; or NULL for none. Tensors lie by falling size of an element, then by name. On failure
 * nothing needs dropping. Errors: ST_EIO with file and cause; ST_EINTERNAL for a name given twice,
 * a bad shape, or text that is not UTF-8; ST_ENOMEM. */
enum status safetensors_create(struct safetensors_writer *w, const char *path,
                               const struct safetensors_spec *t, int n,
                               const char *const *metadata);

/* Writes the whole tensor called name, in any order; data as the spec says, little-endian. Errors:
 * ST_EIO with file and cause (a full disk); ST_EINTERNAL for a name that is unknown or written. */
enum status safetensors_put(struct safetensors_writer *w, const char *name, const void *data);

/* Puts the file on disk and renames it to its path: from then on it is there, whole, also after a
 * loss of power. Releases w, also on failure. Errors: ST_EIO; ST_EINTERNAL when a tensor is
 * missing. */
enum status safetensors_finish(struct safetensors_writer *w);

/* Gives up a file that was begun: nothing of it stays, what path held before does. */
void safetensors_drop(struct safetensors_writer *w);

#endif
