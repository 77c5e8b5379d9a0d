#include "tests/unit/shard_files.h"

#include "tests/unit/temp_folder.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FILE *create(const char *folder, const char *name, const char *end)
{
    char path[2 * TEMP_PATH];
    FILE *out;

    snprintf(path, sizeof path, "%s/%s%s", folder, name, end);
    out = fopen(path, "wb");
    ck_assert_msg(out != NULL, "cannot write %s", path);
    return out;
}

/* One little-endian number of n bytes. */
static void put(FILE *out, int64_t value, int n)
{
    for (int i = 0; i < n; i++)
        fputc((int)((uint64_t)value >> 8 * i & 0xff), out);
}

static void put_tokens(FILE *out, enum shard_type type, const int32_t *tokens, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        put(out, tokens[i], shard_width(type));
    ck_assert_int_eq(fclose(out), 0);
}

void shard_files_index(const char *folder, const char *name, const struct shard_plan *plan)
{
    FILE *out = create(folder, name, ".idx");
    int64_t offset = 0;

    fwrite("MMIDIDX\0\0", 1, 9, out);
    put(out, 1, 8);
    put(out, plan->type, 1);
    put(out, plan->sequences, 8);
    put(out, plan->documents + 1, 8);
    for (int64_t i = 0; i < plan->sequences; i++)
        put(out, plan->lengths[i], 4);
    for (int64_t i = 0; i < plan->sequences; i++) {
        put(out, plan->offsets ? plan->offsets[i] : offset, 8);
        offset += (int64_t)plan->lengths[i] * shard_width(plan->type);
    }
    for (int64_t i = 0; i <= plan->documents; i++)
        put(out, plan->borders ? plan->borders[i] : i, 8);
    ck_assert_int_eq(fclose(out), 0);
}

void shard_files_megatron(const char *folder, const char *name, enum shard_type type,
                          const int32_t *tokens, const int32_t *lengths, int64_t documents)
{
    struct shard_plan plan = {
        .type = type, .sequences = documents, .documents = documents, .lengths = lengths};
    int64_t count = 0;

    for (int64_t i = 0; i < documents; i++)
        count += lengths[i];
    shard_files_index(folder, name, &plan);
    put_tokens(create(folder, name, ".bin"), type, tokens, count);
}

void shard_files_llmc(const char *folder, const char *name, enum shard_type type,
                      const int32_t *tokens, int64_t count)
{
    FILE *out = create(folder, name, ".bin");

    put(out, type == SHARD_U16 ? 20240520 : 20240801, 4);
    put(out, type == SHARD_U16 ? 1 : 7, 4);
    put(out, count, 4);
    for (int i = 3; i < 256; i++)
        put(out, 0, 4);
    put_tokens(out, type, tokens, count);
}

void shard_files_stretch(const char *path, int64_t bytes)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, bytes), 0);
    close(fd);
}

void shard_files_poke(const char *path, int64_t offset, const void *bytes, size_t n)
{
    int fd = open(path, O_RDWR);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, bytes, n, offset), (ssize_t)n);
    close(fd);
}
