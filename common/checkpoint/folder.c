#include "common/checkpoint/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum status folder_join(char *out, const char *folder, const char *name)
{
    int n = snprintf(out, FOLDER_PATH, "%s/%s", folder, name);

    if (n < 0 || n >= FOLDER_PATH)
        return fail(ST_EIO, "the path %.64s.../%s is longer than %d bytes", folder, name,
                    FOLDER_PATH - 1);
    return ST_OK;
}

enum status folder_pwrite(int fd, const void *data, size_t n, uint64_t offset, const char *path)
{
    size_t done = 0;

    while (done < n) {
        ssize_t put =
            pwrite(fd, (const char *)data + done, n - done, (off_t)(offset + (uint64_t)done));

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return fail(ST_EIO, "cannot write %s: %s", path, strerror(errno));
        if (put == 0)
            return fail(ST_EIO, "cannot write %s: the system took no bytes", path);
        done += (size_t)put;
    }
    return ST_OK;
}

enum status folder_sync_parent(const char *path)
{
    char parent[FOLDER_PATH];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    int fd, bad;

    snprintf(parent, sizeof parent, "%.*s", slash ? (int)(n ? n : 1) : 1, slash ? path : ".");
    fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail(ST_EIO, "cannot open the folder %s: %s", parent, strerror(errno));
    bad = fsync(fd) && errno != EINVAL; /* some file systems keep their folders by themselves */
    if (bad)
        fail(ST_EIO, "cannot put the folder %s on disk: %s", parent, strerror(errno));
    close(fd);
    return bad ? ST_EIO : ST_OK;
}

static enum status partial_name(char *partial, const char *dir)
{
    size_t n = strlen(dir);

    while (n > 1 && dir[n - 1] == '/')
        n--;
    if (n + sizeof ".partial" > FOLDER_PATH)
        return fail(ST_EIO, "the path %.64s... is longer than %d bytes", dir, FOLDER_PATH - 9);
    snprintf(partial, FOLDER_PATH, "%.*s.partial", (int)n, dir);
    return ST_OK;
}

static enum status remove_files(const char *folder, const char *const *files)
{
    char path[FOLDER_PATH];

    for (; *files; files++) {
        TRY(folder_join(path, folder, *files));
        if (unlink(path) && errno != ENOENT)
            return fail(ST_EIO, "cannot remove %s: %s", path, strerror(errno));
    }
    return ST_OK;
}

enum status folder_begin(char *partial, const char *dir, const char *const *files)
{
    TRY(partial_name(partial, dir));
    if (!mkdir(partial, 0777))
        return ST_OK;
    if (errno != EEXIST)
        return fail(ST_EIO, "cannot make the folder %s: %s", partial, strerror(errno));
    TRY(remove_files(partial, files));
    if (rmdir(partial) || mkdir(partial, 0777))
        return fail(ST_EIO, "cannot empty the folder %s: %s; remove it by hand", partial,
                    strerror(errno));
    return ST_OK;
}

/* Moves what is left in folder `from` to folder `to`. */
static enum status move_entries(const char *from, const char *to)
{
    char old[FOLDER_PATH], new[FOLDER_PATH];
    DIR *dir = opendir(from);
    enum status st = ST_OK;

    if (!dir)
        return fail(ST_EIO, "cannot list the folder %s: %s", from, strerror(errno));
    for (struct dirent *e; st == ST_OK && (e = readdir(dir)) != NULL;) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
            continue;
        st = folder_join(old, from, e->d_name);
        if (st == ST_OK)
            st = folder_join(new, to, e->d_name);
        if (st == ST_OK && rename(old, new))
            st = fail(ST_EIO, "cannot move %s to %s: %s", old, new, strerror(errno));
    }
    closedir(dir);
    return st;
}

/* The two folders change names. Where the file system cannot do that in one step, the old one
 * steps aside first; a loss of power in between leaves both whole, under ".partial" and ".old". */
static enum status exchange(const char *partial, const char *dir)
{
    char aside[FOLDER_PATH];

    if (!renameat2(AT_FDCWD, partial, AT_FDCWD, dir, RENAME_EXCHANGE))
        return ST_OK;
    if (errno != EINVAL && errno != ENOSYS)
        return fail(ST_EIO, "cannot replace the folder %s: %s", dir, strerror(errno));
    memcpy(aside, partial, sizeof aside);
    memcpy(strrchr(aside, '.'), ".old", sizeof ".old");
    if (rename(dir, aside))
        return fail(ST_EIO, "cannot rename %s to %s: %s", dir, aside, strerror(errno));
    if (rename(partial, dir)) {
        fail(ST_EIO, "cannot rename %s to %s: %s", partial, dir, strerror(errno));
        (void)rename(aside, dir);
        return ST_EIO;
    }
    if (rename(aside, partial))
        return fail(ST_EIO, "cannot rename %s to %s: %s", aside, partial, strerror(errno));
    return ST_OK;
}

enum status folder_commit(const char *dir, const char *const *files)
{
    char partial[FOLDER_PATH], inside[FOLDER_PATH];
    struct stat info;

    TRY(partial_name(partial, dir));
    TRY(folder_join(inside, partial, "."));
    TRY(folder_sync_parent(inside));
    if (!lstat(dir, &info) && !S_ISDIR(info.st_mode))
        return fail(ST_EIO, "%s is there and is no folder; choose another name", dir);
    if (!rename(partial, dir)) /* nothing there, or an empty folder */
        return folder_sync_parent(partial);
    if (errno != ENOTEMPTY && errno != EEXIST)
        return fail(ST_EIO, "cannot rename %s to %s: %s", partial, dir, strerror(errno));
    TRY(exchange(partial, dir));
    TRY(folder_sync_parent(partial));
    TRY(remove_files(partial, files));
    TRY(move_entries(partial, dir));
    if (rmdir(partial))
        return fail(ST_EIO, "cannot remove the folder %s: %s", partial, strerror(errno));
    return ST_OK;
}

void folder_drop(const char *dir, const char *const *files)
{
    char partial[FOLDER_PATH], path[FOLDER_PATH];

    if (partial_name(partial, dir) != ST_OK)
        return;
    for (; *files; files++)
        if (folder_join(path, partial, *files) == ST_OK)
            (void)unlink(path);
    (void)rmdir(partial);
}

enum status folder_remove(const char *dir, const char *const *files)
{
    TRY(remove_files(dir, files));
    if (rmdir(dir) && errno != ENOENT && errno != ENOTEMPTY && errno != EEXIST)
        return fail(ST_EIO, "cannot remove the folder %s: %s", dir, strerror(errno));
    return ST_OK;
}

enum status folder_close(FILE *file, const char *path)
{
    int bad = fflush(file) || ferror(file) || fsync(fileno(file)), cause = errno;

    if (fclose(file) && !bad) {
        bad = 1;
        cause = errno;
    }
    return bad ? fail(ST_EIO, "cannot write %s: %s", path, strerror(cause)) : ST_OK;
}
