/* A text file as one stream of tokens with the borders of its documents.
 *
 * Without a separator the file is one document and the stream holds its tokens, nothing else. With
 * a separator, a line equal to it (its line end may be LF, CR LF, or the end of the file) ends a
 * document: the line is not part of the text, and the tokenizer's end id follows the document's
 * tokens. A last document that no separator follows is ended likewise. Documents without a byte
 * are left out.
 */
#ifndef COMMON_DATA_CORPUS_H
#define COMMON_DATA_CORPUS_H

#include "common/base/status.h"
#include "common/tokenizer/tokenizer.h"

#include <stdint.h>

struct corpus_options {
    const char *separator; /* NULL or "": the file is one document */
    int require_utf8;      /* nonzero: a file that is not UTF-8 is refused */
};

struct corpus {
    char *path;         /* for messages; owned, as are tokens and starts */
    void *tokens;       /* count ids, uint16_t where the vocabulary allows, else int32_t */
    int64_t *starts;    /* documents + 1 entries: document j is [starts[j], starts[j + 1]) */
    int64_t count;      /* tokens, end ids included */
    int64_t documents;  /* 1 without a separator */
    int64_t file_bytes; /* size of the file */
    uint64_t hash;      /* hash_bytes of the file: tells a changed file on resume */
    int32_t vocab, pad; /* of the tokenizer */
    int32_t token_bytes;
    int separated; /* nonzero when a separator was given */
};

/* Reads and tokenises path. On failure nothing needs closing. Local.
 * Errors: ST_EIO for a file that is missing, unreadable, or not a regular file; ST_EFORMAT for an
 * empty one, one without tokens, bad UTF-8 (file, offset from 0, the byte), or a separator that
 * does not occur; ST_ECONFIG for a separator that holds a line end; ST_ENOMEM. */
enum status corpus_open(struct corpus *c, const char *path, const struct tokenizer *t,
                        const struct corpus_options *options);
void corpus_close(struct corpus *c);

/* Moves the end of c into held_out. Several documents: the fewest last ones that hold at least
 * `fraction` of the tokens, but the first one stays. One document: the last fraction of its
 * tokens, rounded down. Both are then closed apart. Local.
 * Errors: ST_ECONFIG for a fraction outside (0, 1); ST_EFORMAT when one side would be without a
 * token; ST_ENOMEM. On failure c is as before. */
enum status corpus_split(struct corpus *held_out, struct corpus *c, double fraction);

/* out[i] = token first + i, i < n; the range lies inside [0, count). */
void corpus_read(int32_t *out, const struct corpus *c, int64_t first, int64_t n);

#endif
