/* llama2.c's model file, version 0: seven int32 (width, FFN, blocks, heads, heads of keys,
 * vocabulary, positions), then float32 matrices kind by kind, all blocks of one kind together. */
#include "common/checkpoint/source_table.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WORDS = 7, HEADER = WORDS * 4, MAGIC_LATER = 0x616b3432 };

/* The header, and whether the head is the embedding. */
struct bin {
    int64_t width, ffn, layers, heads, kv_heads, vocab, seq;
    int tied;
};

/* ---- the header ---- */

static enum status check_sizes(const struct bin *b, const char *path)
{
    const int64_t value[] = {b->width, b->ffn, b->layers, b->heads, b->kv_heads, b->vocab, b->seq};
    static const int64_t most[] = {1 << 17, 1 << 19, 4096, 4096, 4096, 1 << 24, 1 << 22};
    static const char *const name[WORDS] = {"width",         "FFN units",  "blocks",   "heads",
                                            "heads of keys", "vocabulary", "positions"};

    for (int i = 0; i < WORDS; i++)
        if (value[i] < 1 || value[i] > most[i])
            return fail(ST_EFORMAT,
                        "%s: a model with %" PRId64 " %s; from 1 to %" PRId64
                        " are possible (is it a model of llama2.c, version 0?)",
                        path, value[i], name[i], most[i]);
    if (b->width % b->heads || b->width / b->heads % 2 || b->heads % b->kv_heads)
        return fail(ST_EFORMAT,
                    "%s: width %" PRId64 ", %" PRId64 " heads and %" PRId64
                    " heads of keys do not go together",
                    path, b->width, b->heads, b->kv_heads);
    return ST_OK;
}

static enum status parse(struct bin *b, const char *path, const int32_t word[WORDS])
{
    if (word[0] == MAGIC_LATER)
        return fail(ST_EFORMAT,
                    "%s is of a later version of llama2.c's layout; version 0 is read "
                    "(export.py --version 0)",
                    path);
    *b = (struct bin){word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[5] > 0};
    b->vocab = b->tied ? b->vocab : -b->vocab;
    return check_sizes(b, path);
}

static enum status read_header(struct bin *b, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int32_t word[WORDS];
    ssize_t got;

    if (fd < 0)
        return fail(ST_EIO, "cannot read %s: %s", path, strerror(errno));
    got = read(fd, word, sizeof word);
    close(fd);
    if (got != HEADER)
        return fail(ST_EFORMAT, "%s is no model of llama2.c: it has not the %d bytes of a header",
                    path, HEADER);
    return parse(b, path, word);
}

enum status source_bin_config(struct config *cfg, const char *path)
{
    struct config_model *m = &cfg->model;
    struct bin b;

    TRY(read_header(&b, path));
    m->layer = LAYER_FULL;
    m->outer_silu = SILU_ON;
    m->rank = 0;
    m->width = b.width;
    m->ffn = b.ffn;
    m->layers = b.layers;
    m->heads = b.heads;
    m->kv_heads = b.kv_heads;
    m->vocab = b.vocab;
    m->tied = b.tied;
    m->qkv_bias = false;
    m->norm_eps = 1e-5; /* what llama2.c computes with */
    m->rope_theta = 10000.0;
    cfg->train.seq = b.seq;
    return ST_OK;
}

/* ---- the tensors ---- */

/* Where the next tensor lies; with s NULL only counts. */
struct cursor {
    struct source *s;
    const char *path;
    size_t at;
};

/* One matrix [rows, cols] (a vector: rows 0). */
static enum status take(struct cursor *c, const char *name, int64_t rows, int64_t cols,
                        int64_t head_dim)
{
    int64_t shape[2] = {rows ? rows : cols, cols}, count = (rows ? rows : 1) * cols;
    struct safetensors_tensor raw = {.name = name,
                                     .type = SAFETENSORS_F32,
                                     .rank = rows ? 2 : 1,
                                     .shape = shape,
                                     .count = count,
                                     .begin = c->at,
                                     .end = c->at + (size_t)count * sizeof(float)};

    c->at = raw.end;
    if (!c->s)
        return ST_OK;
    raw.data = (const char *)c->s->map + raw.begin;
    return source_add(c->s, name, &raw, head_dim ? SOURCE_HALVED : SOURCE_PLAIN, head_dim, c->path);
}

/* One kind of matrix, of all blocks. */
static enum status take_kind(struct cursor *c, const struct bin *b, const char *kind, int64_t rows,
                             int64_t cols, int64_t head_dim)
{
    char name[96];

    for (int64_t i = 0; i < b->layers; i++) {
        snprintf(name, sizeof name, "model.layers.%" PRId64 ".%s.weight", i, kind);
        TRY(take(c, name, rows, cols, head_dim));
    }
    return ST_OK;
}

static enum status take_all(struct cursor *c, const struct bin *b)
{
    int64_t d = b->width, hd = d / b->heads, kv = b->kv_heads * hd;

    TRY(take(c, "model.embed_tokens.weight", b->vocab, d, 0));
    TRY(take_kind(c, b, "input_layernorm", 0, d, 0));
    TRY(take_kind(c, b, "self_attn.q_proj", d, d, hd));
    TRY(take_kind(c, b, "self_attn.k_proj", kv, d, hd));
    TRY(take_kind(c, b, "self_attn.v_proj", kv, d, 0));
    TRY(take_kind(c, b, "self_attn.o_proj", d, d, 0));
    TRY(take_kind(c, b, "post_attention_layernorm", 0, d, 0));
    TRY(take_kind(c, b, "mlp.gate_proj", b->ffn, d, 0));
    TRY(take_kind(c, b, "mlp.down_proj", d, b->ffn, 0));
    TRY(take_kind(c, b, "mlp.up_proj", b->ffn, d, 0));
    TRY(take(c, "model.norm.weight", 0, d, 0));
    c->at += (size_t)(b->seq * hd) * sizeof(float); /* tables of rotary positions, not used */
    return b->tied ? ST_OK : take(c, "lm_head.weight", b->vocab, d, 0);
}

static enum status map_file(struct source *s, const char *path, size_t want)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    enum status st = ST_OK;

    if (fd < 0 || fstat(fd, &info))
        st = fail(ST_EIO, "cannot read %s: %s", path, strerror(errno));
    else if ((uint64_t)info.st_size != want)
        st = fail(ST_EFORMAT, "%s has %lld bytes; the sizes in its header take %zu%s", path,
                  (long long)info.st_size, want,
                  (uint64_t)info.st_size < want ? ": it was cut off" : "");
    if (st == ST_OK) {
        s->map = mmap(NULL, want, PROT_READ, MAP_PRIVATE, fd, 0);
        s->map_size = want;
        if (s->map == MAP_FAILED) {
            s->map = NULL;
            st = fail(ST_EIO, "%s cannot be mapped: %s", path, strerror(errno));
        }
    }
    if (fd >= 0)
        close(fd);
    return st;
}

enum status source_bin_open(struct source *s, const char *path)
{
    struct cursor count = {.at = HEADER}, c = {.s = s, .path = path, .at = HEADER};
    struct bin b;

    TRY(read_header(&b, path));
    TRY(take_all(&count, &b));
    TRY(map_file(s, path, count.at));
    return take_all(&c, &b);
}
