#include "common/tokenizer/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int file_exists(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0;
}

int file_is_folder(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static enum status read_open_file(struct byte_list *out, int fd, const char *path)
{
    struct stat info;

    if (fstat(fd, &info) != 0)
        return fail(ST_EIO, "cannot read %s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return fail(ST_EIO, "%s is not a regular file", path);
    TRY(list_bytes_room(out, info.st_size + 1));
    for (;;) {
        ssize_t got;

        TRY(list_bytes_room(out, 1));
        got = read(fd, out->bytes + out->count, (size_t)(out->room - out->count));
        if (got == 0)
            return ST_OK;
        if (got > 0)
            out->count += got;
        else if (errno != EINTR)
            return fail(ST_EIO, "cannot read %s: %s", path, strerror(errno));
    }
}

enum status file_read(struct byte_list *out, const char *path)
{
    /* O_NONBLOCK: opening a pipe that nobody writes to must not hang. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum status st;

    if (fd < 0)
        return fail(ST_EIO, "cannot open %s: %s", path, strerror(errno));
    st = read_open_file(out, fd, path);
    close(fd);
    return st;
}
