/* manifest.json: what a checkpoint of a training run holds, and where.
 *
 * One JSON object: format and version, step, configuration (each key with its value as text),
 * statistics and data position, the random numbers' key, the files, the tensors with their pieces
 * (part.h): kind, file, offset, shape, place in the whole, type, XXH64. The last field, "xxh64",
 * is the hash of all bytes before its comma. It is written last: a folder without a manifest is no
 * checkpoint.
 */
#ifndef COMMON_CHECKPOINT_MANIFEST_H
#define COMMON_CHECKPOINT_MANIFEST_H

#include "common/checkpoint/part.h"

#define MANIFEST_NAME "manifest.json"

enum { MANIFEST_VERSION = 1, MANIFEST_FILE = 32, MANIFEST_TENSOR = 96 };

/* Where a run stands, beside its tensors. */
struct manifest_state {
    int64_t step;               /* updates made */
    int64_t skips;              /* of the last ones, left out in a row */
    double loss, norm, best;    /* last training loss and gradient norm; best validation loss */
    int64_t samples;            /* sequences of an epoch */
    uint64_t train, validation; /* hashes of the texts */
};

struct manifest_file {
    char name[MANIFEST_FILE];
    uint64_t bytes, header, hash; /* size; bytes of the header and their hash */
};

/* A piece in a file. Plain memory: ranks send it to each other. */
struct manifest_piece {
    char tensor[MANIFEST_TENSOR];
    int32_t kind, grain, dtype, file; /* enum part_kind, of the whole, enum dtype, in the list */
    struct part_area area;
    int64_t rows, cols; /* of the whole tensor, without padding */
    uint64_t offset, bytes, hash;
};

struct manifest {
    char *path; /* for messages */
    struct config cfg;
    struct manifest_state state;
    int ranks; /* that wrote it */
    struct manifest_file *file;
    int files;
    struct manifest_piece *piece; /* by tensor, kind, place */
    int pieces;
};

/* Sorts the pieces: by tensor, kind, place. */
void manifest_sort(struct manifest *m);

/* The text of a manifest whose pieces are sorted; *text is freed by the caller. Errors: ST_ENOMEM.
 */
enum status manifest_text(char **text, size_t *bytes, const struct manifest *m);

/* Reads folder/manifest.json and trusts nothing: hash, version, every field, that each piece lies
 * in its file and that the pieces of a tensor cover it exactly. The files are not looked at. On
 * failure nothing needs freeing. Local. Errors: ST_EIO; ST_EFORMAT with file and what is wrong;
 * ST_ENOMEM. */
enum status manifest_read(struct manifest *m, const char *folder);
void manifest_free(struct manifest *m);

/* Nothing when the sorted pieces of each tensor and kind cover it and none lies over another.
 * Errors: ST_EFORMAT naming the tensor. */
enum status manifest_check_covers(const struct manifest *m);

/* The pieces of a tensor and kind: *first points into m, the number is returned; 0 for none. */
int manifest_find(const struct manifest_piece **first, const struct manifest *m, const char *tensor,
                  enum part_kind kind);

/* Bytes of all files. */
uint64_t manifest_bytes(const struct manifest *m);

/* "F32", "F64", "BF16" of a type that checkpoints hold; and back, DT_COUNT when unknown. */
const char *manifest_type_name(enum dtype dt);
enum dtype manifest_type_find(const char *name);

#endif
