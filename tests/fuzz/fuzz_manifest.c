/* with: common/base common/tensor common/checkpoint/manifest.c common/checkpoint/manifest_read.c
 *     common/checkpoint/manifest_write.c common/checkpoint/part.c common/checkpoint/folder.c
 *     common/model/config.c common/model/config_value.c common/model/nearest.c
 *     common/model/grains.c common/model/params.c common/backend/backend.c
 *     common/backend/device.c common/backend/op.c common/backend/op_check.c
 * seeds: tests/fuzz/manifest.json
 *
 * Any bytes as the manifest of a checkpoint, as they are and with the hash that closes a manifest,
 * so that more than its check is met: refused with a reason, or every piece lies in its file and in
 * its tensor, and the text that is written of it is read again. */
#include "common/checkpoint/manifest.h"

#include "common/base/hash.h"
#include "tests/fuzz/named.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n); /* NOLINT */

static void use(const struct manifest *m)
{
    for (int i = 0; i < m->pieces; i++) {
        const struct manifest_piece *p = &m->piece[i];

        if (p->file < 0 || p->file >= m->files || p->area.row < 0 || p->area.col < 0 ||
            p->area.row + p->area.rows > p->rows || p->area.col + p->area.cols > p->cols ||
            p->offset + p->bytes > m->file[p->file].bytes)
            abort();
    }
}

static void try(const char *folder, const void *bytes, size_t n, int again)
{
    struct manifest m;
    char path[NAMED], *text;
    size_t length;

    named_file(path, folder, MANIFEST_NAME, bytes, n);
    status_clear();
    if (manifest_read(&m, folder) != ST_OK) {
        if (!*status_message() || again)
            abort(); /* refused without a reason, or what was written here */
        return;
    }
    use(&m);
    if (manifest_text(&text, &length, &m) != ST_OK)
        abort();
    manifest_free(&m);
    if (!again)
        try(folder, text, length, 1);
    free(text);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n) /* NOLINT */
{
    char folder[NAMED], *sealed = malloc(n + 64);

    if (!sealed)
        abort();
    named_folder(folder);
    try(folder, bytes, n, 0);
    memcpy(sealed, bytes, n);
    n += (size_t)snprintf(sealed + n, 64, ",\"xxh64\":\"%016llx\"}\n",
                          (unsigned long long)hash_bytes(bytes, n));
    try(folder, sealed, n, 0);
    free(sealed);
    return 0;
}
