/* From text to token ids and back.
 *
 * A tokenizer is opened by name: "bytes", or the path of a file, whose kind is seen from its
 * content. What it does not do, and what its file says that it cannot do, is refused when it is
 * opened. It is not changed by use: several threads may share one.
 *
 * "bytes" has the ids 0 to 255 for the bytes, and 256, 257, 258 for begin, end of document, and
 * padding (259 ids). Every byte string survives the round trip.
 */
#ifndef COMMON_TOKENIZER_TOKENIZER_H
#define COMMON_TOKENIZER_TOKENIZER_H

#include "common/tokenizer/list.h"

enum {
    TOKENIZER_BYTE_BEGIN = 256,
    TOKENIZER_BYTE_END = 257,
    TOKENIZER_BYTE_PAD = 258,
    TOKENIZER_BYTE_VOCAB = 259
};

/* How a text is read or written; may be joined by |. */
enum {
    TOKENIZER_PLAIN = 0,   /* what looks like a special token is text; special ids give no text */
    TOKENIZER_SPECIAL = 1, /* special tokens are found in the text, and written */
    TOKENIZER_FRAME = 2    /* encode: with what the file puts around a text, such as a begin id */
};

/* What an id stands for; belongs to the tokenizer. */
struct token_piece {
    const char *bytes; /* of the text; no closing zero. A special token: its name */
    int32_t n;
    int special; /* it stands for no text: <end> and the like */
};

struct tokenizer {
    const char *kind;        /* "bytes", "byte-level BPE", ... */
    char *name;              /* as it was opened; owned */
    int32_t vocab;           /* ids are 0 .. vocab - 1 */
    int32_t begin, end, pad; /* special ids: start of text, end of document, padding; -1: none */
    int32_t strip;           /* spaces that decoding leaves out where a text begins */
    uint64_t identity;       /* hash of the file, or of the name: tells another tokenizer */
    void *data;              /* what the kind needs; owned, NULL for "bytes" */

    /* See tokenizer_encode, tokenizer_piece (the id is in range), tokenizer_border,
     * tokenizer_close. */
    enum status (*encode)(struct token_list *out, const struct tokenizer *t, const void *bytes,
                          int64_t n, unsigned how);
    struct token_piece (*piece)(const struct tokenizer *t, int32_t id);
    int64_t (*border)(int64_t *next, const struct tokenizer *t, const void *bytes, int64_t n,
                      int64_t least); /* NULL: none is known */
    void (*close)(struct tokenizer *t);
};

/* The tokenizer of that name: "bytes", or the path of a file or of a folder with one. Release with
 * tokenizer_close; on failure nothing is left open. Local. Errors: ST_ECONFIG for a name that is
 * neither known nor a file's; ST_EIO for a file that cannot be read; ST_EFORMAT for one whose
 * content is wrong or not supported, with the place and the reason; ST_ENOMEM. */
enum status tokenizer_open(struct tokenizer *t, const char *name);
void tokenizer_close(struct tokenizer *t);

/* Whether tokenizer_open finds a tokenizer in that folder: a tokenizer.json or tokenizer.model. */
int tokenizer_in(const char *folder);

/* Appends the ids of n bytes. Without TOKENIZER_SPECIAL no special id comes out of text, and
 * without TOKENIZER_FRAME none is added. Bytes that are not UTF-8 are allowed where the tokenizer
 * has tokens for single bytes. Any thread. Errors: ST_EFORMAT for text that it has no token for;
 * ST_ENOMEM. */
enum status tokenizer_encode(struct token_list *out, const struct tokenizer *t, const void *bytes,
                             int64_t n, unsigned how);

/* Where a long text, of which n bytes are known, may be cut: the last place of [least, n) such that
 * what stands before it and what follows from *next on, each given to tokenizer_encode with
 * TOKENIZER_PLAIN as a text of its own, have the ids of both together, whatever follows. Valid
 * UTF-8. -1: none is known there, or none at all for this tokenizer (border.h). Any thread. */
int64_t tokenizer_border(int64_t *next, const struct tokenizer *t, const void *bytes, int64_t n,
                         int64_t least);

/* Appends the bytes of n ids, the beginning of a text; see decoder.h for ids that come one by one.
 * Errors: ST_EFORMAT for an id outside the vocabulary, with its place; ST_ENOMEM. */
enum status tokenizer_decode(struct byte_list *out, const struct tokenizer *t, const int32_t *ids,
                             int64_t n, unsigned how);

/* What an id stands for. Errors: ST_EFORMAT for one outside the vocabulary. */
enum status tokenizer_piece(struct token_piece *out, const struct tokenizer *t, int32_t id);

/* The id of the token of that text, special or not; -1 when there is none. Looks at all of them. */
int32_t tokenizer_find(const struct tokenizer *t, const char *bytes, int64_t n);

/* The name of an id for people, in out (cut to size bytes): the name of a special token, the text
 * itself where it is printable ASCII, else "\x0a" and the like. Errors: as tokenizer_piece. */
enum status tokenizer_name(char *out, size_t size, const struct tokenizer *t, int32_t id);

#endif
