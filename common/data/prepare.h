/* Text files to a token shard: read, cut into documents, tokenised on several threads, written in
 * the order of the input.
 *
 * One thread reads and writes, the others tokenise batches of documents; batches are written in
 * the order in which they were read, so that the result does not depend on the number of threads.
 * At most 2 threads + 2 batches of PREPARE_BATCH bytes are under way. A document that is longer
 * comes in parts (documents.h), and memory grows neither with it nor with the input; only where the
 * tokenizer has no known borders a document is held whole.
 */
#ifndef COMMON_DATA_PREPARE_H
#define COMMON_DATA_PREPARE_H

#include "common/data/documents.h"
#include "common/data/shard_write.h"
#include "common/tokenizer/tokenizer.h"

enum { PREPARE_BATCH = 1 << 16, PREPARE_THREADS = 1024 };

/* How far it is. */
struct prepare_state {
    int64_t taken, size; /* bytes of the input on disk: read so far, in all (-1: not known) */
    int64_t bytes;       /* of text in documents */
    int64_t documents, tokens;
    struct documents_counts counts;
};

struct prepare_options {
    const char *const *paths;
    int files;
    struct documents_options documents;
    const char *output;
    enum shard_format format;
    int end_ids;       /* nonzero: the tokenizer's end id follows each document */
    int threads;       /* that tokenise, 1 to PREPARE_THREADS */
    int overwrite;     /* replace files that are there */
    int (*stop)(void); /* asked now and then; documents.stop is a place for it too */
    void (*progress)(void *context, const struct prepare_state *s); /* likewise; NULL for none */
    void *context;
};

/* Does all of it; state is what was found. On failure no output is left. Local. Errors: those of
 * input_open, documents_text, tokenizer_encode and shard_write_open; ST_ECONFIG for end_ids
 * with a tokenizer that has no end id; ST_ESTOP when asked to stop; ST_ENOMEM. */
enum status prepare(struct prepare_state *state, const struct tokenizer *t,
                    const struct prepare_options *options);

#endif
