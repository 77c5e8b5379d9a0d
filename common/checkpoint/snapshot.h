/* A copy of the state that this rank owns, in host memory, as the file that it will be.
 *
 * Memory is taken and touched once. Taking a snapshot copies the pieces from the device and hashes
 * each: from then on training may change the tensors. The image is a whole safetensors file; a
 * piece is called "tensor:grain:kind" in it.
 */
#ifndef COMMON_CHECKPOINT_SNAPSHOT_H
#define COMMON_CHECKPOINT_SNAPSHOT_H

#include "common/checkpoint/manifest.h"

struct snapshot {
    struct parts parts;
    struct manifest_piece *entry; /* one a piece; hash as of the last snapshot */
    struct manifest_file file;
    char *image;           /* file.bytes of it */
    void *raw[PART_KINDS]; /* room for a shard whose pieces are columns, of each kind */
    const struct tensor *held[PART_KINDS]; /* whose values are there */
};

/* Plans the file of this rank (number in the job: rank) and takes its memory. The parameters'
 * memory is borrowed. Local. Errors: ST_ENOMEM. */
enum status snapshot_open(struct snapshot *s, const struct params *p, struct part_owner at,
                          int rank);
void snapshot_close(struct snapshot *s);

/* Copies and hashes. Waits for the device. Local. Errors: ST_EDEVICE. */
enum status snapshot_take(struct snapshot *s, struct device *dev);

/* Bytes that a rank's snapshot takes at most: all it holds, divided among the replicas, rounded up
 * by the largest grain. For a plan: memory of p need not be carved; training state is counted. */
uint64_t snapshot_plan(const struct params *p, int replicas);

#endif
