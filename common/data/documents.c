#include "common/data/documents_long.h"

#include <stdlib.h>
#include <string.h>

enum { BUFFER = 1 << 17 };

enum status documents_open(struct documents_reader *r, const char *const *paths, int n,
                           const struct documents_options *options)
{
    *r = (struct documents_reader){.paths = paths, .files = n, .options = options};
    r->buffer = malloc(BUFFER);
    return r->buffer ? ST_OK : fail(ST_ENOMEM, "no memory to read documents");
}

void documents_close(struct documents_reader *r)
{
    if (r->open)
        input_close(&r->input);
    free(r->buffer);
    documents_long_free(&r->part);
    *r = (struct documents_reader){0};
}

int64_t documents_taken(const struct documents_reader *r)
{
    return r->before + (r->open ? r->input.taken : 0);
}

void documents_batch_free(struct documents_batch *b)
{
    list_bytes_free(&b->text);
    free(b->raw);
    *b = (struct documents_batch){0};
}

/* ---- files ---- */

static int ends_with(const char *name, size_t n, const char *end)
{
    size_t m = strlen(end);

    return n >= m && !strncmp(name + n - m, end, m);
}

static int is_json(const char *path, const struct documents_options *o)
{
    size_t n = strlen(path);

    if (o->kind != DOCUMENTS_BY_NAME)
        return o->kind == DOCUMENTS_JSONL;
    if (ends_with(path, n, ".gz"))
        n -= 3;
    else if (ends_with(path, n, ".zst"))
        n -= 4;
    return ends_with(path, n, ".jsonl") || ends_with(path, n, ".ndjson") ||
           ends_with(path, n, ".json");
}

static enum status refill(struct documents_reader *r)
{
    r->at = r->end = 0;
    return input_read(&r->input, r->buffer, BUFFER, &r->end);
}

/* Looks at the first bytes of a file for the mark of an encoding. */
static enum status pass_mark(struct documents_reader *r)
{
    const char *path = r->input.path;

    if (r->end >= 3 && !memcmp(r->buffer, "\xef\xbb\xbf", 3))
        r->at = 3;
    if (r->end >= 2 && (!memcmp(r->buffer, "\xff\xfe", 2) || !memcmp(r->buffer, "\xfe\xff", 2)))
        return fail(ST_EFORMAT,
                    "%s begins with the mark of UTF-16 or UTF-32; convert it: iconv -f UTF-16 -t "
                    "UTF-8",
                    path);
    return ST_OK;
}

static enum status open_next(struct documents_reader *r)
{
    TRY(input_open(&r->input, r->paths[r->file], r->options->stop));
    r->open = 1;
    r->line = 1;
    r->within = 0;
    r->json = is_json(r->paths[r->file], r->options);
    TRY(refill(r));
    return pass_mark(r);
}

static void close_file(struct documents_reader *r)
{
    r->before += r->input.taken;
    input_close(&r->input);
    r->open = 0;
    r->file++;
}

/* ---- documents ---- */

/* Appends the next line with its end, or at least `most` bytes of it; *lf: its end is there; *n:
 * its bytes, 0 at the end of the file. */
static enum status read_line(struct byte_list *out, struct documents_reader *r, int64_t most,
                             int64_t *n, int *lf)
{
    *n = 0;
    *lf = 0;
    while (!*lf && *n < most) {
        const char *start, *end;
        int64_t some;

        if (r->at == r->end)
            TRY(refill(r));
        if (r->at == r->end)
            break;
        start = r->buffer + r->at;
        some = (int64_t)(r->end - r->at) < most ? (int64_t)(r->end - r->at) : most;
        end = memchr(start, '\n', (size_t)some);
        some = end ? end - start + 1 : some;
        TRY(list_bytes_add(out, start, some));
        r->at += (size_t)some;
        *n += some;
        *lf = end != NULL;
    }
    r->line += *lf;
    return ST_OK;
}

static int is_separator(const char *line, int64_t n, int lf, const char *separator)
{
    int64_t length = n - lf;

    length -= length > 0 && line[length - 1] == '\r';
    return length == (int64_t)strlen(separator) && !memcmp(line, separator, (size_t)length);
}

/* More of a document that ends with the file. */
static enum status read_file(struct byte_list *out, struct documents_reader *r, int64_t most,
                             int *ended)
{
    int64_t some = (int64_t)(r->end - r->at) < most ? (int64_t)(r->end - r->at) : most;

    TRY(list_bytes_add(out, r->buffer + r->at, some));
    r->at += (size_t)some;
    if (r->at == r->end)
        TRY(refill(r));
    *ended = r->at == r->end;
    return ST_OK;
}

/* A line, or some of it, of a document that ends with a separator. */
static enum status read_separated(struct byte_list *out, struct documents_reader *r, int64_t most,
                                  int *ended)
{
    int64_t line = out->count, least = (int64_t)strlen(r->options->separator) + 3, n;
    int lf;

    TRY(read_line(out, r, most > least ? most : least, &n, &lf));
    *ended = n == 0;
    if (n > 0 && !r->within && is_separator(out->bytes + line, n, lf, r->options->separator)) {
        out->count = line;
        *ended = 1;
    }
    r->within = n > 0 && !lf;
    return ST_OK;
}

static enum status read_json(struct byte_list *out, struct documents_reader *r, int64_t most,
                             int *ended)
{
    int64_t n;
    int lf;

    TRY(read_line(out, r, most, &n, &lf));
    out->count -= lf;
    *ended = lf || n == 0;
    return ST_OK;
}

enum status documents_more(struct byte_list *out, struct documents_reader *r, int64_t most,
                           int *ended)
{
    if (r->json)
        return read_json(out, r, most, ended);
    return r->options->separator ? read_separated(out, r, most, ended)
                                 : read_file(out, r, most, ended);
}

enum status documents_put(struct documents_batch *b, const struct documents_raw *raw)
{
    if (b->n == b->room) {
        int64_t room = b->room ? 2 * b->room : 256;
        struct documents_raw *more = realloc(b->raw, (size_t)room * sizeof *more);

        if (!more)
            return fail(ST_ENOMEM, "no memory for %lld documents", (long long)room);
        b->raw = more;
        b->room = room;
    }
    b->raw[b->n] = *raw;
    b->raw[b->n++].n = b->text.count - raw->begin;
    return ST_OK;
}

/* The document that begins at raw->begin is long: what is there of it becomes its first part. */
static enum status long_document(struct documents_batch *b, struct documents_reader *r,
                                 const struct documents_raw *raw, int64_t bytes)
{
    TRY(documents_long_begin(&r->part, r, raw, b->text.bytes + raw->begin,
                             b->text.count - raw->begin));
    b->text.count = raw->begin;
    return documents_long_part(b, r, bytes);
}

/* One more document of the open file, or the first part of a long one. An empty one of JSON lines
 * is a blank line. */
static enum status read_document(struct documents_batch *b, struct documents_reader *r,
                                 int64_t bytes)
{
    const struct tokenizer *t = r->options->tokenizer;
    int64_t begin = b->text.count;
    struct documents_raw raw = {
        .begin = begin, .line = r->line, .file = r->file, .json = (short)r->json};
    int ended = 0;

    while (!ended) {
        if (t && t->border && b->text.count - begin >= bytes)
            return long_document(b, r, &raw, bytes);
        TRY(documents_more(&b->text, r, bytes, &ended));
    }
    return r->json && b->text.count == begin ? ST_OK : documents_put(b, &raw);
}

/* Nonzero when the open file has more bytes. */
static enum status more(int *left, struct documents_reader *r)
{
    if (r->at == r->end)
        TRY(refill(r));
    *left = r->at < r->end;
    return ST_OK;
}

/* The next document of the open file, or its end. */
static enum status read_next(struct documents_batch *b, struct documents_reader *r, int64_t bytes)
{
    int left = 0;

    TRY(more(&left, r));
    if (left)
        return read_document(b, r, bytes);
    close_file(r);
    return ST_OK;
}

enum status documents_read(struct documents_batch *b, struct documents_reader *r, int64_t bytes)
{
    b->text.count = b->n = 0;
    while (b->text.count < bytes && b->n < bytes) {
        if (!r->part.on && !r->open && r->file == r->files)
            return ST_OK;
        if (!r->part.on && !r->open)
            TRY(open_next(r));
        TRY(r->part.on ? documents_long_part(b, r, bytes) : read_next(b, r, bytes));
    }
    return ST_OK;
}
