#include "common/tokenizer/tokenizer.h"

#include "common/base/hash.h"
#include "common/tokenizer/bytes.h"
#include "common/tokenizer/decoder.h"
#include "common/tokenizer/file.h"
#include "common/tokenizer/hf.h"
#include "common/tokenizer/llama2c.h"
#include "common/tokenizer/spm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 4096 };

/* Opens what the content of a file says. A .model is a message whose first field is a text; a
 * tokenizer.bin begins with a small number of 4 bytes. */
static enum status open_content(struct tokenizer *t, const struct byte_list *content,
                                const char *path)
{
    const unsigned char *c = (const unsigned char *)content->bytes;
    int64_t n = content->count, i = 0;

    t->identity = hash_bytes(c, (size_t)n);
    while (i < n && strchr(" \t\r\n", c[i]) && c[i])
        i++;
    if (i < n && c[i] == '{')
        return hf_open(t, content, path);
    if (n >= 12 && c[2] == 0 && c[3] == 0 && (c[0] || c[1]))
        return llama2c_open(t, content);
    if (n >= 2 && c[0] == 0x0a)
        return spm_open(t, content);
    return fail(ST_EFORMAT,
                "its %lld bytes are of no kind that is known, which are: tokenizer.json of "
                "Hugging Face, .model of SentencePiece, tokenizer.bin of llama2.c",
                (long long)n);
}

static enum status open_file(struct tokenizer *t, const char *path)
{
    struct byte_list content = {0};
    enum status st = file_read(&content, path);

    if (st == ST_OK)
        st = open_content(t, &content, path);
    list_bytes_free(&content);
    if (st != ST_OK)
        status_prefix("tokenizer %s: ", path);
    return st;
}

/* The path of the tokenizer in a folder; 0 when there is none. */
static int find_in(char path[PATH], const char *folder)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, PATH, "%s/%s", folder, names[i]);
        if (file_exists(path))
            return 1;
    }
    return 0;
}

int tokenizer_in(const char *folder)
{
    char path[PATH];

    return find_in(path, folder);
}

static enum status open_folder(struct tokenizer *t, const char *folder)
{
    char path[PATH];

    if (!find_in(path, folder))
        return fail(ST_ECONFIG,
                    "folder %s has no tokenizer.json and no tokenizer.model; name the file",
                    folder);
    return open_file(t, path);
}

static enum status open_named(struct tokenizer *t, const char *name)
{
    if (strcmp(name, "bytes") == 0) {
        bytes_open(t);
        return ST_OK;
    }
    if (!file_exists(name))
        return fail(ST_ECONFIG,
                    "tokenizer '%s' is not known: it is neither bytes nor the path of a file",
                    name);
    return file_is_folder(name) ? open_folder(t, name) : open_file(t, name);
}

enum status tokenizer_open(struct tokenizer *t, const char *name)
{
    enum status st;

    *t = (struct tokenizer){.begin = -1, .end = -1, .pad = -1};
    t->name = strdup(name);
    if (!t->name)
        return fail(ST_ENOMEM, "no memory for the name of a tokenizer");
    st = open_named(t, name);
    if (st != ST_OK) {
        free(t->name);
        *t = (struct tokenizer){0};
    }
    return st;
}

void tokenizer_close(struct tokenizer *t)
{
    if (t->close)
        t->close(t);
    free(t->name);
    *t = (struct tokenizer){0};
}

enum status tokenizer_encode(struct token_list *out, const struct tokenizer *t, const void *bytes,
                             int64_t n, unsigned how)
{
    FAIL_IF(n < 0, ST_EINTERNAL);
    return t->encode(out, t, bytes, n, how);
}

int64_t tokenizer_border(int64_t *next, const struct tokenizer *t, const void *bytes, int64_t n,
                         int64_t least)
{
    return t->border ? t->border(next, t, bytes, n, least) : -1;
}

static enum status no_such_id(const struct tokenizer *t, int32_t id, const char *where)
{
    return fail(ST_EFORMAT, "%s id %d; tokenizer '%s' has ids 0 to %d", where, (int)id, t->name,
                (int)t->vocab - 1);
}

enum status tokenizer_piece(struct token_piece *out, const struct tokenizer *t, int32_t id)
{
    if (id < 0 || id >= t->vocab)
        return no_such_id(t, id, "a token has");
    *out = t->piece(t, id);
    return ST_OK;
}

enum status tokenizer_decode(struct byte_list *out, const struct tokenizer *t, const int32_t *ids,
                             int64_t n, unsigned how)
{
    struct decoder d = decoder_begin(t, how);
    char where[64];

    FAIL_IF(n < 0, ST_EINTERNAL);
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= t->vocab) {
            snprintf(where, sizeof where, "token %lld has", (long long)i);
            return no_such_id(t, ids[i], where);
        }
        TRY(decoder_add(out, &d, ids[i]));
    }
    return decoder_end(out, &d);
}

int32_t tokenizer_find(const struct tokenizer *t, const char *bytes, int64_t n)
{
    for (int32_t id = 0; id < t->vocab; id++) {
        struct token_piece p = t->piece(t, id);

        if (p.n == n && (n == 0 || memcmp(p.bytes, bytes, (size_t)n) == 0))
            return id;
    }
    return -1;
}

/* Writes one byte as people read it; returns the characters written (size permitting). */
static size_t byte_name(char *out, size_t size, unsigned char byte)
{
    int printable = byte >= 0x20 && byte < 0x7f && byte != '\\';
    int n = snprintf(out, size, printable ? "%c" : "\\x%02x", byte);

    return n > 0 ? (size_t)n : 0;
}

enum status tokenizer_name(char *out, size_t size, const struct tokenizer *t, int32_t id)
{
    struct token_piece p;
    size_t used = 0;

    FAIL_IF(size == 0, ST_EINTERNAL);
    TRY(tokenizer_piece(&p, t, id));
    out[0] = '\0';
    for (int32_t i = 0; i < p.n && used < size; i++)
        used += byte_name(out + used, size - used, (unsigned char)p.bytes[i]);
    return ST_OK;
}
