/* A whole file in memory. */
#ifndef COMMON_TOKENIZER_FILE_H
#define COMMON_TOKENIZER_FILE_H

#include "common/tokenizer/list.h"

/* Appends the content of a regular file. Errors: ST_EIO with path and reason, ST_ENOMEM. */
enum status file_read(struct byte_list *out, const char *path);

/* Whether there is something of that name; and whether it is a directory. */
int file_exists(const char *path);
int file_is_folder(const char *path);

#endif
