/* Writes a token shard of either format (shard.h), all or nothing.
 *
 * The files are written under temporary names (X.bin.part, X.idx.part) and get their own when all
 * of it is on disk: whoever finds X.bin and X.idx finds them whole. Memory does not grow with the
 * number of tokens, sequences or documents.
 *
 *     TRY(shard_write_open(&w, "data/books", SHARD_MEGATRON, vocab, 0));
 *     for each document:
 *         for each of its sequences:
 *             st = shard_write_tokens(&w, ids, n);       as often as wanted
 *             st = shard_write_sequence(&w);
 *         st = shard_write_document(&w);
 *     st = shard_write_finish(&w);                       or shard_write_abandon(&w)
 */
#ifndef COMMON_DATA_SHARD_WRITE_H
#define COMMON_DATA_SHARD_WRITE_H

#include "common/data/shard.h"

#include <stdio.h>

struct shard_write {
    enum shard_format format;
    enum shard_type type;
    int width;
    char *path, *index_path; /* the final names; owned */
    char *part, *index_part; /* the temporary ones; owned */
    FILE *tokens;
    FILE *index;   /* Megatron: lengths, from byte 34 on; the rest at the end */
    FILE *borders; /* Megatron: documents, in a file without a name */
    int64_t count, sequences, documents;
    int64_t length; /* of the sequence that is being written */
};

/* Begins prefix.bin, and prefix.idx for Megatron; a prefix that ends in .bin or .idx loses that.
 * vocab chooses the type: uint16 below 65500 (Megatron; llm.c: up to 65536), else int32 (llm.c:
 * uint32). On failure there is nothing to end. Errors: ST_ECONFIG for files that are there already
 * (overwrite replaces them); ST_EIO, also when another process is writing them; ST_ENOMEM. */
enum status shard_write_open(struct shard_write *w, const char *prefix, enum shard_format format,
                             int64_t vocab, int overwrite);

/* n more tokens of the sequence. Errors: ST_EIO, with the file; ST_ECONFIG for more tokens than
 * the format can count (a sequence: 2^31 - 1; llm.c: the shard), with a way out. */
enum status shard_write_tokens(struct shard_write *w, const int32_t *ids, int64_t n);

/* Ends a sequence, or a document: one without a sequence is allowed. llm.c's format keeps neither.
 * Errors: ST_EIO. */
enum status shard_write_sequence(struct shard_write *w);
enum status shard_write_document(struct shard_write *w);

/* Takes the tokens since the last sequence back. Errors: ST_EIO. */
enum status shard_write_drop(struct shard_write *w);

/* Completes the files, waits until they are on disk and gives them their names. Ends w in any case;
 * after a failure nothing is left behind, and files of those names that were there before are as
 * they were (only a failing rename itself can lose an old index). Errors: ST_EIO; ST_EFORMAT when
 * there is no token. */
enum status shard_write_finish(struct shard_write *w);

/* Ends w and removes what was written. */
void shard_write_abandon(struct shard_write *w);

#endif
