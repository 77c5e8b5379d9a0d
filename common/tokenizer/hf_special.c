/* Which tokens begin and end a document, and which one pads. A tokenizer.json does not say. */
#include "common/tokenizer/file.h"
#include "common/tokenizer/hf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names that special tokens have in the tokenizers of our time; the first one found counts. */
static const char *const begins[] = {
    "<s>", "<|begin_of_text|>", "<bos>", "<|startoftext|>", "<|endoftext|>", "[BOS]", NULL};
static const char *const ends[] = {
    "</s>", "<|end_of_text|>", "<|endoftext|>", "<eos>", "[EOS]", "<|im_end|>", NULL};
static const char *const pads[] = {"<pad>", "<|pad|>", "<|padding|>", "[PAD]", NULL};

static int32_t id_of(const struct recipe *r, const char *name)
{
    const struct added *lists[] = {&r->raw, &r->edited};
    size_t n = strlen(name);

    for (int l = 0; l < 2; l++)
        for (int32_t i = 0; i < lists[l]->count; i++) {
            const struct added_token *t = &lists[l]->tokens[i];

            if ((size_t)t->n == n && memcmp(t->text, name, n) == 0)
                return t->id;
        }
    return vocab_find(&r->vocab, name, (int64_t)n);
}

static int32_t usual(const struct recipe *r, const char *const *names)
{
    for (; *names; names++) {
        int32_t id = id_of(r, *names);

        if (id >= 0 && r->vocab.entries[id].special)
            return id;
    }
    return -1;
}

/* The token that the file names under that key: a text, or an object with its content. */
static enum status named(int32_t *id, const struct recipe *r, const json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);
    const char *name = json_is_object(value) ? hf_text(value, "content") : json_string_value(value);

    if (!value)
        return ST_OK;
    *id = -1;
    if (json_is_null(value))
        return ST_OK;
    *id = name ? id_of(r, name) : -1;
    if (*id < 0)
        return fail(ST_EFORMAT, "tokenizer_config.json: %s '%.40s' is no token of the tokenizer",
                    key, name ? name : "");
    return ST_OK;
}

static enum status read_config(struct tokenizer *t, const struct recipe *r, const char *path)
{
    json_error_t error;
    json_t *json = json_load_file(path, 0, &error);
    enum status st;

    if (!json)
        return fail(ST_EFORMAT, "tokenizer_config.json beside it, line %d: %s", error.line,
                    error.text);
    st = named(&t->begin, r, json, "bos_token");
    if (st == ST_OK)
        st = named(&t->end, r, json, "eos_token");
    if (st == ST_OK)
        st = named(&t->pad, r, json, "pad_token");
    json_decref(json);
    return st;
}

enum status hf_special(struct tokenizer *t, const struct recipe *r, const char *path)
{
    static const char name[] = "tokenizer_config.json";
    const char *slash = strrchr(path, '/');
    size_t folder = slash ? (size_t)(slash + 1 - path) : 0;
    char *beside = malloc(folder + sizeof name);
    enum status st = ST_OK;

    if (!beside)
        return fail(ST_ENOMEM, "no memory for a path");
    memcpy(beside, path, folder);
    memcpy(beside + folder, name, sizeof name);
    t->begin = usual(r, begins);
    t->end = usual(r, ends);
    t->pad = usual(r, pads);
    if (file_exists(beside))
        st = read_config(t, r, beside);
    free(beside);
    return st;
}
