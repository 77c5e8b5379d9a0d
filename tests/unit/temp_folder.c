#include "tests/unit/temp_folder.h"

#include <check.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

void temp_folder_make(char *folder)
{
    const char *where = getenv("TMPDIR");

    snprintf(folder, TEMP_PATH, "%s/narrows_test.XXXXXX", where ? where : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

void temp_folder_remove(const char *folder)
{
    char command[TEMP_PATH + 16];

    snprintf(command, sizeof command, "rm -r '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

const char *temp_folder_path(char *out, const char *folder, const char *name)
{
    int n = snprintf(out, TEMP_PATH, "%s/%s", folder, name);

    ck_assert(n > 0 && n < TEMP_PATH);
    return out;
}

const char *temp_folder_source(char *out, const char *name)
{
    const char *source = getenv("SOURCE");

    return temp_folder_path(out, source ? source : ".", name);
}

char *temp_folder_read(const char *path, size_t *n)
{
    FILE *in = fopen(path, "rb");
    char *bytes;
    long size;

    ck_assert_msg(in != NULL, "cannot read %s", path);
    ck_assert_int_eq(fseek(in, 0, SEEK_END), 0);
    size = ftell(in);
    ck_assert_int_ge(size, 0);
    rewind(in);
    bytes = calloc(1, (size_t)size + 1);
    ck_assert_ptr_nonnull(bytes);
    *n = fread(bytes, 1, (size_t)size, in);
    ck_assert_uint_eq(*n, (size_t)size);
    fclose(in);
    return bytes;
}

void temp_folder_write(const char *path, const void *bytes, size_t n)
{
    FILE *out = fopen(path, "wb");

    ck_assert_msg(out != NULL, "cannot write %s", path);
    ck_assert_uint_eq(fwrite(bytes, 1, n, out), n);
    ck_assert_int_eq(fclose(out), 0);
}

int temp_folder_count(const char *folder)
{
    DIR *dir = opendir(folder);
    int n = 0;

    ck_assert_msg(dir != NULL, "cannot list %s", folder);
    for (struct dirent *e; (e = readdir(dir)) != NULL;)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(dir);
    return n;
}

void temp_folder_limit(size_t bytes)
{
    struct rlimit limit = {bytes, bytes};

    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}
