#include "common/checkpoint/modeling.h"

#include "common/checkpoint/folder.h"

#include <errno.h>
#include <string.h>

enum status modeling_write(const char *path)
{
    static const char *const lines[] = {
#include "common/checkpoint/modeling_lines.def"
    };
    FILE *out = fopen(path, "w");

    if (!out)
        return fail(ST_EIO, "cannot write %s: %s", path, strerror(errno));
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        fputs(lines[i], out);
    return folder_close(out, path);
}
