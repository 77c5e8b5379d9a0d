#include "common/data/corpus_shards.h"

#include "common/base/hash.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int is_pattern(const char *path)
{
    return strpbrk(path, "*?[") && access(path, F_OK) != 0;
}

int corpus_shards_named(const char *path)
{
    return shard_is(path) || is_pattern(path);
}

struct corpus_shards *corpus_shards_share(struct corpus_shards *s)
{
    s->users++;
    return s;
}

void corpus_shards_release(struct corpus_shards *s)
{
    if (!s || --s->users > 0)
        return;
    for (int i = 0; i < s->n; i++)
        shard_close(&s->shard[i]);
    free(s->shard);
    free(s->tokens);
    free(s->documents);
    free(s);
}

/* ---- opening ---- */

static struct corpus_shards *make_room(int n)
{
    struct corpus_shards *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->users = 1;
    s->shard = calloc((size_t)n, sizeof *s->shard);
    s->tokens = calloc((size_t)n + 1, sizeof *s->tokens);
    s->documents = calloc((size_t)n + 1, sizeof *s->documents);
    if (s->shard && s->tokens && s->documents)
        return s;
    corpus_shards_release(s);
    return NULL;
}

static enum status open_each(struct corpus_shards *s, char *const *names, int n)
{
    for (int i = 0; i < n; i++) {
        const struct shard *shard = &s->shard[s->n];

        TRY(shard_open(&s->shard[s->n], names[i]));
        s->tokens[s->n + 1] = s->tokens[s->n] + shard->count;
        s->documents[s->n + 1] = s->documents[s->n] + shard->documents;
        s->n++;
    }
    return ST_OK;
}

/* Takes the borders of documents as known when every shard knows them. */
static void describe(struct corpus *c)
{
    const struct corpus_shards *s = c->shards;

    c->separated = 1;
    for (int i = 0; i < s->n; i++) {
        uint64_t h = shard_hash(&s->shard[i]);

        c->separated &= s->shard[i].format == SHARD_MEGATRON;
        c->hash = hash_more(c->hash, &h, sizeof h);
        c->file_bytes += s->shard[i].data.size + s->shard[i].index_map.size;
    }
    c->count = s->tokens[s->n];
    c->documents = c->separated ? s->documents[s->n] : 1;
}

static enum status open_names(struct corpus *c, const char *pattern, const struct tokenizer *t,
                              char *const *names, int n)
{
    enum status st;

    *c = (struct corpus){.vocab = t->vocab, .pad = t->pad, .path = strdup(pattern)};
    c->shards = c->path ? make_room(n) : NULL;
    if (c->shards)
        st = open_each(c->shards, names, n);
    else
        st = fail(ST_ENOMEM, "no memory for %d shards of %s", n, pattern);
    if (st == ST_OK) {
        describe(c);
        if (c->count == 0)
            st = fail(ST_EFORMAT, "%s holds no token", pattern);
    }
    if (st != ST_OK)
        corpus_close(c);
    return st;
}

static int is_index(const char *name)
{
    size_t n = strlen(name);

    return n > 4 && !strcmp(name + n - 4, ".idx");
}

/* Drops the indices from a list of names; returns how many names stay. */
static int drop_indices(char **names, size_t n)
{
    int kept = 0;

    for (size_t i = 0; i < n; i++)
        if (!is_index(names[i])) {
            char *name = names[i];

            names[i] = names[kept];
            names[kept++] = name;
        }
    return kept;
}

enum status corpus_open_shards(struct corpus *c, const char *pattern, const struct tokenizer *t)
{
    char *one[1] = {strdup(pattern)};
    glob_t found = {0};
    enum status st;
    int n = 0;

    if (!is_pattern(pattern)) {
        st = one[0] ? open_names(c, pattern, t, one, 1)
                    : fail(ST_ENOMEM, "no memory to open %s", pattern);
    } else {
        if (glob(pattern, 0, NULL, &found) == 0)
            n = drop_indices(found.gl_pathv, found.gl_pathc);
        st = n ? open_names(c, pattern, t, found.gl_pathv, n)
               : fail(ST_EIO, "no file matches %s; name token shards, such as data/web-*.bin",
                      pattern);
        globfree(&found);
    }
    free(one[0]);
    return st;
}

/* ---- reading ---- */

/* The shard that item `at` lies in, by the n + 1 borders; the last one for the end. */
static int find(const int64_t *border, int n, int64_t at)
{
    int low = 0, high = n - 1;

    while (low < high) {
        int middle = (low + high) / 2;

        if (border[middle + 1] > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

int64_t corpus_shards_start(const struct corpus *c, int64_t j)
{
    const struct corpus_shards *s = c->shards;
    int64_t document = c->first_document + j, token;
    int i;

    if (j == 0)
        return 0;
    if (j == c->documents)
        return c->count;
    i = find(s->documents, s->n, document);
    token = s->tokens[i] + shard_document(&s->shard[i], document - s->documents[i]);
    return token - c->first_token;
}

void corpus_shards_read(int32_t *out, const struct corpus *c, int64_t first, int64_t n)
{
    const struct corpus_shards *s = c->shards;
    int64_t at = c->first_token + first;

    for (int i = find(s->tokens, s->n, at); n > 0; i++) {
        int64_t left = s->tokens[i + 1] - at, some = n < left ? n : left;

        shard_read(out, &s->shard[i], at - s->tokens[i], some);
        out += some;
        at += some;
        n -= some;
    }
}

enum status corpus_check_ids(const struct corpus *c, int64_t vocab, int part, int parts)
{
    const struct corpus_shards *s = c->shards;

    for (int i = 0; s && i < s->n; i++) {
        int64_t share = s->shard[i].count / parts + 1, first = part * share;
        int64_t left = s->shard[i].count - first;

        if (left > 0)
            TRY(shard_check_ids(&s->shard[i], vocab, first, left < share ? left : share));
    }
    return ST_OK;
}
