/* Token shards for tests, written byte by byte and apart from the program's own writer. Failures
 * end the test. */
#ifndef TESTS_UNIT_SHARD_FILES_H
#define TESTS_UNIT_SHARD_FILES_H

#include "common/data/shard.h"

/* A Megatron index: what its file will say, right or wrong. */
struct shard_plan {
    enum shard_type type;
    int64_t sequences, documents;
    const int32_t *lengths; /* [sequences] */
    const int64_t *offsets; /* [sequences]; NULL: one after the other */
    const int64_t *borders; /* [documents + 1]; NULL: a document a sequence */
};

/* Writes folder/name.idx. */
void shard_files_index(const char *folder, const char *name, const struct shard_plan *plan);

/* Writes folder/name.bin and .idx with tokens of 2 or 4 bytes (SHARD_U16, SHARD_I32): documents of
 * the given lengths, a sequence each. */
void shard_files_megatron(const char *folder, const char *name, enum shard_type type,
                          const int32_t *tokens, const int32_t *lengths, int64_t documents);

/* Writes folder/name.bin as llm.c does; type SHARD_U16 or SHARD_U32. */
void shard_files_llmc(const char *folder, const char *name, enum shard_type type,
                      const int32_t *tokens, int64_t count);

/* Makes path `bytes` long, with holes where nothing was written. */
void shard_files_stretch(const char *path, int64_t bytes);

/* Writes n bytes at an offset of path. */
void shard_files_poke(const char *path, int64_t offset, const void *bytes, size_t n);

#endif
