#include "common/tokenizer/word.h"

#include "common/tokenizer/scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first byte of a key is its lowest");

/* ---- from bytes to symbols ---- */

static enum status no_token(const unsigned char *c, int length, const char *what)
{
    char hex[16] = "";
    size_t used = 0;

    for (int i = 0; i < length && i < 4; i++)
        used += (size_t)snprintf(hex + used, sizeof hex - used, "%s%02x", i ? " " : "", c[i]);
    return fail(ST_EFORMAT,
                "the tokenizer has no token for the %s %s, and none for what is unknown", what,
                hex);
}

static enum status byte_symbols(struct token_list *out, const struct recipe *r,
                                const unsigned char *word, int64_t n)
{
    TRY(list_tokens_room(out, n));
    for (int64_t i = 0; i < n; i++) {
        int32_t id = r->byte_id[word[i]];

        if (id < 0)
            id = r->unknown;
        if (id < 0)
            return no_token(word + i, 1, "byte");
        out->ids[out->count++] = id;
    }
    return ST_OK;
}

/* Whether each of the bytes has a token. */
static int bytes_known(const struct recipe *r, const unsigned char *c, int n)
{
    for (int i = 0; i < n; i++)
        if (r->byte_id[c[i]] < 0)
            return 0;
    return 1;
}

/* A character that is no token. *unknown: the symbol before stands for an unknown one. */
static enum status strange(struct token_list *out, int *unknown, const struct recipe *r,
                           const unsigned char *c, int length)
{
    int again = *unknown;

    *unknown = 0;
    if (r->byte_fallback && bytes_known(r, c, length))
        return byte_symbols(out, r, c, length);
    if (r->unknown < 0)
        return no_token(c, length, "character");
    *unknown = 1;
    return again && r->fuse_unknown ? ST_OK : list_tokens_add(out, &r->unknown, 1);
}

/* The token of the character at word[at], or -1; its length in bytes. */
static int32_t character_id(int *length, const struct recipe *r, const unsigned char *word,
                            int64_t n, int64_t at)
{
    *length = 1;
    if (word[at] < 0x80)
        return r->ascii_id[word[at]];
    if (scan_code(length, word, n, at) < 0)
        return -1;
    return vocab_find(&r->vocab, word + at, *length);
}

static enum status character_symbols(struct token_list *out, const struct recipe *r,
                                     const unsigned char *word, int64_t n)
{
    int unknown = 0, length;

    for (int64_t i = 0; i < n; i += length) {
        int32_t id = character_id(&length, r, word, n, i);

        unknown = unknown && id < 0;
        TRY(id < 0 ? strange(out, &unknown, r, word + i, length) : list_tokens_add(out, &id, 1));
    }
    return ST_OK;
}

static enum status encode_new(struct token_list *out, struct recipe_worker *w,
                              const struct recipe *r, const unsigned char *word, int64_t n)
{
    struct token_list *s = &w->symbols;
    int32_t whole = r->whole_words ? vocab_find(&r->vocab, word, n) : -1;

    if (whole >= 0)
        return list_tokens_add(out, &whole, 1);
    s->count = 0;
    TRY(r->byte_level ? byte_symbols(s, r, word, n) : character_symbols(s, r, word, n));
    TRY(bpe_run(s->ids, &s->count, &r->bpe, &w->scratch));
    return list_tokens_add(out, s->ids, s->count);
}

/* ---- the memory ---- */

/* Loads the word and its length as a key; n <= WORD_KEY. */
static inline void load_key(uint64_t key[2], const unsigned char *word, int64_t n,
                            const unsigned char *limit)
{
    unsigned char bytes[16] = {0};

    if (limit - word >= 16) {
        memcpy(key, word, 16);
        if (n < 8) {
            key[0] &= (UINT64_C(1) << 8 * n) - 1;
            key[1] = 0;
        } else {
            key[1] &= (UINT64_C(1) << 8 * (n - 8)) - 1;
        }
    } else {
        memcpy(bytes, word, (size_t)n);
        memcpy(key, bytes, 16);
    }
    key[1] |= (uint64_t)n << 56;
}

static inline struct word_slot *slot_of(struct recipe_worker *w, const uint64_t key[2])
{
    uint64_t h = (key[0] ^ (key[1] << 23 | key[1] >> 41)) * UINT64_C(0x9e3779b97f4a7c15);

    return &w->slots[(h ^ h >> 29) * UINT64_C(0xbf58476d1ce4e5b9) >> 49];
}

enum status word_encode(struct token_list *out, struct recipe_worker *w, const struct recipe *r,
                        const unsigned char *word, int64_t n, const unsigned char *limit)
{
    struct word_slot *slot;
    int64_t from = out->count;
    uint64_t key[2];

    if (n > WORD_KEY)
        return encode_new(out, w, r, word, n);
    load_key(key, word, n, limit);
    slot = slot_of(w, key);
    TRY(list_tokens_room(out, WORD_IDS));
    if (slot->key[0] == key[0] && slot->key[1] == key[1]) {
        memcpy(out->ids + from, slot->ids, sizeof slot->ids);
        out->count += slot->count;
        return ST_OK;
    }
    TRY(encode_new(out, w, r, word, n));
    if (out->count - from <= WORD_IDS) {
        slot->key[0] = key[0];
        slot->key[1] = key[1];
        slot->count = (int32_t)(out->count - from);
        memcpy(slot->ids, out->ids + from, (size_t)slot->count * sizeof *slot->ids);
    }
    return ST_OK;
}
