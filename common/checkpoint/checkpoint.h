/* Checkpoints of a training run: a folder of them, each whole or not there.
 *
 *     RUN/checkpoints/step-000000020/   manifest.json, rank-00000.safetensors, ...
 *     RUN/checkpoints/latest            the name of the newest: a hint, nothing relies on it
 *
 * A save goes to step-N.tmp.NONCE: each rank looks for room, writes one file, puts it on disk and
 * reads it back; then one rank writes the manifest, puts it on disk, renames the folder and
 * puts its parent on disk. Whenever a process ends, the checkpoints before are as they were. A
 * checkpoint that is no longer kept is renamed to step-N.old.NONCE before its files are removed.
 */
#ifndef COMMON_CHECKPOINT_CHECKPOINT_H
#define COMMON_CHECKPOINT_CHECKPOINT_H

#include "common/checkpoint/snapshot.h"

#define CHECKPOINT_FOLDER "checkpoints"
#define CHECKPOINT_LATEST "latest"

/* out [FOLDER_PATH] = root/step-N. Errors: ST_EIO for a path that is too long. */
enum status checkpoint_path(char *out, const char *root, int64_t step);

/* out [FOLDER_PATH] = root/step-N.tmp.NONCE, made; root and the folder above are made as well.
 * Local, on one rank. Errors: ST_EIO naming path and cause. */
enum status checkpoint_begin(char *out, const char *root, int64_t step, uint64_t nonce);

/* Writes the snapshot's file into folder and puts it on disk, if there is room for it. Local.
 * Errors: ST_EIO with what is needed and what is free. */
enum status checkpoint_write(const char *folder, const struct snapshot *s);

/* Reads it back, past the system's cache where that can be, and compares header and pieces with
 * the hashes of the snapshot. Local. Errors: ST_EIO, ST_EFORMAT naming file and tensor. */
enum status checkpoint_read_back(const char *folder, const struct snapshot *s);

/* Writes the manifest into folder (from checkpoint_begin), reads it back, and makes the folder
 * root/step-N in one step. All files that m names must be there. Local, on one rank. Errors:
 * ST_EIO. */
enum status checkpoint_commit(const char *folder, const char *root, const struct manifest *m);

/* Writes root/latest. Local, on one rank. Errors: ST_EIO. */
enum status checkpoint_hint(const char *root, int64_t step);

/* Removes a folder that was begun. */
void checkpoint_drop(const char *folder);

/* The steps of the folders in root that are called like checkpoints, newest first, freed by the
 * caller; none, also when root is not there, is no failure. Errors: ST_EIO, ST_ENOMEM. */
enum status checkpoint_list(int64_t **step, int *n, const char *root);

/* Removes what ended processes left in root: folders that were being written or removed. */
enum status checkpoint_sweep(const char *root);

/* Which checkpoints stay: the newest `last` (at least 1) and those of a step that `every` divides
 * (0: no more). */
struct checkpoint_keep {
    int64_t last, every;
};

/* Removes the others, but none whose manifest does not read: it may be somebody's only hope, and
 * `narrows checkpoint verify` names it. *removed: how many. Errors: ST_EIO. */
enum status checkpoint_prune(int *removed, const char *root, struct checkpoint_keep keep);

/* Removes the checkpoint of one step. Errors: ST_EIO. */
enum status checkpoint_remove(const char *root, int64_t step);

/* What loading took. */
struct checkpoint_read {
    uint64_t read, whole; /* bytes read, and of the checkpoint */
};

/* Sets this rank's weights, masters and moments from a checkpoint that any layout wrote; reads and
 * verifies the pieces that it holds a part of, and nothing else. Local. Errors: ST_EIO; ST_EFORMAT
 * naming file and tensor: damaged, missing, left over, of another shape or type, not finite;
 * ST_ENOMEM. Parameters before the one that failed have then been set. */
enum status checkpoint_load(struct params *p, struct device *dev, const char *folder,
                            const struct manifest *m, struct checkpoint_read *count);

/* Sets the weights alone, to their exact values (masters where there are any). Else the same. */
enum status checkpoint_load_weights(struct params *p, struct device *dev, const char *folder,
                                    const struct manifest *m, struct checkpoint_read *count);

/* Reads every byte of a checkpoint: sizes, headers, hashes of all pieces. Local. Errors: as
 * checkpoint_load, the first that is found. */
enum status checkpoint_verify(const char *folder, const struct manifest *m,
                              struct checkpoint_read *count);

/* out [FOLDER_PATH] = the checkpoint that `where` means: itself, or in the folder of a run (or its
 * checkpoints/) the newest whose manifest reads. Errors: ST_EIO naming what was looked for. */
enum status checkpoint_find(char *out, const char *where);

#endif
