/* A shard of token ids as other programs write it, read where it lies.
 *
 * Two formats (docs/data.md): Megatron's indexed dataset, X.bin with the ids and X.idx with the
 * lengths of sequences and the borders of documents; and llm.c's, one file of a header and ids.
 * Both are mapped, not read: opening costs one pass over the index and no memory, sizes are 64-bit
 * throughout. Everything that a header claims is checked against the files, so that later reads
 * stay inside them. A file that is cut while it is in use ends the process, as with any mapping.
 */
#ifndef COMMON_DATA_SHARD_H
#define COMMON_DATA_SHARD_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum shard_format { SHARD_MEGATRON, SHARD_LLMC };

/* Megatron's codes; SHARD_U32 is llm.c's alone. */
enum shard_type {
    SHARD_U8 = 1,
    SHARD_I8,
    SHARD_I16,
    SHARD_I32,
    SHARD_I64,
    SHARD_F64,
    SHARD_F32,
    SHARD_U16,
    SHARD_U32
};

enum {
    SHARD_INDEX_HEADER = 34,  /* bytes before the lengths in X.idx */
    SHARD_LLMC_HEADER = 1024, /* bytes before the tokens */
    SHARD_MAGIC_U16 = 20240520,
    SHARD_MAGIC_U32 = 20240801
};

/* A Megatron index in memory. The blocks are not aligned: shard_number reads them. */
struct shard_index {
    const unsigned char *lengths;   /* sequences x i32 */
    const unsigned char *offsets;   /* sequences x i64: byte of each sequence in X.bin */
    const unsigned char *documents; /* documents + 1 x i64: first sequence of each */
    int64_t sequences, documents_count;
    enum shard_type type;
};

struct shard_map {
    const unsigned char *bytes; /* NULL when size is 0 */
    int64_t size;
};

struct shard {
    char *path;       /* of the tokens, for messages; owned */
    char *index_path; /* of the index; NULL for llm.c; owned */
    enum shard_format format;
    enum shard_type type;
    int width; /* bytes of an id */
    const unsigned char *tokens;
    int64_t count, documents, sequences; /* llm.c: one document, one sequence */
    struct shard_index index;
    struct shard_map data, index_map;
};

/* Nonzero when path names a shard: X.bin, X.idx, or X where X.idx exists and X itself does not.
 * Looks at names only. */
int shard_is(const char *path);

/* Opens a shard by such a name; the format follows from the content. Release with shard_close; on
 * failure there is nothing to release. Errors: ST_EIO for files that are missing or unreadable;
 * ST_EFORMAT, naming file and field, for whatever disagrees: magic, version, type, block sizes,
 * lengths, offsets, document borders, file size. */
enum status shard_open(struct shard *s, const char *path);
void shard_close(struct shard *s);

/* Reads an index of `size` bytes that belongs to tokens of bin_size bytes; x points into it. path
 * and bin_path are for messages. Errors: ST_EFORMAT as shard_open. */
enum status shard_index_read(struct shard_index *x, const struct shard_map *index, int64_t bin_size,
                             const char *path, const char *bin_path);

/* Type and number of tokens by the header of an llm.c file of `size` bytes. Errors as above. */
enum status shard_llmc_read(enum shard_type *type, int64_t *count, const struct shard_map *file,
                            const char *path);

/* Bytes of an id; 0 for a code that is none. And its name: "uint16"; "?" likewise. */
int shard_width(enum shard_type type);
const char *shard_type_name(enum shard_type type);

/* The i-th little-endian number of `width` bytes (4 or 8, signed) at `block`. */
int64_t shard_number(const unsigned char *block, int64_t i, int width);

/* out[i] = token first + i, i < n; the range lies inside [0, count). Ids beyond int32 are cut: use
 * shard_check_ids first. */
void shard_read(int32_t *out, const struct shard *s, int64_t first, int64_t n);

/* The first token of document j, or of sequence i; the count for the number after the last one. */
int64_t shard_document(const struct shard *s, int64_t j);
int64_t shard_sequence(const struct shard *s, int64_t i);

/* Looks at tokens [first, first + n) for ids outside [0, vocab). Errors: ST_EFORMAT with file,
 * position, id and vocabulary. Local; reads them all, unless the type cannot hold such an id. */
enum status shard_check_ids(const struct shard *s, int64_t vocab, int64_t first, int64_t n);

/* Tells one shard from another: a hash of the index (or header), the size, and the first and last
 * 64 KiB of tokens. Other changes are not seen: that would mean reading it all. */
uint64_t shard_hash(const struct shard *s);

#endif
