/* A folder for the files of one test, and what tests do with files. Failures end the test. */
#ifndef TESTS_UNIT_TEMP_FOLDER_H
#define TESTS_UNIT_TEMP_FOLDER_H

#include <stddef.h>

enum { TEMP_PATH = 512 };

/* Makes an empty folder; its path, [TEMP_PATH]. And removes it with all that is in it. */
void temp_folder_make(char *folder);
void temp_folder_remove(const char *folder);

/* out [TEMP_PATH] = folder/name; returns out. */
const char *temp_folder_path(char *out, const char *folder, const char *name);

/* out [TEMP_PATH] = name below the top of the source tree; returns out. */
const char *temp_folder_source(char *out, const char *name);

/* The bytes of a file, a zero behind the last; free() them. */
char *temp_folder_read(const char *path, size_t *n);

/* Writes n bytes to a file. */
void temp_folder_write(const char *path, const void *bytes, size_t n);

/* Number of entries of a folder, "." and ".." not counted. */
int temp_folder_count(const char *folder);

/* From now on no file of this process can grow over so many bytes: write() then fails as it does on
 * a full disk. There is no way back. */
void temp_folder_limit(size_t bytes);

#endif
