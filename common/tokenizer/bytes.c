#include "common/tokenizer/bytes.h"

#include "common/base/hash.h"

static enum status encode(struct token_list *out, const struct tokenizer *t, const void *bytes,
                          int64_t n, unsigned how)
{
    const unsigned char *in = bytes;

    (void)t;
    (void)how;
    TRY(list_tokens_room(out, n));
    for (int64_t i = 0; i < n; i++)
        out->ids[out->count++] = in[i];
    return ST_OK;
}

static int64_t border(int64_t *next, const struct tokenizer *t, const void *bytes, int64_t n,
                      int64_t least)
{
    (void)t;
    (void)bytes;
    *next = n - 1;
    return n - 1 >= least && n > 1 ? n - 1 : -1;
}

static struct token_piece piece(const struct tokenizer *t, int32_t id)
{
    /* All bytes in their order: the text of id i is one byte at i. */
    static const unsigned char text[256] = {
#define FOUR(x)       (x), (x) + 1, (x) + 2, (x) + 3
#define SIXTEEN(x)    FOUR(x), FOUR((x) + 4), FOUR((x) + 8), FOUR((x) + 12)
#define SIXTY_FOUR(x) SIXTEEN(x), SIXTEEN((x) + 16), SIXTEEN((x) + 32), SIXTEEN((x) + 48)
        SIXTY_FOUR(0), SIXTY_FOUR(64), SIXTY_FOUR(128), SIXTY_FOUR(192)};
    static const struct token_piece special[] = {
        {"<begin>", 7, 1}, {"<end>", 5, 1}, {"<pad>", 5, 1}};

    (void)t;
    if (id >= TOKENIZER_BYTE_BEGIN)
        return special[id - TOKENIZER_BYTE_BEGIN];
    return (struct token_piece){(const char *)text + id, 1, 0};
}

void bytes_open(struct tokenizer *t)
{
    t->kind = "bytes";
    t->vocab = TOKENIZER_BYTE_VOCAB;
    t->begin = TOKENIZER_BYTE_BEGIN;
    t->end = TOKENIZER_BYTE_END;
    t->pad = TOKENIZER_BYTE_PAD;
    t->identity = hash_text("bytes");
    t->encode = encode;
    t->piece = piece;
    t->border = border;
}
