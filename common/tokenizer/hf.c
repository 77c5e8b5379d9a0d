#include "common/tokenizer/hf.h"

#include <stdlib.h>
#include <string.h>

const char *hf_type(const json_t *json)
{
    const char *type = hf_text(json, "type");

    return type ? type : "";
}

const char *hf_text(const json_t *json, const char *name)
{
    return json_string_value(json_object_get(json, name));
}

int hf_flag(const json_t *json, const char *name, int otherwise)
{
    const json_t *value = json_object_get(json, name);

    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

/* ---- added tokens ---- */

static enum status one_added(struct recipe *r, const json_t *json, const json_t *vocab)
{
    const json_t *id = json_object_get(json, "id"), *content = json_object_get(json, "content");
    const json_t *known;
    struct added_token t = {.special = hf_flag(json, "special", 0),
                            .single_word = hf_flag(json, "single_word", 0),
                            .lstrip = hf_flag(json, "lstrip", 0),
                            .rstrip = hf_flag(json, "rstrip", 0)};

    if (!json_is_integer(id) || !json_is_string(content))
        return fail(ST_EFORMAT, "an added token needs a whole number as id and a text as content");
    if (json_integer_value(id) < 0 || json_integer_value(id) >= VOCAB_MOST)
        return fail(ST_EFORMAT,
                    "added token '%.40s' has id %" JSON_INTEGER_FORMAT "; ids go from 0 to %d",
                    json_string_value(content), json_integer_value(id), VOCAB_MOST - 1);
    t.id = (int32_t)json_integer_value(id);
    t.n = (int32_t)json_string_length(content);
    t.text = (char *)json_string_value(content);
    known = json_object_get(vocab, t.text);
    if (known && json_integer_value(known) != t.id)
        return fail(ST_EFORMAT,
                    "'%.40s' is added token %d and token %" JSON_INTEGER_FORMAT
                    " of the vocabulary",
                    t.text, (int)t.id, json_integer_value(known));
    if (!known && t.id < r->vocab.size && r->vocab.entries[t.id].present)
        return fail(ST_EFORMAT, "id %d is given to added token '%.40s' and to '%.*s'", (int)t.id,
                    t.text, (int)r->vocab.entries[t.id].key_n, vocab_key_of(&r->vocab, t.id));
    return recipe_added(r, &t, hf_flag(json, "normalized", !t.special));
}

enum status hf_added(struct recipe *r, const json_t *json, const json_t *vocab)
{
    const json_t *token;
    size_t i;

    if (json && !json_is_null(json) && !json_is_array(json))
        return fail(ST_EFORMAT, "added_tokens is no list");
    json_array_foreach(json, i, token)
    {
        enum status st = one_added(r, token, vocab);

        if (st != ST_OK) {
            status_prefix("added_tokens[%zu]: ", i);
            return st;
        }
    }
    return ST_OK;
}

/* ---- the file ---- */

static enum status parts(struct tokenizer *t, struct recipe *r, const json_t *root)
{
    const json_t *model = json_object_get(root, "model");

    if (!json_is_object(root) || !json_is_object(model))
        return fail(ST_EFORMAT, "no object \"model\" in it; it is no tokenizer.json");
    TRY(hf_normalizer(r, json_object_get(root, "normalizer")));
    TRY(hf_pre_tokenizer(r, json_object_get(root, "pre_tokenizer")));
    TRY(hf_model(r, model));
    TRY(hf_decoder(t, r, json_object_get(root, "decoder")));
    TRY(hf_added(r, json_object_get(root, "added_tokens"), json_object_get(model, "vocab")));
    return hf_post_processor(r, json_object_get(root, "post_processor"));
}

enum status hf_open(struct tokenizer *t, const struct byte_list *content, const char *path)
{
    json_error_t error;
    json_t *root = json_loadb(content->bytes, (size_t)content->count,
                              JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    struct recipe *r = NULL;
    enum status st;

    if (!root)
        return fail(ST_EFORMAT, "line %d, column %d: %s", error.line, error.column, error.text);
    st = recipe_open(&r);
    if (st == ST_OK)
        st = parts(t, r, root);
    json_decref(root);
    if (st == ST_OK)
        st = hf_special(t, r, path);
    if (st == ST_OK)
        st = recipe_finish(t, r, r->byte_level ? "byte-level BPE" : "BPE of characters");
    if (st != ST_OK)
        recipe_close(r);
    return st;
}
