#include "common/tokenizer/llama2c.h"

#include "common/tokenizer/pieces.h"

#include <string.h>

enum { HEAD = 4, ENTRY = 8, FIRST_BYTE = 3, FIRST_PIECE = 259 };

/* Texts that the program which wrote the file gave to the special tokens. */
static const char *const special[FIRST_BYTE] = {"<unk>", "\n<s>\n", "\n</s>\n"};
static const char *const names[FIRST_BYTE] = {"<unk>", "<s>", "</s>"};

static int32_t number(const char *at)
{
    int32_t value;

    memcpy(&value, at, sizeof value);
    return value;
}

/* A token with spaces as it stands in the file, as a piece, which has marks for them. */
static enum status add_piece(struct pieces *p, struct byte_list *piece, const char *text, int64_t n,
                             float score)
{
    int32_t id = p->count;

    if (id < FIRST_BYTE) {
        if ((size_t)n != strlen(special[id]) || memcmp(text, special[id], (size_t)n) != 0)
            return fail(ST_EFORMAT, "token %d is '%.*s', and not %s", (int)id,
                        (int)(n < 40 ? n : 40), text, names[id]);
        return pieces_add(p, names[id], (int64_t)strlen(names[id]), score,
                          id ? PIECE_CONTROL : PIECE_UNKNOWN);
    }
    if (id < FIRST_PIECE && pieces_byte(text, n) != id - FIRST_BYTE)
        return fail(ST_EFORMAT, "token %d is '%.*s', and not <0x%02X>", (int)id,
                    (int)(n < 40 ? n : 40), text, (unsigned)id - FIRST_BYTE);
    piece->count = 0;
    for (int64_t i = 0; i < n; i++)
        TRY(text[i] == ' ' ? list_bytes_add(piece, PIECES_MARK, 3)
                           : list_bytes_add(piece, text + i, 1));
    return pieces_add(p, piece->bytes, piece->count, score,
                      id < FIRST_PIECE ? PIECE_BYTE : PIECE_NORMAL);
}

static enum status read_tokens(struct pieces *p, struct byte_list *piece,
                               const struct byte_list *content)
{
    int32_t most = content->count >= HEAD ? number(content->bytes) : 0, longest = 0;
    int64_t at = HEAD;

    while (at < content->count) {
        const char *entry = content->bytes + at;
        int64_t left = content->count - at;
        int32_t n = left >= ENTRY ? number(entry + 4) : 0;
        float score;

        if (left < ENTRY || n > left - ENTRY)
            return fail(ST_EFORMAT, "the file ends inside of token %d", (int)p->count);
        if (n < 1 || n > most)
            return fail(ST_EFORMAT, "token %d has %d bytes; the file says that it has 1 to %d",
                        (int)p->count, (int)n, (int)most);
        memcpy(&score, entry, sizeof score);
        TRY(add_piece(p, piece, entry + ENTRY, n, score));
        at += ENTRY + n;
        longest = n > longest ? n : longest;
    }
    if (longest != most)
        return fail(ST_EFORMAT, "its longest token has %d bytes, not %d: the file was cut off",
                    (int)longest, (int)most);
    if (p->count < FIRST_PIECE)
        return fail(ST_EFORMAT, "the file has %d tokens; the special ones and bytes alone are %d",
                    (int)p->count, FIRST_PIECE);
    return ST_OK;
}

enum status llama2c_open(struct tokenizer *t, const struct byte_list *content)
{
    struct pieces p = {0};
    struct byte_list piece = {0};
    enum status st = recipe_open(&p.recipe);

    if (st == ST_OK)
        st = read_tokens(&p, &piece, content);
    if (st == ST_OK)
        st = pieces_merges(&p);
    if (st == ST_OK)
        st = pieces_finish(t, &p, 1, 0);
    if (st == ST_OK) {
        t->begin = 1;
        t->end = 2;
        p.recipe->before[p.recipe->before_n++] = 1;
        p.recipe = NULL; /* it belongs to t */
    }
    recipe_close(p.recipe);
    pieces_close(&p);
    list_bytes_free(&piece);
    return st;
}
