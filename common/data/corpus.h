/* Text as one stream of tokens with the borders of its documents: a text file, tokenised here, or
 * token shards that other programs or `narrows data prepare` made, read where they lie.
 *
 * A text file. Without a separator the file is one document and the stream holds its tokens,
 * nothing else. With a separator, a line equal to it (its line end may be LF, CR LF, or the end of
 * the file) ends a document: the line is not part of the text, and the tokenizer's end id follows
 * the document's tokens. A last document that no separator follows is ended likewise. Documents
 * without a byte are left out.
 *
 * Token shards (shard.h). Several shards follow each other in the order of their names, documents
 * too. An index has the borders of documents; llm.c's format has none, so that all its tokens are
 * one document. What ends a document is what the shard has there: nothing is added.
 */
#ifndef COMMON_DATA_CORPUS_H
#define COMMON_DATA_CORPUS_H

#include "common/base/status.h"
#include "common/data/shard.h"
#include "common/tokenizer/tokenizer.h"

#include <stdint.h>

struct corpus_options {
    const char *separator; /* NULL or "": the file is one document */
    int require_utf8;      /* nonzero: a file that is not UTF-8 is refused */
};

/* Token shards, one after the other; shared by the two parts of a split. */
struct corpus_shards {
    int users, n;
    struct shard *shard; /* [n] */
    int64_t *tokens;     /* [n + 1]: tokens before each shard */
    int64_t *documents;  /* [n + 1]: documents before each shard */
};

struct corpus {
    char *path;      /* for messages; owned, as are tokens and starts */
    void *tokens;    /* text: count ids, uint16_t where the vocabulary allows, else int32_t */
    int64_t *starts; /* text: documents + 1 entries; read them with corpus_start */
    struct corpus_shards *shards;        /* shards; NULL for text */
    int64_t first_token, first_document; /* shards: where this part of them begins */
    int64_t count;                       /* tokens, end ids included */
    int64_t documents;                   /* 1 without a separator, and for shards without borders */
    int64_t file_bytes;                  /* size of the file, or of all shards with their indices */
    uint64_t hash;      /* tells a changed file on resume: hash_bytes of it; shard_hash of shards */
    int32_t vocab, pad; /* of the tokenizer */
    int32_t token_bytes;
    int separated; /* nonzero when the borders of documents are known */
};

/* Reads and tokenises path. On failure nothing needs closing. Local.
 * Errors: ST_EIO for a file that is missing, unreadable, or not a regular file; ST_EFORMAT for an
 * empty one, one without tokens, bad UTF-8 (file, offset from 0, the byte), or a separator that
 * does not occur; ST_ECONFIG for a separator that holds a line end; ST_ENOMEM. */
enum status corpus_open(struct corpus *c, const char *path, const struct tokenizer *t,
                        const struct corpus_options *options);
void corpus_close(struct corpus *c);

/* Opens token shards: one name (shard_is), or a pattern of the shell (`*`, `?`, `[a-z]`) for
 * several, taken in the order of their names; an index matched beside its tokens is passed over. On
 * failure nothing needs closing. Local. Errors: those of shard_open; ST_EIO when nothing matches;
 * ST_EFORMAT for shards without a token. */
enum status corpus_open_shards(struct corpus *c, const char *pattern, const struct tokenizer *t);

/* Either of the two: shards where path names them or is a pattern, else text. */
enum status corpus_open_any(struct corpus *c, const char *path, const struct tokenizer *t,
                            const struct corpus_options *options);

/* Looks for ids outside [0, vocab), in part `part` of `parts` equal ones, so that ranks share the
 * work. Text has none. Errors: as shard_check_ids. Local. */
enum status corpus_check_ids(const struct corpus *c, int64_t vocab, int part, int parts);

/* Moves the end of c into held_out. Several documents: the fewest last ones that hold at least
 * `fraction` of the tokens, but the first one stays. One document: the last fraction of its
 * tokens, rounded down. Both are then closed apart. Local.
 * Errors: ST_ECONFIG for a fraction outside (0, 1); ST_EFORMAT when one side would be without a
 * token; ST_ENOMEM. On failure c is as before. */
enum status corpus_split(struct corpus *held_out, struct corpus *c, double fraction);

/* The first token of document j; count for j = documents. Documents of shards may be empty. */
int64_t corpus_start(const struct corpus *c, int64_t j);

/* The document that a token lies in: corpus_start(j) <= token < corpus_start(j + 1). */
int64_t corpus_document(const struct corpus *c, int64_t token);

/* out[i] = token first + i, i < n; the range lies inside [0, count). */
void corpus_read(int32_t *out, const struct corpus *c, int64_t first, int64_t n);

#endif
