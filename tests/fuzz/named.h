/* Files with names, for readers that look at a name or into a folder. */
#ifndef TESTS_FUZZ_NAMED_H
#define TESTS_FUZZ_NAMED_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAMED = 128 };

/* folder [NAMED]: one of this process alone, made when it is not there. */
static void named_folder(char *folder)
{
    snprintf(folder, NAMED, "/dev/shm/narrows-fuzz-%ld", (long)getpid());
    mkdir(folder, 0700);
}

/* Puts n bytes into folder/name; path [NAMED] is where they are. */
static void named_file(char *path, const char *folder, const char *name, const void *bytes,
                       size_t n)
{
    FILE *out;

    if (snprintf(path, NAMED, "%s/%s", folder, name) >= NAMED)
        abort();
    out = fopen(path, "wb");
    if (!out || fwrite(bytes, 1, n, out) != n || fclose(out))
        abort();
}

#endif
