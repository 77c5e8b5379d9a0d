#include "common/cli/export_tokenizer.h"

#include "common/base/log.h"
#include "common/tokenizer/tokenizer.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

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

/* An added token of the byte tokenizer. */
static json_t *special_token(int id, const char *name)
{
    return json_pack("{s:i,s:s,s:b,s:b,s:b,s:b,s:b}", "id", id, "content", name, "single_word", 0,
                     "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
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
static json_t *byte_tokenizer(void)
{
    json_t *added = json_pack("[o,o,o]", special_token(TOKENIZER_BYTE_BEGIN, "<begin>"),
                              special_token(TOKENIZER_BYTE_END, "<end>"),
                              special_token(TOKENIZER_BYTE_PAD, "<pad>"));
    json_t *level = json_pack("{s:s,s:b,s:b,s:b}", "type", "ByteLevel", "add_prefix_space", 0,
                              "trim_offsets", 1, "use_regex", 0);
    json_t *model =
        json_pack("{s:s,s:n,s:n,s:n,s:n,s:b,s:b,s:o,s:[]}", "type", "BPE", "dropout", "unk_token",
                  "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0, "byte_fallback",
                  0, "vocab", byte_vocabulary(), "merges");
    json_t *decoder = json_deep_copy(level);

    return json_pack("{s:s,s:n,s:n,s:o,s:n,s:o,s:n,s:o,s:o}", "version", "1.0", "truncation",
                     "padding", "added_tokens", added, "normalizer", "pre_tokenizer", level,
                     "post_processor", "decoder", decoder, "model", model);
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

static enum status write_bytes(const struct outlet *o)
{
    json_t *root = byte_tokenizer();
    enum status st = dump(o, "tokenizer.json", root);

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
static enum status write_tokenizer_config(const struct outlet *o, const char *tokenizer,
                                          const struct hf_ids *ids)
{
    json_t *root;
    struct tokenizer t;
    enum status st;

    TRY(tokenizer_open(&t, tokenizer));
    root = json_pack("{s:s,s:b,s:b}", "tokenizer_class", "PreTrainedTokenizerFast",
                     "clean_up_tokenization_spaces", 0, "add_bos_token", 0);
    if (root) {
        add_name(root, "bos_token", &t, ids->begin);
        add_name(root, "eos_token", &t, ids->end);
        add_name(root, "pad_token", &t, ids->pad);
    }
    tokenizer_close(&t);
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

/* Nonzero for a file under the name by which transformers finds it. */
static int is_known(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

    return !strcmp(name, "tokenizer.json") || !strcmp(name, "tokenizer.model");
}

enum status export_tokenizer(struct outlet *o, const char *tokenizer, const struct hf_ids *ids)
{
    char folder[FOLDER_PATH], path[FOLDER_PATH];
    int n;

    if (is_none(tokenizer))
        return ST_OK;
    if (!strcmp(tokenizer, "bytes")) {
        TRY(write_bytes(o));
    } else if (is_known(tokenizer)) {
        TRY(folder_of(folder, tokenizer));
        TRY(outlet_copy_tokenizer(o, folder, &n));
    } else {
        log_warn("transformers does not read the tokenizer %s; the folder is without one",
                 tokenizer);
        return ST_OK;
    }
    TRY(outlet_path(path, o, "tokenizer_config.json"));
    return access(path, F_OK) ? write_tokenizer_config(o, tokenizer, ids) : ST_OK;
}
