/* The model of a tokenizer.json: vocabulary and merges. */
#include "common/tokenizer/hf.h"

#include "common/tokenizer/scan.h"

#include <stdlib.h>
#include <string.h>

/* ---- bytes as characters ---- */

/* The byte that a character of byte-level tokens stands for, or -1. Bytes that print stand for
 * themselves; the others, in their order, are U+0100 and up. */
static int byte_of(int32_t code)
{
    if ((code >= 0x21 && code <= 0x7e) || (code >= 0xa1 && code <= 0xac) ||
        (code >= 0xae && code <= 0xff))
        return code;
    if (code >= 0x100 && code <= 0x120)
        return code - 0x100;
    if (code >= 0x121 && code <= 0x142)
        return code - 0x121 + 0x7f;
    return code == 0x143 ? 0xad : -1;
}

int hf_bytes_of(struct byte_list *out, const char *token, size_t n)
{
    const unsigned char *text = (const unsigned char *)token;
    int64_t from = out->count;
    int length;

    if (list_bytes_room(out, (int64_t)n) != ST_OK)
        return -1;
    for (size_t i = 0; i < n; i += (size_t)length) {
        int byte = byte_of(scan_code(&length, text, (int64_t)n, (int64_t)i));

        if (byte < 0) {
            out->count = from;
            return 0;
        }
        out->bytes[out->count++] = (char)byte;
    }
    return 1;
}

/* *key: what the model matches for that token; its bytes stand in buffer or are the token. Returns
 * 0 for a byte-level token that stands for no bytes (it is taken as it is). */
static int key_of(const char **key, int64_t *key_n, struct byte_list *buffer,
                  const struct recipe *r, const char *token, size_t n)
{
    int known = 1;

    *key = token;
    *key_n = (int64_t)n;
    if (r->byte_level) {
        buffer->count = 0;
        known = hf_bytes_of(buffer, token, n);
        if (known > 0) {
            *key = buffer->bytes;
            *key_n = buffer->count;
        }
    }
    return known;
}

/* ---- the vocabulary ---- */

static enum status put_token(struct recipe *r, struct byte_list *buffer, const char *token,
                             const json_t *id)
{
    const char *key;
    int64_t n, value = json_integer_value(id);
    int known;

    if (!json_is_integer(id))
        return fail(ST_EFORMAT, "model.vocab: the id of '%.40s' is no whole number", token);
    known = key_of(&key, &n, buffer, r, token, strlen(token));
    if (known < 0)
        return fail(ST_ENOMEM, "no memory for a token");
    if (n == 0)
        return fail(ST_EFORMAT, "model.vocab: token %lld has no text", (long long)value);
    TRY(vocab_put(&r->vocab, value, key, n));
    r->vocab.entries[value].hidden = !known;
    if (r->byte_level && known && n == 1)
        r->byte_id[(unsigned char)*key] = (int32_t)value;
    return ST_OK;
}

static enum status read_vocab(struct recipe *r, const json_t *vocab)
{
    struct byte_list buffer = {0};
    enum status st = ST_OK;
    const char *token;
    json_t *id;

    if (!json_is_object(vocab))
        return fail(ST_EFORMAT, "model.vocab is no object of tokens and ids");
    if (json_object_size(vocab) > VOCAB_MOST)
        return fail(ST_EFORMAT, "model.vocab has %zu tokens; at most %d are supported",
                    json_object_size(vocab), VOCAB_MOST);
    json_object_foreach((json_t *)vocab, token, id) if (st == ST_OK) st =
        put_token(r, &buffer, token, id);
    list_bytes_free(&buffer);
    return st;
}

/* ---- merges ---- */

/* The two parts of a merge: "a b" or ["a", "b"]. */
static enum status parts_of(const char *part[2], size_t n[2], const json_t *merge)
{
    const char *text = json_string_value(merge), *gap;

    if (json_is_array(merge) && json_array_size(merge) == 2 &&
        json_is_string(json_array_get(merge, 0)) && json_is_string(json_array_get(merge, 1))) {
        for (size_t i = 0; i < 2; i++) {
            part[i] = json_string_value(json_array_get(merge, i));
            n[i] = json_string_length(json_array_get(merge, i));
        }
        return ST_OK;
    }
    gap = text ? strchr(text, ' ') : NULL;
    if (!gap || strchr(gap + 1, ' '))
        return fail(ST_EFORMAT, "a merge is to be two tokens, as \"a b\" or [\"a\", \"b\"]");
    part[0] = text;
    n[0] = (size_t)(gap - text);
    part[1] = gap + 1;
    n[1] = strlen(gap + 1);
    return ST_OK;
}

static enum status find_part(int32_t *id, const struct recipe *r, const char *key, int64_t n,
                             const json_t *merge)
{
    char *text;

    *id = vocab_find(&r->vocab, key, n);
    if (*id >= 0)
        return ST_OK;
    text = json_dumps(merge, JSON_ENCODE_ANY | JSON_COMPACT);
    fail(ST_EFORMAT, "'%.*s' is no token of the vocabulary, in merge %.80s", (int)(n < 40 ? n : 40),
         key, text ? text : "");
    free(text);
    return ST_EFORMAT;
}

static enum status put_merge(struct recipe *r, struct byte_list buffer[2], const json_t *merge,
                             int32_t rank)
{
    const char *part[2], *key;
    size_t n[2];
    int64_t key_n;
    int32_t id[3];

    TRY(parts_of(part, n, merge));
    buffer[1].count = 0;
    for (int i = 0; i < 2; i++) {
        if (key_of(&key, &key_n, &buffer[0], r, part[i], n[i]) < 0)
            return fail(ST_ENOMEM, "no memory for a merge");
        TRY(find_part(&id[i], r, key, key_n, merge));
        TRY(list_bytes_add(&buffer[1], key, key_n));
    }
    TRY(find_part(&id[2], r, buffer[1].bytes, buffer[1].count, merge));
    if (!bpe_add(&r->bpe, id[0], id[1], id[2], rank))
        return fail(ST_EFORMAT, "the merge of tokens %d and %d stands twice in it", (int)id[0],
                    (int)id[1]);
    return ST_OK;
}

static enum status read_merges(struct recipe *r, const json_t *merges)
{
    struct byte_list buffer[2] = {{0}, {0}};
    enum status st = ST_OK;
    const json_t *merge;
    size_t i;

    if (!json_is_array(merges))
        return fail(ST_EFORMAT, "model.merges is no list");
    TRY(bpe_open(&r->bpe, (int64_t)json_array_size(merges)));
    json_array_foreach(merges, i, merge)
    {
        st = put_merge(r, buffer, merge, (int32_t)i);
        if (st != ST_OK) {
            status_prefix("model.merges[%zu]: ", i);
            break;
        }
    }
    list_bytes_free(&buffer[0]);
    list_bytes_free(&buffer[1]);
    return st;
}

/* ---- the model ---- */

/* What the model's settings may be. */
static enum status check_settings(const json_t *json)
{
    static const char *const texts[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const json_t *dropout = json_object_get(json, "dropout"), *type = json_object_get(json, "type");

    if (type && strcmp(hf_type(json), "BPE") != 0)
        return fail(ST_EFORMAT, "model.type is '%s'; BPE is supported", hf_type(json));
    if (json_is_number(dropout) && json_number_value(dropout) != 0)
        return fail(ST_EFORMAT, "model.dropout is %g: ids would be drawn at random; set it to null",
                    json_number_value(dropout));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (hf_text(json, texts[i]) && *hf_text(json, texts[i]))
            return fail(ST_EFORMAT, "model.%s is '%.20s'; only an empty one is supported", texts[i],
                        hf_text(json, texts[i]));
    return ST_OK;
}

/* The tokens <0x00> to <0xFF>. */
static void find_bytes(struct recipe *r)
{
    char name[8];

    for (int i = 0; i < 256; i++) {
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)i);
        r->byte_id[i] = vocab_find(&r->vocab, name, 6);
    }
}

enum status hf_model(struct recipe *r, const json_t *json)
{
    const json_t *vocab = json_object_get(json, "vocab");
    const char *unknown = hf_text(json, "unk_token");

    TRY(check_settings(json));
    TRY(read_vocab(r, vocab));
    if (unknown) {
        const json_t *id = json_object_get(vocab, unknown);

        if (!id)
            return fail(ST_EFORMAT, "model.unk_token '%.40s' is no token of the vocabulary",
                        unknown);
        r->unknown = (int32_t)json_integer_value(id);
    }
    r->fuse_unknown = hf_flag(json, "fuse_unk", 0);
    r->whole_words = hf_flag(json, "ignore_merges", 0);
    r->byte_fallback = hf_flag(json, "byte_fallback", 0);
    TRY(vocab_index(&r->vocab));
    if (r->byte_fallback && !r->byte_level)
        find_bytes(r);
    return read_merges(r, json_object_get(json, "merges"));
}
