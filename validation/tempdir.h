/* A folder for the files of one child job, removed with all that lies in it. */
#ifndef VALIDATION_TEMPDIR_H
#define VALIDATION_TEMPDIR_H

#include "common/base/status.h"

enum { TEMPDIR_PATH = 512 };

/* Makes path [TEMPDIR_PATH] in $TMPDIR, or /tmp. Errors: ST_EIO. */
enum status tempdir_make(char *path);

/* Removes it with all it holds; tells nobody when it cannot. */
void tempdir_remove(const char *path);

#endif
