/* The bytes of a file, plain or packed: gzip and zstd are unpacked on the way, by their content and
 * not by their name. Memory does not depend on the size of the file. */
#ifndef COMMON_DATA_INPUT_H
#define COMMON_DATA_INPUT_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum input_packing { INPUT_PLAIN, INPUT_GZIP, INPUT_ZSTD };

struct input {
    const char *path; /* borrowed; "standard input" for "-" */
    int fd;
    enum input_packing packing;
    unsigned char *buffer; /* what was read and not unpacked yet: [at, end) */
    size_t at, end;
    int64_t taken;    /* bytes read from the file */
    int64_t unpacked; /* bytes handed out */
    int whole;        /* packed: a member or frame ended just here */
    int ended;        /* the file has no more bytes */
    int waits;        /* a pipe or the like: more bytes may be long in coming */
    int (*stop)(void);
    void *state; /* of the unpacking library */
};

/* Opens path, "-" for standard input. path outlives in. stop (NULL: never) is asked while a pipe
 * has nothing to read. Release with input_close; on failure there is nothing to release. Errors:
 * ST_EIO for a file that is missing, unreadable or a directory; ST_ESTOP; ST_ENOMEM. */
enum status input_open(struct input *in, const char *path, int (*stop)(void));
void input_close(struct input *in);

/* Reads up to n bytes; *got < n only at the end. Errors: ST_EIO; ST_ESTOP; ST_EFORMAT for packed
 * data that are damaged or end too early, with the file and the place in it. */
enum status input_read(struct input *in, void *out, size_t n, size_t *got);

/* Bytes of all the files together, as they lie on disk; -1 when one of them is not a regular file.
 * Errors: ST_EIO for one that is missing. */
enum status input_sizes(int64_t *bytes, const char *const *paths, int n);

#endif
