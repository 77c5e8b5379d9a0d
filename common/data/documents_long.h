/* Private to documents*.c: documents that come in parts, and what they share with whole ones. */
#ifndef COMMON_DATA_DOCUMENTS_LONG_H
#define COMMON_DATA_DOCUMENTS_LONG_H

#include "common/data/documents.h"

/* Bits of documents_raw.found. */
enum { DOCUMENTS_REPLACED = 1, DOCUMENTS_NUL = 2, DOCUMENTS_CR = 4 };

/* Where something stands, for messages. */
struct documents_place {
    const char *path;
    int64_t line;
};

/* Appends at least one and about `most` bytes of the document that r is in, as they lie in the
 * file; *ended: no more belong to it. Errors as documents_read. */
enum status documents_more(struct byte_list *out, struct documents_reader *r, int64_t most,
                           int *ended);

/* Appends raw to b; its text goes from raw->begin to the end of b->text. Errors: ST_ENOMEM. */
enum status documents_put(struct documents_batch *b, const struct documents_raw *raw);

/* Appends n bytes as the policy says for what is not UTF-8, or counts one more as skipped and
 * appends nothing. Errors: ST_EFORMAT with the place under REFUSE; ST_ENOMEM. */
enum status documents_utf8(struct byte_list *out, struct documents_counts *counts, const char *text,
                           int64_t n, struct documents_place place, enum documents_policy policy);

/* Checks a line of JSON that has a text under key. Errors: ST_EFORMAT, with the place. */
enum status documents_json(const char *line, int64_t n, const char *key,
                           struct documents_place place);

/* Counts what a document, or a piece of one, holds. */
void documents_look(struct documents_counts *counts, const char *text, int64_t n);

/* From now on the document raw, of which the n bytes were read, comes in parts. Errors:
 * ST_ENOMEM. */
enum status documents_long_begin(struct documents_long *l, const struct documents_reader *r,
                                 const struct documents_raw *raw, const char *bytes, int64_t n);

/* Appends the next part, of about `bytes` bytes, to b; l->on is 0 after the last one. Errors as
 * documents_read and documents_text. */
enum status documents_long_part(struct documents_batch *b, struct documents_reader *r,
                                int64_t bytes);
void documents_long_free(struct documents_long *l);

#endif
