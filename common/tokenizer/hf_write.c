#include "common/tokenizer/hf_write.h"

#include "common/tokenizer/pieces.h"

#include <stdlib.h>
#include <string.h>

static json_t *special_token(int64_t id, json_t *name)
{
    return json_pack("{s:I,s:o,s:b,s:b,s:b,s:b,s:b}", "id", (json_int_t)id, "content", name,
                     "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
}

/* The parts together; takes over all of them, and NULL for one that could not be made. */
static enum status assemble(json_t **out, json_t *added, json_t *normalizer, json_t *cuts,
                            json_t *frame, json_t *decoder, json_t *model)
{
    *out = json_pack("{s:s,s:n,s:n,s:o,s:o,s:o,s:o,s:o,s:o}", "version", "1.0", "truncation",
                     "padding", "added_tokens", added, "normalizer", normalizer, "pre_tokenizer",
                     cuts, "post_processor", frame, "decoder", decoder, "model", model);
    return *out ? ST_OK : fail(ST_ENOMEM, "no memory for a tokenizer.json");
}

static json_t *bpe_model(json_t *unknown, int fuse, int byte_fallback, json_t *vocab,
                         json_t *merges)
{
    return json_pack("{s:s,s:n,s:o,s:n,s:n,s:b,s:b,s:o,s:o}", "type", "BPE", "dropout", "unk_token",
                     unknown, "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", fuse,
                     "byte_fallback", byte_fallback, "vocab", vocab, "merges", merges);
}

/* ---- bytes ---- */

/* The character that stands for a byte in byte-level vocabularies: itself where it can be seen,
 * else the next from U+0100 on. */
static void byte_character(char out[3], int byte)
{
    int code = 256;

    for (int b = 0; b <= byte; b++) {
        int seen = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;

        if (b == byte)
            code = seen ? b : code;
        else
            code += !seen;
    }
    if (code < 128) {
        out[0] = (char)code;
        out[1] = '\0';
        return;
    }
    out[0] = (char)(0xc0 | code >> 6);
    out[1] = (char)(0x80 | (code & 63));
    out[2] = '\0';
}

static json_t *byte_vocabulary(void)
{
    json_t *vocab = json_object();

    for (int b = 0; b < 256; b++) {
        char character[3];

        byte_character(character, b);
        json_object_set_new(vocab, character, json_integer(b));
    }
    return vocab;
}

/* A byte-level BPE without a merge: each byte is its own token. */
static enum status write_bytes(json_t **out)
{
    json_t *added =
        json_pack("[o,o,o]", special_token(TOKENIZER_BYTE_BEGIN, json_string("<begin>")),
                  special_token(TOKENIZER_BYTE_END, json_string("<end>")),
                  special_token(TOKENIZER_BYTE_PAD, json_string("<pad>")));
    json_t *level = json_pack("{s:s,s:b,s:b,s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                              "trim_offsets", 1, "use_regex", 0);
    json_t *model = bpe_model(json_null(), 0, 0, byte_vocabulary(), json_array());

    return assemble(out, added, json_null(), level, json_null(), json_deep_copy(level), model);
}

/* ---- pieces ---- */

static json_t *key_of(const struct recipe *r, int32_t id)
{
    return json_stringn(vocab_key_of(&r->vocab, id), (size_t)r->vocab.entries[id].key_n);
}

static enum status put_piece(json_t *vocab, const struct recipe *r, int32_t id)
{
    json_t *name = key_of(r, id);
    const char *key = name ? json_string_value(name) : "";
    int bad = strlen(key) != (size_t)r->vocab.entries[id].key_n ||
              json_object_set_new(vocab, key, json_integer(id));

    json_decref(name);
    if (bad)
        return fail(ST_EFORMAT, "token %d is no text in UTF-8: no tokenizer.json can hold it",
                    (int)id);
    if (json_object_size(vocab) != (size_t)id + 1)
        return fail(ST_EFORMAT,
                    "token %d has the text of another one: no tokenizer.json can hold "
                    "both",
                    (int)id);
    return ST_OK;
}

/* Ids by text; special tokens too, as in LLaMA's own file. */
static enum status piece_vocabulary(json_t **out, const struct recipe *r)
{
    *out = json_object();
    for (int32_t id = 0; id < r->vocab.size; id++)
        TRY(put_piece(*out, r, id));
    return ST_OK;
}

/* A merge in the order of a file, where no two have one rank. */
struct merge {
    int32_t rank, left, right, left_n, right_n; /* ids, and bytes of their texts */
};

static int by_rank(const void *x, const void *y)
{
    const struct merge *a = x, *b = y;

    if (a->rank != b->rank)
        return (a->rank > b->rank) - (a->rank < b->rank);
    if (a->left_n != b->left_n)
        return (a->left_n < b->left_n) - (a->left_n > b->left_n);
    return a->right_n != b->right_n ? (a->right_n < b->right_n) - (a->right_n > b->right_n)
                                    : (a->left > b->left) - (a->left < b->left);
}

static int64_t sort_merges(struct merge *m, const struct recipe *r)
{
    int64_t n = 0;

    for (uint64_t i = 0; i <= r->bpe.mask; i++) {
        const struct bpe_pair *p = &r->bpe.pairs[i];
        int32_t left = (int32_t)(p->key >> 32), right = (int32_t)(p->key & UINT32_MAX);

        if (p->made >= 0)
            m[n++] = (struct merge){p->rank, left, right, r->vocab.entries[left].key_n,
                                    r->vocab.entries[right].key_n};
    }
    qsort(m, (size_t)n, sizeof *m, by_rank);
    return n;
}

/* Pairs by their ranks. SentencePiece takes the leftmost of pairs of one score; in a file each has
 * a rank of its own, and of those with one score the longer left side goes first, so that a run of
 * one character is paired from its beginning. */
static enum status piece_merges(json_t **out, const struct recipe *r)
{
    struct merge *m = malloc(((size_t)r->bpe.count + 1) * sizeof *m);
    int64_t n;

    *out = json_array();
    if (!m)
        return fail(ST_ENOMEM, "no memory for %lld merges", (long long)r->bpe.count);
    n = sort_merges(m, r);
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(*out,
                              json_pack("[o,o]", key_of(r, m[i].left), key_of(r, m[i].right)));
    free(m);
    return ST_OK;
}

static json_t *piece_specials(const struct recipe *r)
{
    json_t *added = json_array();

    for (int32_t id = 0; id < r->vocab.size; id++)
        if (r->vocab.entries[id].special)
            json_array_append_new(added, special_token(id, key_of(r, id)));
    return added;
}

static json_t *piece_normalizer(int prefix)
{
    json_t *steps = json_array();

    if (prefix)
        json_array_append_new(steps,
                              json_pack("{s:s,s:s}", "type", "Prepend", "prepend", PIECES_MARK));
    json_array_append_new(steps, json_pack("{s:s,s:{s:s},s:s}", "type", "Replace", "pattern",
                                           "String", " ", "content", PIECES_MARK));
    return json_pack("{s:s,s:o}", "type", "Sequence", "normalizers", steps);
}

static json_t *piece_decoder(int prefix)
{
    json_t *steps =
        json_pack("[{s:s,s:{s:s},s:s},{s:s},{s:s}]", "type", "Replace", "pattern", "String",
                  PIECES_MARK, "content", " ", "type", "ByteFallback", "type", "Fuse");

    if (prefix)
        json_array_append_new(steps, json_pack("{s:s,s:s,s:i,s:i}", "type", "Strip", "content", " ",
                                               "start", 1, "stop", 0));
    return json_pack("{s:s,s:o}", "type", "Sequence", "decoders", steps);
}

/* The begin token before a text. */
static json_t *piece_frame(const struct recipe *r, int framed)
{
    json_t *name;

    if (r->before_n != 1 || !framed)
        return json_null();
    name = key_of(r, r->before[0]);
    return json_pack(
        "{s:s,s:[{s:{s:O,s:i}},{s:{s:s,s:i}}],s:[{s:{s:O,s:i}},{s:{s:s,s:i}},{s:{s:O,s:i}},"
        "{s:{s:s,s:i}}],s:{s:{s:O,s:[i],s:[o]}}}",
        "type", "TemplateProcessing", "single", "SpecialToken", "id", name, "type_id", 0,
        "Sequence", "id", "A", "type_id", 0, "pair", "SpecialToken", "id", name, "type_id", 0,
        "Sequence", "id", "A", "type_id", 0, "SpecialToken", "id", name, "type_id", 1, "Sequence",
        "id", "B", "type_id", 1, "special_tokens", json_string_value(name), "id", name, "ids",
        (int)r->before[0], "tokens", name);
}

static int has_one_space(const struct recipe *r)
{
    for (int i = 0; i < r->edits.count; i++)
        if (r->edits.list[i].kind == EDIT_ONE_SPACE)
            return 1;
    return 0;
}

static enum status write_pieces(json_t **out, const struct tokenizer *t, const struct recipe *r,
                                int framed)
{
    json_t *vocab = NULL, *merges = NULL, *model;
    enum status st = piece_vocabulary(&vocab, r);

    if (st == ST_OK)
        st = piece_merges(&merges, r);
    if (st != ST_OK) {
        json_decref(vocab);
        json_decref(merges);
        return st;
    }
    model = bpe_model(r->unknown >= 0 ? key_of(r, r->unknown) : json_null(), r->fuse_unknown,
                      r->byte_fallback, vocab, merges);
    return assemble(out, piece_specials(r), piece_normalizer(t->strip), json_null(),
                    piece_frame(r, framed), piece_decoder(t->strip), model);
}

enum status hf_write(json_t **out, const struct tokenizer *t, int framed)
{
    const struct recipe *r = t->data;

    *out = NULL;
    if (!r)
        return write_bytes(out);
    if (strcmp(t->kind, PIECES_KIND) != 0 || r->edited.count || has_one_space(r))
        return ST_OK;
    return write_pieces(out, t, r, framed);
}
