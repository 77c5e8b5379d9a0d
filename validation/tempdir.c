#include "validation/tempdir.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status tempdir_make(char *path)
{
    const char *base = getenv("TMPDIR");

    snprintf(path, TEMPDIR_PATH, "%s/narrows-validate-XXXXXX", base && base[0] ? base : "/tmp");
    if (!mkdtemp(path))
        return fail(ST_EIO,
                    "cannot make a folder %s: %s; set TMPDIR to a folder that can be "
                    "written",
                    path, strerror(errno));
    return ST_OK;
}

static int drop(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    remove(path);
    return 0;
}

void tempdir_remove(const char *path)
{
    nftw(path, drop, 16, FTW_DEPTH | FTW_PHYS);
}
