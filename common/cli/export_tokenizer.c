#include "common/cli/export_tokenizer.h"

#include "common/base/log.h"
#include "common/tokenizer/file.h"
#include "common/tokenizer/hf_write.h"
#include "common/tokenizer/pieces.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>

static int is_none(const char *tokenizer)
{
    return !tokenizer[0] || !strcmp(tokenizer, "none");
}

enum status export_ids(struct hf_ids *ids, const char *tokenizer)
{
    struct tokenizer t;

    if (is_none(tokenizer))
        return ST_OK;
    if (tokenizer_open(&t, tokenizer) != ST_OK) {
        status_prefix("the model's tokenizer, which --tokenizer FILE replaces and --tokenizer none "
                      "leaves out: ");
        return ST_ECONFIG;
    }
    if (ids->begin < 0 && ids->end < 0 && ids->pad < 0)
        *ids = (struct hf_ids){t.begin, t.end, t.pad};
    tokenizer_close(&t);
    return ST_OK;
}

/* ---- files ---- */

static enum status dump(const struct outlet *o, const char *name, json_t *root)
{
    char path[FOLDER_PATH];
    enum status st, end;
    FILE *out;

    if (!root)
        return fail(ST_ENOMEM, "no memory for %s", name);
    TRY(outlet_path(path, o, name));
    out = fopen(path, "w");
    if (!out)
        return fail(ST_EIO, "cannot write %s: %s", path, strerror(errno));
    st = json_dumpf(root, out, JSON_INDENT(1) | JSON_ENCODE_ANY) || fputc('\n', out) < 0
             ? fail(ST_EIO, "cannot write %s: %s", path, strerror(errno))
             : ST_OK;
    end = folder_close(out, path);
    return st == ST_OK ? end : st;
}

/* A tokenizer.json made of what t is; said where none can be. */
static enum status write_made(const struct outlet *o, const struct tokenizer *t, int framed)
{
    json_t *root;
    enum status st;

    TRY(hf_write(&root, t, framed));
    if (!root) {
        log_warn("no tokenizer.json is made of %s: it has user-defined symbols or leaves spaces "
                 "out; transformers finds no tokenizer, or needs sentencepiece for it",
                 t->name);
        return ST_OK;
    }
    st = dump(o, "tokenizer.json", root);
    json_decref(root);
    return st;
}

/* The name of a special token, where there is one, as a key of the configuration. */
static void add_name(json_t *root, const char *key, const struct tokenizer *t, int64_t id)
{
    struct token_piece piece;

    if (id >= 0 && id < t->vocab && tokenizer_piece(&piece, t, (int32_t)id) == ST_OK)
        json_object_set_new(root, key, json_stringn(piece.bytes, (size_t)piece.n));
}

/* Without it AutoTokenizer would guess the class from the model's. */
static enum status write_tokenizer_config(const struct outlet *o, const struct tokenizer *t,
                                          const struct hf_ids *ids, int framed)
{
    enum status st;
    json_t *root = json_pack("{s:s,s:b,s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                             "clean_up_tokenization_spaces", 0, "add_bos_token", framed);
    if (root) {
        add_name(root, "bos_token", t, ids->begin);
        add_name(root, "eos_token", t, ids->end);
        add_name(root, "pad_token", t, ids->pad);
    }
    st = dump(o, "tokenizer_config.json", root);
    json_decref(root);
    return st;
}

/* The folder of a path. */
static enum status folder_of(char folder[FOLDER_PATH], const char *path)
{
    const char *slash = strrchr(path, '/');
    int n = slash ? (int)(slash - path) : 1;

    if (n >= FOLDER_PATH)
        return fail(ST_EIO, "the path %.64s... is too long", path);
    snprintf(folder, FOLDER_PATH, "%.*s", n ? n : 1, slash ? path : ".");
    return ST_OK;
}

/* The name by which transformers finds the file of t. NULL: it reads no such file. */
static const char *name_of(const struct tokenizer *t)
{
    size_t n = strlen(t->name);

    if (strcmp(t->kind, PIECES_KIND) != 0)
        return "tokenizer.json";
    return n > 6 && !strcmp(t->name + n - 6, ".model") ? "tokenizer.model" : NULL;
}

/* The files of t as they are: all of a folder when it has one of the usual names, else its own. */
static enum status copy_files(struct outlet *o, const struct tokenizer *t)
{
    char folder[FOLDER_PATH];
    const char *slash = strrchr(t->name, '/'), *name = slash ? slash + 1 : t->name;
    int n;

    if (!t->data) /* bytes */
        return ST_OK;
    if (file_is_folder(t->name))
        return outlet_copy_tokenizer(o, t->name, &n);
    if (strcmp(name, "tokenizer.json") != 0 && strcmp(name, "tokenizer.model") != 0)
        return name_of(t) ? outlet_copy_as(o, t->name, name_of(t)) : ST_OK;
    TRY(folder_of(folder, t->name));
    return outlet_copy_tokenizer(o, folder, &n);
}

static enum status put_tokenizer(struct outlet *o, const struct tokenizer *t,
                                 const struct hf_ids *ids, int framed)
{
    char path[FOLDER_PATH];

    TRY(copy_files(o, t));
    TRY(outlet_path(path, o, "tokenizer.json"));
    if (!file_exists(path))
        TRY(write_made(o, t, framed));
    TRY(outlet_path(path, o, "tokenizer_config.json"));
    return file_exists(path) ? ST_OK : write_tokenizer_config(o, t, ids, framed);
}

enum status export_tokenizer(struct outlet *o, const char *tokenizer, const struct hf_ids *ids,
                             int framed)
{
    struct tokenizer t;
    enum status st;

    if (is_none(tokenizer))
        return ST_OK;
    TRY(tokenizer_open(&t, tokenizer));
    st = put_tokenizer(o, &t, ids, framed);
    tokenizer_close(&t);
    return st;
}
