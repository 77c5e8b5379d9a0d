/* Files and folders that are there whole or not at all, also after a loss of power.
 *
 * What is new is written beside what it replaces, under the same name with ".partial", put on
 * disk, and renamed. Local; one process writes a name at a time.
 */
#ifndef COMMON_CHECKPOINT_FOLDER_H
#define COMMON_CHECKPOINT_FOLDER_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { FOLDER_PATH = 4096 }; /* bytes of a path, its end included */

/* out [FOLDER_PATH] = folder/name. Errors: ST_EIO when that is too long. */
enum status folder_join(char *out, const char *folder, const char *name);

/* Writes n bytes at offset of fd, however many calls that takes. path: for the message. Errors:
 * ST_EIO with the cause ("No space left on device"). */
enum status folder_pwrite(int fd, const void *data, size_t n, uint64_t offset, const char *path);

/* Puts the entries of the folder that holds path on disk. Errors: ST_EIO. */
enum status folder_sync_parent(const char *path);

/* Makes the folder dir.partial, empty: what an ended process left there under the names of `files`
 * (NULL-ended) is removed. partial: [FOLDER_PATH], out. Errors: ST_EIO naming path and cause. */
enum status folder_begin(char *partial, const char *dir, const char *const *files);

/* dir.partial becomes dir. A folder that dir named before is exchanged in one step; of it, `files`
 * are removed and anything else (notes that somebody put there) moves to the new one. Errors:
 * ST_EIO; dir then is the old folder or the new one, never a mixture. */
enum status folder_commit(const char *dir, const char *const *files);

/* Removes dir.partial with the `files` in it. */
void folder_drop(const char *dir, const char *const *files);

/* Removes the `files` of dir, and dir itself unless something else is in it. What is not there is
 * no failure. Errors: ST_EIO naming path and cause. */
enum status folder_remove(const char *dir, const char *const *files);

/* Closes a file that was written with stdio and puts it on disk. Errors: ST_EIO with the cause. */
enum status folder_close(FILE *file, const char *path);

#endif
