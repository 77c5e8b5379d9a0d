#include "tests/unit/stored_tokenizer.h"

#include "tests/unit/temp_folder.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

const char *stored_tokenizer_unpack(char *path, const char *folder, const char *name)
{
    char packed[TEMP_PATH], source[TEMP_PATH];
    int status;
    pid_t child;

    snprintf(packed, sizeof packed, "tests/data/tokenizers/%s.gz", name);
    temp_folder_source(source, packed);
    temp_folder_path(path, folder, name);
    child = fork();
    if (child == 0) {
        if (freopen(source, "rb", stdin) && freopen(path, "wb", stdout))
            execlp("gzip", "gzip", "-dc", (char *)NULL);
        _exit(127);
    }
    ck_assert(child > 0 && waitpid(child, &status, 0) == child);
    ck_assert_msg(status == 0, "gzip -dc < %s: status %d", source, status);
    return path;
}

void stored_tokenizer_open(struct tokenizer *t, const char *folder, const char *name)
{
    char path[TEMP_PATH];

    ck_assert_msg(tokenizer_open(t, stored_tokenizer_unpack(path, folder, name)) == ST_OK, "%s",
                  status_message());
}
