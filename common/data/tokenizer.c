#include "common/data/tokenizer.h"

#include <stdio.h>
#include <string.h>

static enum status bytes_encode(int32_t *ids, int64_t *count, const struct tokenizer *t,
                                const void *bytes, int64_t n)
{
    const unsigned char *in = bytes;

    (void)t;
    for (int64_t i = 0; i < n; i++)
        ids[i] = in[i];
    *count = n;
    return ST_OK;
}

static enum status bytes_decode(char *bytes, int64_t *count, const struct tokenizer *t,
                                const int32_t *ids, int64_t n)
{
    int64_t out = 0;

    (void)t;
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < TOKENIZER_BYTE_BEGIN)
            bytes[out++] = (char)(unsigned char)ids[i];
    *count = out;
    return ST_OK;
}

static int64_t bytes_room(const struct tokenizer *t, int64_t n)
{
    (void)t;
    return n;
}

static void bytes_close(struct tokenizer *t)
{
    (void)t;
}

enum status tokenizer_open(struct tokenizer *t, const char *kind)
{
    if (strcmp(kind, "bytes") != 0)
        return fail(ST_ECONFIG, "tokenizer '%s' is not known; this build has: bytes", kind);
    *t = (struct tokenizer){.kind = "bytes",
                            .vocab = TOKENIZER_BYTE_VOCAB,
                            .begin = TOKENIZER_BYTE_BEGIN,
                            .end = TOKENIZER_BYTE_END,
                            .pad = TOKENIZER_BYTE_PAD,
                            .encode = bytes_encode,
                            .decode = bytes_decode,
                            .encode_room = bytes_room,
                            .decode_room = bytes_room,
                            .close = bytes_close};
    return ST_OK;
}

void tokenizer_close(struct tokenizer *t)
{
    if (t->close)
        t->close(t);
    *t = (struct tokenizer){0};
}

int64_t tokenizer_encode_room(const struct tokenizer *t, int64_t n)
{
    return t->encode_room(t, n);
}

int64_t tokenizer_decode_room(const struct tokenizer *t, int64_t n)
{
    return t->decode_room(t, n);
}

enum status tokenizer_encode(int32_t *ids, int64_t *count, const struct tokenizer *t,
                             const void *bytes, int64_t n)
{
    FAIL_IF(n < 0, ST_EINTERNAL);
    return t->encode(ids, count, t, bytes, n);
}

enum status tokenizer_decode(char *bytes, int64_t *count, const struct tokenizer *t,
                             const int32_t *ids, int64_t n)
{
    FAIL_IF(n < 0, ST_EINTERNAL);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= t->vocab)
            return fail(ST_EFORMAT, "token %lld has id %d; tokenizer '%s' has ids 0 to %d",
                        (long long)i, (int)ids[i], t->kind, (int)t->vocab - 1);
    return t->decode(bytes, count, t, ids, n);
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
    char text[256];
    int64_t n = 0;
    size_t used = 0;

    FAIL_IF(size == 0 || tokenizer_decode_room(t, 1) > (int64_t)sizeof text, ST_EINTERNAL);
    TRY(tokenizer_decode(text, &n, t, &id, 1));
    out[0] = '\0';
    if (id == t->begin)
        snprintf(out, size, "<begin>");
    else if (id == t->end)
        snprintf(out, size, "<end>");
    else if (id == t->pad)
        snprintf(out, size, "<pad>");
    else
        for (int64_t i = 0; i < n && used < size; i++)
            used += byte_name(out + used, size - used, (unsigned char)text[i]);
    return ST_OK;
}
