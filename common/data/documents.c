#include "common/data/documents.h"

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

/* Appends the next line with its end; *lf: it has one; *n: its bytes, 0 at the end of the file. */
static enum status read_line(struct byte_list *out, struct documents_reader *r, int64_t *n, int *lf)
{
    *n = 0;
    *lf = 0;
    while (!*lf) {
        const char *start, *end;
        int64_t some;

        if (r->at == r->end)
            TRY(refill(r));
        if (r->at == r->end)
            break;
        start = r->buffer + r->at;
        end = memchr(start, '\n', r->end - r->at);
        some = end ? end - start + 1 : (int64_t)(r->end - r->at);
        TRY(list_bytes_add(out, start, some));
        r->at += (size_t)some;
        *n += some;
        *lf = end != NULL;
    }
    r->line += *lf;
    return ST_OK;
}

/* The rest of the file. */
static enum status read_file(struct byte_list *out, struct documents_reader *r)
{
    while (r->at < r->end) {
        TRY(list_bytes_add(out, r->buffer + r->at, (int64_t)(r->end - r->at)));
        TRY(refill(r));
    }
    return ST_OK;
}

static int is_separator(const char *line, int64_t n, int lf, const char *separator)
{
    int64_t length = n - lf;

    length -= length > 0 && line[length - 1] == '\r';
    return length == (int64_t)strlen(separator) && !memcmp(line, separator, (size_t)length);
}

/* Lines up to a separator or the end of the file. */
static enum status read_separated(struct byte_list *out, struct documents_reader *r)
{
    for (;;) {
        int64_t line = out->count, n;
        int lf;

        TRY(read_line(out, r, &n, &lf));
        if (n == 0)
            return ST_OK;
        if (is_separator(out->bytes + line, n, lf, r->options->separator)) {
            out->count = line;
            return ST_OK;
        }
    }
}

static enum status read_json(struct byte_list *out, struct documents_reader *r)
{
    int64_t n;
    int lf;

    TRY(read_line(out, r, &n, &lf));
    out->count -= lf;
    return ST_OK;
}

/* One more document of the open file. An empty one of JSON lines is a blank line. */
static enum status read_document(struct documents_batch *b, struct documents_reader *r)
{
    struct documents_raw raw = {
        .begin = b->text.count, .line = r->line, .file = r->file, .json = r->json};

    if (b->n == b->room) {
        int64_t room = b->room ? 2 * b->room : 256;
        struct documents_raw *more = realloc(b->raw, (size_t)room * sizeof *more);

        if (!more)
            return fail(ST_ENOMEM, "no memory for %lld documents", (long long)room);
        b->raw = more;
        b->room = room;
    }
    if (r->json)
        TRY(read_json(&b->text, r));
    else if (r->options->separator)
        TRY(read_separated(&b->text, r));
    else
        TRY(read_file(&b->text, r));
    raw.n = b->text.count - raw.begin;
    b->raw[b->n] = raw;
    b->n += !r->json || raw.n > 0;
    return ST_OK;
}

/* Nonzero when the open file has more bytes. */
static enum status more(int *left, struct documents_reader *r)
{
    if (r->at == r->end)
        TRY(refill(r));
    *left = r->at < r->end;
    return ST_OK;
}

enum status documents_read(struct documents_batch *b, struct documents_reader *r, int64_t bytes)
{
    int left = 0;

    b->text.count = b->n = 0;
    while (b->text.count < bytes && b->n < bytes) {
        if (!r->open && r->file == r->files)
            return ST_OK;
        if (!r->open)
            TRY(open_next(r));
        TRY(more(&left, r));
        if (left)
            TRY(read_document(b, r));
        else
            close_file(r);
    }
    return ST_OK;
}
