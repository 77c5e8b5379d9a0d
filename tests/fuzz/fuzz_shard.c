/* with: common/base common/data/shard_index.c
 * seeds: tests/data/shards/edge_u16.idx tests/data/shards/prose_val_dolma2_paragraphs_i32.idx
 *     tests/data/shards/prose_val_dolma2_u32.bin
 *
 * Any bytes as a Megatron index and as an llm.c file: refused with a reason, or every number that a
 * reader would use lies inside the files. */
#include "common/data/shard.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n); /* NOLINT */

/* The size that the tokens would have by the lengths in the index, so that some are taken. */
static int64_t tokens_size(const struct shard_map *index)
{
    int64_t claimed, room = (index->size - SHARD_INDEX_HEADER) / 4, size = 0;

    if (room < 0)
        return 0;
    claimed = shard_number(index->bytes + 18, 0, 8);
    for (int64_t i = 0; i < claimed && i < room; i++)
        size += shard_number(index->bytes + SHARD_INDEX_HEADER, i, 4) *
                shard_width((enum shard_type)index->bytes[17]);
    return size;
}

static void use(const struct shard_index *x, int64_t bin_size)
{
    for (int64_t i = 0; i < x->sequences; i++) {
        int64_t at = shard_number(x->offsets, i, 8), length = shard_number(x->lengths, i, 4);

        if (at < 0 || length < 0 || at + length * shard_width(x->type) > bin_size)
            abort();
    }
    for (int64_t j = 0; j <= x->documents_count; j++)
        if ((uint64_t)shard_number(x->documents, j, 8) > (uint64_t)x->sequences)
            abort();
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n) /* NOLINT */
{
    struct shard_map file = {.bytes = bytes, .size = (int64_t)n};
    int64_t count, size = tokens_size(&file);
    struct shard_index index;
    enum shard_type type;

    status_clear();
    if (shard_index_read(&index, &file, size, "x.idx", "x.bin") == ST_OK)
        use(&index, size);
    else if (!*status_message())
        abort(); /* refused without a reason */
    status_clear();
    if (shard_llmc_read(&type, &count, &file, "x.bin") != ST_OK)
        return *status_message() ? 0 : (abort(), 0);
    if (SHARD_LLMC_HEADER + count * shard_width(type) != file.size)
        abort();
    return 0;
}
