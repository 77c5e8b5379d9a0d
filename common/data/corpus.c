#include "common/data/corpus.h"

#include "common/base/hash.h"
#include "common/base/utf8.h"
#include "common/data/corpus_shards.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes of a file; owned. */
struct text {
    unsigned char *bytes;
    int64_t size;
};

static enum status no_memory(const char *path, int64_t bytes)
{
    return fail(ST_ENOMEM, "no memory for %lld bytes to read %s; give a smaller text",
                (long long)bytes, path);
}

/* Reads n bytes, however many calls that takes: one call gives at most 2 GiB on Linux. */
static enum status read_all(unsigned char *out, int fd, int64_t n, const char *path)
{
    int64_t done = 0;

    while (done < n) {
        ssize_t got = read(fd, out + done, (size_t)(n - done));

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail(ST_EIO, "cannot read text %s: %s", path, strerror(errno));
        if (got == 0)
            return fail(ST_EIO, "text %s became shorter while it was read: %lld of %lld bytes",
                        path, (long long)done, (long long)n);
        done += got;
    }
    return ST_OK;
}

static enum status read_open_file(struct text *t, int fd, const char *path)
{
    struct stat info;
    enum status st;

    if (fstat(fd, &info) != 0)
        return fail(ST_EIO, "cannot read text %s: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode))
        return fail(ST_EIO, "text %s is a directory; name a file in it", path);
    if (!S_ISREG(info.st_mode))
        return fail(ST_EIO, "text %s is not a regular file; copy its content to one", path);
    if (info.st_size == 0)
        return fail(ST_EFORMAT, "text %s is empty", path);
    t->size = info.st_size;
    t->bytes = malloc((size_t)t->size);
    if (!t->bytes)
        return no_memory(path, t->size);
    st = read_all(t->bytes, fd, t->size, path);
    if (st != ST_OK)
        free(t->bytes);
    return st;
}

/* Reads the file; t->bytes is to be freed on success only. */
static enum status read_file(struct text *t, const char *path)
{
    /* O_NONBLOCK: opening a pipe that nobody writes to must not hang. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum status st;

    if (fd < 0)
        return fail(ST_EIO, "cannot open text %s: %s", path, strerror(errno));
    st = read_open_file(t, fd, path);
    close(fd);
    return st;
}

static enum status check_utf8(const struct text *t, const char *path)
{
    size_t bad = utf8_invalid(t->bytes, (size_t)t->size);

    if ((int64_t)bad == t->size)
        return ST_OK;
    return fail(ST_EFORMAT,
                "text %s is not UTF-8: byte 0x%02x at offset %zu does not begin a valid "
                "character; convert the text, or set data.require_utf8 to off",
                path, t->bytes[bad], bad);
}

/* Finds the document that starts at begin. *end: where its text ends; *next: where the document
 * after it starts. Returns nonzero when a separator line ended it. */
static int find_document(int64_t *end, int64_t *next, const struct text *t, int64_t begin,
                         const char *separator)
{
    int64_t length = (int64_t)strlen(separator);
    int64_t line = begin;

    while (length > 0 && line < t->size) {
        const unsigned char *start = t->bytes + line;
        const unsigned char *lf = memchr(start, '\n', (size_t)(t->size - line));
        int64_t line_size = lf ? lf - start : t->size - line;
        int64_t text_size = line_size - (line_size > 0 && start[line_size - 1] == '\r');

        *next = line + line_size + (lf != NULL);
        if (text_size == length && memcmp(start, separator, (size_t)length) == 0) {
            *end = line;
            return 1;
        }
        line = *next;
    }
    *end = *next = t->size;
    return 0;
}

/* Makes room for n elements of the given size in *array, which has *room of them. */
static enum status grow(void *array, int64_t *room, int64_t n, size_t size, const char *path)
{
    int64_t want = n > 2 * *room ? n : 2 * *room;
    void *old, *bigger;

    if (n <= *room)
        return ST_OK;
    memcpy(&old, array, sizeof old);
    bigger = realloc(old, (size_t)want * size);
    if (!bigger)
        return no_memory(path, want * (int64_t)size);
    memcpy(array, &bigger, sizeof bigger);
    *room = want;
    return ST_OK;
}

/* What grows while a corpus is filled. */
struct filling {
    struct token_list ids; /* of one document */
    int64_t tokens_room, starts_room;
};

static void append_tokens(struct corpus *c, const int32_t *ids, int64_t n)
{
    if (c->token_bytes == 2)
        for (int64_t i = 0; i < n; i++)
            ((uint16_t *)c->tokens)[c->count + i] = (uint16_t)ids[i];
    else
        memcpy((int32_t *)c->tokens + c->count, ids, (size_t)n * sizeof *ids);
    c->count += n;
}

/* Tokenises n bytes as one more document. */
static enum status add_document(struct corpus *c, struct filling *f, const struct tokenizer *t,
                                const unsigned char *bytes, int64_t n)
{
    int64_t count;

    f->ids.count = 0;
    TRY(tokenizer_encode(&f->ids, t, bytes, n, TOKENIZER_PLAIN));
    if (c->separated)
        TRY(list_tokens_add(&f->ids, &t->end, 1));
    count = f->ids.count;
    TRY(grow(&c->tokens, &f->tokens_room, c->count + count, (size_t)c->token_bytes, c->path));
    TRY(grow(&c->starts, &f->starts_room, c->documents + 2, sizeof *c->starts, c->path));
    append_tokens(c, f->ids.ids, count);
    c->starts[++c->documents] = c->count;
    return ST_OK;
}

static enum status add_documents(struct corpus *c, struct filling *f, const struct tokenizer *t,
                                 const struct text *text, const char *separator)
{
    int64_t begin = 0, end, next, separators = 0;

    TRY(grow(&c->starts, &f->starts_room, 2, sizeof *c->starts, c->path));
    c->starts[0] = 0;
    while (begin < text->size) {
        separators += find_document(&end, &next, text, begin, separator);
        if (end > begin)
            TRY(add_document(c, f, t, text->bytes + begin, end - begin));
        begin = next;
    }
    if (c->separated && separators == 0)
        return fail(ST_EFORMAT,
                    "the separator line '%s' does not occur in %s; set data.document_separator to "
                    "the line that ends its documents, or to \"\" for one document",
                    separator, c->path);
    if (c->count == 0)
        return fail(ST_EFORMAT, "text %s holds no token besides separators", c->path);
    return ST_OK;
}

static enum status check_options(const struct corpus_options *options, const struct tokenizer *t)
{
    if (!options->separator || !options->separator[0])
        return ST_OK;
    if (strpbrk(options->separator, "\r\n"))
        return fail(ST_ECONFIG, "data.document_separator holds a line end; it is to be the content "
                                "of one line");
    if (t->end < 0)
        return fail(ST_ECONFIG,
                    "data.document_separator is set, and tokenizer '%s' has no token for the end "
                    "of a document; leave the separator empty",
                    t->kind);
    return ST_OK;
}

static enum status fill(struct corpus *c, const struct tokenizer *t, const struct text *text,
                        const struct corpus_options *options)
{
    struct filling f = {0};
    enum status st;

    if (options->require_utf8)
        TRY(check_utf8(text, c->path));
    st = add_documents(c, &f, t, text, options->separator ? options->separator : "");
    list_tokens_free(&f.ids);
    return st;
}

enum status corpus_open(struct corpus *c, const char *path, const struct tokenizer *t,
                        const struct corpus_options *options)
{
    struct text text = {0};
    enum status st;

    *c = (struct corpus){.vocab = t->vocab,
                         .pad = t->pad,
                         .token_bytes = t->vocab <= 65536 ? 2 : 4,
                         .separated = options->separator && options->separator[0]};
    TRY(check_options(options, t));
    TRY(read_file(&text, path));
    FAIL_IF(!text.bytes, ST_EINTERNAL);
    c->path = strdup(path);
    c->file_bytes = text.size;
    c->hash = hash_bytes(text.bytes, (size_t)text.size);
    st = c->path ? fill(c, t, &text, options) : no_memory(path, text.size);
    free(text.bytes);
    if (st != ST_OK)
        corpus_close(c);
    return st;
}

void corpus_close(struct corpus *c)
{
    corpus_shards_release(c->shards);
    free(c->path);
    free(c->tokens);
    free(c->starts);
    *c = (struct corpus){0};
}

/* Where to cut so that at least `held` tokens follow: before document *document (the cut lies
 * inside it when there is only one). */
static int64_t find_cut(int64_t *document, const struct corpus *c, int64_t held)
{
    *document = c->documents - 1;
    if (c->documents == 1)
        return c->count - held;
    while (*document > 1 && c->count - corpus_start(c, *document) < held)
        --*document;
    return corpus_start(c, *document);
}

/* The tokens of a text from cut on, and its documents from `document` on, copied. */
static enum status copy_end(struct corpus *out, const struct corpus *c, int64_t cut,
                            int64_t document)
{
    size_t width = (size_t)c->token_bytes;

    out->tokens = malloc((size_t)out->count * width);
    out->starts = malloc((size_t)(out->documents + 1) * sizeof *out->starts);
    if (!out->tokens || !out->starts)
        return no_memory(c->path, (c->count - cut) * c->token_bytes);
    memcpy(out->tokens, (const char *)c->tokens + (size_t)cut * width, (size_t)out->count * width);
    for (int64_t j = 0; j <= out->documents; j++)
        out->starts[j] = c->starts[document + j] - cut;
    out->starts[0] = 0;
    return ST_OK;
}

/* A corpus of its own from cut on. Shards are shared, text is copied. */
static enum status take_end(struct corpus *out, const struct corpus *c, int64_t cut,
                            int64_t document)
{
    enum status st = ST_OK;

    *out = *c;
    out->tokens = NULL;
    out->starts = NULL;
    out->shards = NULL;
    out->count = c->count - cut;
    out->documents = c->documents - document;
    out->first_token += cut;
    out->first_document += document;
    out->path = strdup(c->path);
    if (!out->path)
        st = no_memory(c->path, out->count);
    else if (c->shards)
        out->shards = corpus_shards_share(c->shards);
    else
        st = copy_end(out, c, cut, document);
    if (st != ST_OK)
        corpus_close(out);
    return st;
}

enum status corpus_split(struct corpus *held_out, struct corpus *c, double fraction)
{
    int64_t held, cut, document;

    if (!(fraction > 0 && fraction < 1))
        return fail(ST_ECONFIG, "the share of %s to hold out is %g; it must lie between 0 and 1",
                    c->path, fraction);
    held = (int64_t)((double)c->count * fraction);
    if (held < 1 || held >= c->count)
        return fail(ST_EFORMAT,
                    "text %s holds %lld tokens, too few to hold out a share of %g; give a longer "
                    "text or a validation text of its own",
                    c->path, (long long)c->count, fraction);
    cut = find_cut(&document, c, held);
    TRY(take_end(held_out, c, cut, document));
    c->count = cut;
    c->documents = c->documents == 1 ? 1 : document;
    if (c->starts)
        c->starts[c->documents] = cut;
    return ST_OK;
}

int64_t corpus_start(const struct corpus *c, int64_t j)
{
    return c->shards ? corpus_shards_start(c, j) : c->starts[j];
}

int64_t corpus_document(const struct corpus *c, int64_t token)
{
    int64_t low = 0, high = c->documents - 1; /* the answer lies in [low, high] */

    while (low < high) {
        int64_t middle = low + (high - low) / 2;

        if (corpus_start(c, middle + 1) > token)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

enum status corpus_open_any(struct corpus *c, const char *path, const struct tokenizer *t,
                            const struct corpus_options *options)
{
    if (corpus_shards_named(path))
        return corpus_open_shards(c, path, t);
    return corpus_open(c, path, t, options);
}

void corpus_read(int32_t *out, const struct corpus *c, int64_t first, int64_t n)
{
    if (c->shards)
        corpus_shards_read(out, c, first, n);
    else if (c->token_bytes == 2)
        for (int64_t i = 0; i < n; i++)
            out[i] = ((const uint16_t *)c->tokens)[first + i];
    else
        memcpy(out, (const int32_t *)c->tokens + first, (size_t)n * sizeof *out);
}
