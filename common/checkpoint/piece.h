/* Reading the pieces of a checkpoint's files (manifest.h), each verified: in chunks that stay in a
 * core's cache while they are read, hashed, looked through and put where they belong. */
#ifndef COMMON_CHECKPOINT_PIECE_H
#define COMMON_CHECKPOINT_PIECE_H

#include "common/backend/device.h"
#include "common/checkpoint/checkpoint.h"

struct piece_source {
    const char *folder;
    const struct manifest *m;
    int *fd;      /* of each file; -1: not open yet */
    char *buffer; /* what was read last */
    size_t room;
    char *stage; /* an area on its way to the device: piece_stage */
    size_t stage_room;
    struct checkpoint_read *count;
};

/* Where an area of a tensor goes: to host memory, packed; or, where every piece of it is whole
 * rows, straight to the device. */
struct piece_goal {
    struct part_area want;
    char *host;
    struct device *dev;
    char *device; /* NULL: to host */
};

/* folder, m and count are borrowed; no file is opened yet. Local. Errors: ST_ENOMEM. */
enum status piece_source_open(struct piece_source *s, const char *folder, const struct manifest *m,
                              struct checkpoint_read *count);
void piece_source_close(struct piece_source *s);

/* Opens a file of the manifest's list and verifies its size and header; nothing when that was done.
 * Local. Errors: ST_EIO, ST_EFORMAT naming the file; ST_ENOMEM. */
enum status piece_open_file(struct piece_source *s, int file);

/* Reads a piece: it is as it was when the snapshot was taken, and finite. What of it lies in the
 * goal's area goes there, also where it then is found to be damaged. g NULL: it is verified alone.
 * Local. Errors: as piece_open_file; ST_EFORMAT naming file, tensor and grain; those of the
 * device. */
enum status piece_read(struct piece_source *s, const struct manifest_piece *p,
                       struct piece_goal *g);

/* s->stage has n bytes, of any contents. Errors: ST_ENOMEM. */
enum status piece_stage(struct piece_source *s, size_t n);

/* Nonzero when two areas share an element. */
int piece_overlap(const struct part_area *a, const struct part_area *b);

#endif
