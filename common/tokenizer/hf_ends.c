/* decoder and post_processor of a tokenizer.json, and its special tokens. */
#include "common/tokenizer/file.h"
#include "common/tokenizer/hf.h"
#include "common/tokenizer/pieces.h"

#include <stdlib.h>
#include <string.h>

/* ---- decoder ---- */

/* What a decoder does to the text of tokens. */
struct texts {
    char from[8], to[8];
    int from_n, to_n;
    int bytes; /* <0x0A> is a byte */
    int strip;
};

static enum status not_supported(const json_t *json)
{
    return fail(ST_EFORMAT,
                "a decoder of type '%.40s' with these members is not supported; these are: "
                "ByteLevel, Metaspace, and a Sequence of Replace, ByteFallback, Fuse, Strip",
                hf_type(json));
}

static enum status replaced(struct texts *x, const json_t *json, const char *from, const char *to)
{
    if (!from || !to || !*from || strlen(from) > sizeof x->from || strlen(to) > sizeof x->to ||
        x->from_n > 0)
        return not_supported(json);
    x->from_n = (int)strlen(from);
    x->to_n = (int)strlen(to);
    memcpy(x->from, from, (size_t)x->from_n);
    memcpy(x->to, to, (size_t)x->to_n);
    return ST_OK;
}

static enum status decoder(struct texts *x, const json_t *json, int depth)
{
    const json_t *list = json_object_get(json, "decoders"), *each;
    const char *type = hf_type(json), *scheme = hf_text(json, "prepend_scheme");
    size_t i;

    if (strcmp(type, "Replace") == 0)
        return replaced(x, json, hf_text(json_object_get(json, "pattern"), "String"),
                        hf_text(json, "content"));
    if (strcmp(type, "Metaspace") == 0) {
        x->strip = scheme ? strcmp(scheme, "never") != 0 : hf_flag(json, "add_prefix_space", 1);
        return replaced(x, json, hf_text(json, "replacement"), " ");
    }
    if (strcmp(type, "ByteFallback") == 0)
        return x->bytes = 1, ST_OK;
    if (strcmp(type, "Fuse") == 0)
        return ST_OK;
    if (strcmp(type, "Strip") == 0 && hf_text(json, "content") &&
        strcmp(hf_text(json, "content"), " ") == 0 &&
        json_integer_value(json_object_get(json, "stop")) == 0) {
        x->strip = (int)json_integer_value(json_object_get(json, "start"));
        return x->strip >= 0 && x->strip < 1000 ? ST_OK : not_supported(json);
    }
    if (strcmp(type, "Sequence") != 0 || !json_is_array(list) || depth > 4)
        return not_supported(json);
    json_array_foreach(list, i, each) TRY(decoder(x, each, depth + 1));
    return ST_OK;
}

static enum status set_text(struct recipe *r, int32_t id, const struct texts *x,
                            struct byte_list *buffer)
{
    struct edits e = {.count = 1,
                      .list = {{.kind = EDIT_REPLACE, .from_n = x->from_n, .to_n = x->to_n}}};
    const unsigned char *text = (const unsigned char *)vocab_key_of(&r->vocab, id);
    int64_t n = r->vocab.entries[id].key_n;
    int byte = x->bytes ? pieces_byte((const char *)text, n) : -1;
    unsigned char one = (unsigned char)byte;

    if (byte >= 0)
        return vocab_text(&r->vocab, id, &one, 1);
    if (x->from_n == 0 || !memmem(text, (size_t)n, x->from, (size_t)x->from_n))
        return ST_OK;
    memcpy(e.list[0].from, x->from, sizeof x->from);
    memcpy(e.list[0].to, x->to, sizeof x->to);
    TRY(edit_run(&text, &n, &e, buffer, 1));
    return vocab_text(&r->vocab, id, text, n);
}

enum status hf_decoder(struct tokenizer *t, struct recipe *r, const json_t *json)
{
    struct byte_list buffer[2] = {{0}, {0}};
    struct texts x = {0};
    enum status st = ST_OK;

    if (r->byte_level)
        return strcmp(hf_type(json), "ByteLevel") == 0 ? ST_OK
                                                       : fail(ST_EFORMAT,
                                                              "a ByteLevel pre_tokenizer needs a "
                                                              "decoder of type ByteLevel; it has "
                                                              "'%.40s'",
                                                              hf_type(json));
    TRY(decoder(&x, json, 0));
    for (int32_t id = 0; st == ST_OK && id < r->vocab.size; id++)
        if (r->vocab.entries[id].present)
            st = set_text(r, id, &x, buffer);
    list_bytes_free(&buffer[0]);
    list_bytes_free(&buffer[1]);
    t->strip = x.strip;
    return st;
}

/* ---- post_processor ---- */

static enum status frame_id(struct recipe *r, int after, const json_t *id)
{
    int *n = after ? &r->after_n : &r->before_n;
    json_int_t value = json_integer_value(id);

    if (!json_is_integer(id) || value < 0 || value >= r->vocab.size ||
        !r->vocab.entries[value].present)
        return fail(ST_EFORMAT,
                    "post_processor: an id of a special token is not in the vocabulary");
    if (*n == FRAME)
        return fail(ST_EFORMAT, "post_processor puts more than %d tokens around a text", FRAME);
    (after ? r->after : r->before)[(*n)++] = (int32_t)value;
    return ST_OK;
}

static enum status template_ids(struct recipe *r, const json_t *json)
{
    const json_t *known = json_object_get(json, "special_tokens"), *each, *id;
    int after = 0;
    size_t i, j;

    json_array_foreach(json_object_get(json, "single"), i, each)
    {
        const char *name = hf_text(json_object_get(each, "SpecialToken"), "id");
        const json_t *ids = json_object_get(name ? json_object_get(known, name) : NULL, "ids");

        if (json_object_get(each, "Sequence")) {
            after = 1;
            continue;
        }
        if (!json_is_array(ids))
            return fail(ST_EFORMAT, "post_processor: special token '%.40s' has no ids",
                        name ? name : "");
        json_array_foreach(ids, j, id) TRY(frame_id(r, after, id));
    }
    return after ? ST_OK : fail(ST_EFORMAT, "post_processor: no Sequence in its single template");
}

static enum status post_processor(struct recipe *r, const json_t *json, int depth)
{
    const json_t *list = json_object_get(json, "processors"), *each;
    const char *type = hf_type(json);
    size_t i;

    if (strcmp(type, "ByteLevel") == 0)
        return ST_OK;
    if (strcmp(type, "TemplateProcessing") == 0)
        return template_ids(r, json);
    if (strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0) {
        TRY(frame_id(r, 0, json_array_get(json_object_get(json, "cls"), 1)));
        return frame_id(r, 1, json_array_get(json_object_get(json, "sep"), 1));
    }
    if (strcmp(type, "Sequence") != 0 || !json_is_array(list) || depth > 4)
        return fail(ST_EFORMAT,
                    "a post_processor of type '%.40s' is not supported; these are: ByteLevel, "
                    "TemplateProcessing, RobertaProcessing, BertProcessing, Sequence",
                    type);
    json_array_foreach(list, i, each) TRY(post_processor(r, each, depth + 1));
    return ST_OK;
}

enum status hf_post_processor(struct recipe *r, const json_t *json)
{
    return json && !json_is_null(json) ? post_processor(r, json, 0) : ST_OK;
}
