/* The files of a checkpoint: written, read back, committed. */
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/folder.h"

#include "common/base/hash.h"
#include "common/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum status checkpoint_path(char *out, const char *root, int64_t step)
{
    char name[32];

    snprintf(name, sizeof name, "step-%09" PRId64, step);
    return folder_join(out, root, name);
}

static enum status make_folder(const char *path)
{
    if (!mkdir(path, 0777))
        return folder_sync_parent(path);
    if (errno != EEXIST)
        return fail(ST_EIO, "cannot make the folder %s: %s", path, strerror(errno));
    return ST_OK;
}

enum status checkpoint_begin(char *out, const char *root, int64_t step, uint64_t nonce)
{
    char name[64];

    snprintf(name, sizeof name, "step-%09" PRId64 ".tmp.%016" PRIx64, step, nonce);
    TRY(folder_join(out, root, name));
    TRY(make_folder(root));
    return make_folder(out);
}

/* ---- one rank's file ---- */

/* A full disk is found now, not after half of the bytes. Nothing is reserved: posix_fallocate makes
 * ext4 convert each block when it is written, which halves its rate. Who takes the room meanwhile
 * makes the write fail, which leaves as little behind. */
static enum status check_room(int fd, const char *path, uint64_t bytes)
{
    char need[TEXT_NUMBER], left[TEXT_NUMBER];
    struct statvfs disk;
    double room;

    if (fstatvfs(fd, &disk) || disk.f_blocks == 0) /* some file systems do not tell */
        return ST_OK;
    room = (double)disk.f_bavail * (double)disk.f_frsize;
    if ((double)bytes <= room)
        return ST_OK;
    return fail(ST_EIO, "no room for %s in %s: %s are free", text_bytes(need, (double)bytes), path,
                text_bytes(left, room));
}

static enum status put(int fd, const char *path, const struct snapshot *s)
{
    TRY(check_room(fd, path, s->file.bytes));
    TRY(folder_pwrite(fd, s->image, (size_t)s->file.bytes, 0, path));
    if (fdatasync(fd))
        return fail(ST_EIO, "cannot put %s on disk: %s", path, strerror(errno));
    return ST_OK;
}

enum status checkpoint_write(const char *folder, const struct snapshot *s)
{
    char path[FOLDER_PATH];
    enum status st;
    int fd;

    TRY(folder_join(path, folder, s->file.name));
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail(ST_EIO, "cannot write %s: %s", path, strerror(errno));
    st = put(fd, path, s);
    if (close(fd) && st == ST_OK)
        st = fail(ST_EIO, "cannot write %s: %s", path, strerror(errno));
    return st;
}

enum { CHUNK = 1 << 22 }; /* bytes of a read */

/* *hash of n bytes at offset. */
static enum status hash_range(uint64_t *hash, int fd, const char *path, uint64_t offset, uint64_t n,
                              void *buffer)
{
    struct hash h;

    hash_begin(&h);
    while (n > 0) {
        ssize_t got = pread(fd, buffer, n < CHUNK ? (size_t)n : CHUNK, (off_t)offset);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return fail(ST_EIO, "cannot read %s back: %s", path,
                        got ? strerror(errno) : "it is shorter than what was written");
        hash_add(&h, buffer, (size_t)got);
        offset += (uint64_t)got;
        n -= (uint64_t)got;
    }
    *hash = hash_value(&h);
    return ST_OK;
}

static enum status compare(int fd, const char *path, const struct snapshot *s, void *buffer)
{
    uint64_t hash;

    TRY(hash_range(&hash, fd, path, 0, s->file.header, buffer));
    if (hash != s->file.hash)
        return fail(ST_EFORMAT, "%s: its header reads back as something else", path);
    for (int i = 0; i < s->parts.n; i++) {
        const struct manifest_piece *e = &s->entry[i];

        TRY(hash_range(&hash, fd, path, e->offset, e->bytes, buffer));
        if (hash != e->hash)
            return fail(ST_EFORMAT,
                        "%s: tensor %s, grain %d (%s) reads back as something else than the "
                        "snapshot",
                        path, e->tensor, (int)e->grain, part_kind_name((enum part_kind)e->kind));
    }
    return ST_OK;
}

enum status checkpoint_read_back(const char *folder, const struct snapshot *s)
{
    char path[FOLDER_PATH];
    void *buffer = malloc(CHUNK);
    enum status st = buffer ? ST_OK : fail(ST_ENOMEM, "no memory to read a checkpoint back");
    int fd = -1;

    if (st == ST_OK)
        st = folder_join(path, folder, s->file.name);
    if (st == ST_OK) {
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            st = fail(ST_EIO, "cannot read %s back: %s", path, strerror(errno));
    }
    if (st == ST_OK) {
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* a wish: some systems keep it */
        st = compare(fd, path, s, buffer);
    }
    if (fd >= 0)
        close(fd);
    free(buffer);
    return st;
}

/* ---- the commit ---- */

/* Every rank writes where this one looks: a folder of one node alone would not hold the others'
 * files. */
static enum status all_there(const char *folder, const struct manifest *m)
{
    char path[FOLDER_PATH];
    struct stat info;

    for (int i = 0; i < m->files; i++) {
        TRY(folder_join(path, folder, m->file[i].name));
        if (stat(path, &info))
            return fail(ST_EIO, "%s is not there: %s; all ranks must share the run's folder", path,
                        strerror(errno));
        if ((uint64_t)info.st_size != m->file[i].bytes)
            return fail(ST_EIO, "%s has %lld bytes, not %llu", path, (long long)info.st_size,
                        (unsigned long long)m->file[i].bytes);
    }
    return ST_OK;
}

/* Writes bytes to a new file and puts it on disk. */
static enum status write_file(const char *path, const char *text, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    enum status st;

    if (fd < 0)
        return fail(ST_EIO, "cannot write %s: %s", path, strerror(errno));
    st = folder_pwrite(fd, text, n, 0, path);
    if (st == ST_OK && fsync(fd))
        st = fail(ST_EIO, "cannot put %s on disk: %s", path, strerror(errno));
    if (close(fd) && st == ST_OK)
        st = fail(ST_EIO, "cannot write %s: %s", path, strerror(errno));
    return st;
}

static enum status write_manifest(const char *folder, const struct manifest *m)
{
    char path[FOLDER_PATH], *text = NULL;
    size_t n = 0;
    enum status st;

    TRY(folder_join(path, folder, MANIFEST_NAME));
    TRY(manifest_text(&text, &n, m));
    st = write_file(path, text, n);
    free(text);
    TRY(st);
    return folder_sync_parent(path);
}

/* The folder takes its name. One that has it already, from a run that began again before it, is
 * exchanged and removed. */
static enum status take_name(const char *folder, const char *path)
{
    if (!rename(folder, path))
        return folder_sync_parent(path);
    if (errno != ENOTEMPTY && errno != EEXIST)
        return fail(ST_EIO, "cannot rename %s to %s: %s", folder, path, strerror(errno));
    if (renameat2(AT_FDCWD, folder, AT_FDCWD, path, RENAME_EXCHANGE))
        return fail(ST_EIO, "cannot replace %s: %s; remove it", path, strerror(errno));
    TRY(folder_sync_parent(path));
    checkpoint_drop(folder);
    return ST_OK;
}

enum status checkpoint_hint(const char *root, int64_t step)
{
    char path[FOLDER_PATH], hint[FOLDER_PATH], partial[FOLDER_PATH], text[64];
    int n;

    TRY(checkpoint_path(path, root, step));
    n = snprintf(text, sizeof text, "%.60s\n", strrchr(path, '/') + 1);
    TRY(folder_join(hint, root, CHECKPOINT_LATEST));
    TRY(folder_join(partial, root, CHECKPOINT_LATEST ".partial"));
    TRY(write_file(partial, text, (size_t)n));
    if (rename(partial, hint))
        return fail(ST_EIO, "cannot rename %s to %s: %s", partial, hint, strerror(errno));
    return folder_sync_parent(hint);
}

enum status checkpoint_commit(const char *folder, const char *root, const struct manifest *m)
{
    char path[FOLDER_PATH];
    struct manifest again;

    TRY(checkpoint_path(path, root, m->state.step));
    TRY(all_there(folder, m));
    TRY(write_manifest(folder, m));
    TRY(manifest_read(&again, folder));
    manifest_free(&again);
    return take_name(folder, path);
}
