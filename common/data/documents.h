/* Documents from text files: found in the stream of bytes, then cleaned, in two steps, so that the
 * second can run on several threads.
 *
 * Text: a document is a file; or, with a separator, what stands before a line equal to it (its line
 * end is LF or CR LF, as in data.document_separator; "" is the blank line). The separator's line is
 * not part of it. JSON lines: a document is the text under a key of the object that a line holds;
 * blank lines are passed over. A byte-order mark of UTF-8 before the first byte of a file is left
 * out; one of UTF-16 or UTF-32 refuses the file. All other bytes, CR and NUL too, are the text's.
 *
 * A document that is longer than what is asked for at a time comes in parts, cleaned already, when
 * a tokenizer with known borders is given: memory does not grow with it.
 */
#ifndef COMMON_DATA_DOCUMENTS_H
#define COMMON_DATA_DOCUMENTS_H

#include "common/data/input.h"
#include "common/data/json_text.h"
#include "common/tokenizer/tokenizer.h"

enum documents_kind { DOCUMENTS_BY_NAME, DOCUMENTS_TEXT, DOCUMENTS_JSONL };
enum documents_policy { DOCUMENTS_REFUSE, DOCUMENTS_REPLACE, DOCUMENTS_SKIP };

struct documents_options {
    enum documents_kind
        kind;              /* BY_NAME: .jsonl, .ndjson, .json (.gz, .zst): JSON lines, else text */
    const char *separator; /* text: NULL for a document a file */
    const char *key;       /* JSON lines: of the text */
    enum documents_policy invalid;     /* what to do with a document that is not UTF-8 */
    int (*stop)(void);                 /* as of input_open */
    const struct tokenizer *tokenizer; /* at whose borders long ones are cut; NULL: never cut */
};

enum documents_part {
    DOCUMENTS_WHOLE, /* a document as it lies in its file */
    DOCUMENTS_BEGIN, /* clean text, to which more belongs */
    DOCUMENTS_END,   /* clean text that ends a document */
    DOCUMENTS_DROP   /* what came of this document is to be left out: it is not UTF-8 */
};

/* What cleaning found. */
struct documents_counts {
    int64_t empty;    /* documents without a byte: left out */
    int64_t skipped;  /* not UTF-8, and left out for that */
    int64_t replaced; /* not UTF-8, with U+FFFD for what is not valid */
    int64_t nul, cr;  /* documents that hold a NUL, a CR */
};

/* One document, or a part of one. */
struct documents_raw {
    int64_t begin, n; /* bytes of a batch's text */
    int64_t line;     /* in its file, from 1: where the document begins */
    int file;         /* of the paths */
    short json;       /* of a whole one: a line of JSON */
    short part;       /* enum documents_part */
    unsigned found;   /* of the end of one in parts: bits that documents_text counts */
};

/* Documents that are dealt with together. Start with {0}. */
struct documents_batch {
    struct byte_list text;
    struct documents_raw *raw;
    int64_t n, room;
};

/* A document that is handed out in parts. */
struct documents_long {
    int on, ended;            /* within one; all its bytes are read */
    struct documents_raw raw; /* of its next part */
    struct byte_list bytes;   /* read, not clean yet */
    struct byte_list clean;   /* valid UTF-8, of a line of JSON, not taken apart yet */
    struct byte_list text;    /* not handed out yet */
    struct json_text json;
    int64_t looked; /* the text before has no border */
    int64_t line;   /* of the file, where `bytes` begins */
    struct documents_counts counts;
};

struct documents_reader {
    const char *const *paths;
    int files, file;
    const struct documents_options *options;
    struct input input;
    int open, json, within; /* within: a line of text that is no separator */
    char *buffer;
    size_t at, end;
    int64_t line;   /* of the file, from 1 */
    int64_t before; /* bytes of the files that are done with, as on disk */
    struct documents_long part;
};

/* Reads n files, which outlive r, one after the other. Release with documents_close. Errors:
 * ST_ENOMEM; on failure there is nothing to release. */
enum status documents_open(struct documents_reader *r, const char *const *paths, int n,
                           const struct documents_options *options);
void documents_close(struct documents_reader *r);

/* Fills b, which is emptied first, with documents until their text has `bytes` bytes or the input
 * ends; b->n is 0 only at the end. A longer document is cut into parts of about that size where the
 * options' tokenizer has borders (tokenizer_border), else it is held whole. Errors: as input_read;
 * ST_EFORMAT for UTF-16 and UTF-32, and of a document in parts as documents_text; ST_ENOMEM. */
enum status documents_read(struct documents_batch *b, struct documents_reader *r, int64_t bytes);
void documents_batch_free(struct documents_batch *b);

/* Bytes of the files, as on disk, that have been read so far. */
int64_t documents_taken(const struct documents_reader *r);

/* The text of document i of b, or of that part, appended to out; *n its bytes, 0 for a document to
 * leave out. Adds to counts. Local to its arguments: any thread. Errors: ST_EFORMAT for JSON that
 * is broken, a key that is missing or holds no text, and for what is not UTF-8 under REFUSE: with
 * file and line; ST_ENOMEM. */
enum status documents_text(struct byte_list *out, int64_t *n, struct documents_counts *counts,
                           const struct documents_batch *b, int64_t i, const char *const *paths,
                           const struct documents_options *options);

#endif
