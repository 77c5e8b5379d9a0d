#include "validation/cases.h"

#include "common/base/hash.h"
#include "common/base/rng.h"
#include "common/data/loader.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MOST = 96 };

int case_split(const char **argv, int room, char *words)
{
    int n = 0;

    for (char *save = NULL, *w = strtok_r(words, " ", &save); w && n < room;
         w = strtok_r(NULL, " ", &save))
        argv[n++] = w;
    return n;
}

/* Nonzero when word number i names a key that a later one names too. */
static int overridden(const char *const *word, int n, int i)
{
    size_t name = strcspn(word[i], "=") + 1;

    for (int j = i + 1; j < n; j++)
        if (!strncmp(word[i], word[j], name))
            return 1;
    return 0;
}

enum status case_words(char *out, const char *words)
{
    char copy[CASE_WORDS];
    const char *word[WORDS_MOST];
    size_t used = 0;
    int n;

    if (strlen(words) >= sizeof copy)
        return fail(ST_EINTERNAL, "a case of more than %d characters: %s", CASE_WORDS, words);
    snprintf(copy, sizeof copy, "%s", words);
    n = case_split(word, WORDS_MOST, copy);
    out[0] = '\0';
    for (int i = 0; i < n; i++)
        if (!overridden(word, n, i))
            used +=
                (size_t)snprintf(out + used, CASE_WORDS - used, "%s%s", used ? " " : "", word[i]);
    return n < WORDS_MOST ? ST_OK : fail(ST_EINTERNAL, "a case of too many words: %s", words);
}

enum status case_config(struct config *cfg, const char *words)
{
    char text[CASE_WORDS];
    const char *word[WORDS_MOST];
    int n;

    TRY(case_words(text, words));
    n = case_split(word, WORDS_MOST, text);
    config_default(cfg);
    for (int i = 0; i < n; i++)
        TRY(config_override(cfg, word[i]));
    TRY(config_resolve(cfg, 0, cfg->model.vocab));
    return config_validate(cfg, 0);
}

enum status case_configf(struct config *cfg, const char *fmt, ...)
{
    char words[CASE_WORDS];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(words, sizeof words, fmt, ap);
    va_end(ap);
    if (n < 0 || n >= (int)sizeof words)
        return fail(ST_EINTERNAL, "a case of more than %d characters: %s", CASE_WORDS, fmt);
    return case_config(cfg, words);
}

int64_t case_batch(int32_t *tokens, int32_t *targets, const struct config *cfg, int64_t step,
                   int64_t first, int64_t rows)
{
    struct rng_key key = rng_key(1, RNG_TEST, (uint64_t)step);
    int64_t seq = cfg->train.seq, valid = 0;

    for (int64_t i = 0; i < rows; i++) {
        int64_t row = first + i;

        for (int64_t j = 0; j < seq; j++) {
            uint64_t at = (uint64_t)(row * (seq + 1) + j);
            int ignored =
                rng_below(&key, at + ((uint64_t)1 << 40), 8) == 0 || (row % 3 == 2 && j >= seq / 2);

            tokens[i * seq + j] = (int32_t)rng_below(&key, at, (uint64_t)cfg->model.vocab);
            targets[i * seq + j] =
                ignored ? LOADER_IGNORED
                        : (int32_t)rng_below(&key, at + 1, (uint64_t)cfg->model.vocab);
            valid += !ignored;
        }
    }
    return valid;
}

enum status case_text(const char *path, int documents)
{
    struct rng_key key = rng_key(2, RNG_TEST, 0);
    FILE *f = fopen(path, "w");
    uint64_t at = 0;
    int bad;

    if (!f)
        return fail(ST_EIO, "cannot write %s: %s", path, strerror(errno));
    for (int i = 0; i < documents; i++) {
        uint64_t letters = 3 + rng_below(&key, at++, i % 2 ? 58 : 8);

        for (uint64_t j = 0; j < letters; j++)
            fputc("etaoin shrdlu\n"[rng_below(&key, at++, 14) % 13], f);
        fputs("\n--\n", f);
    }
    bad = ferror(f);
    if (fclose(f) || bad)
        return fail(ST_EIO, "cannot write %s: %s", path, strerror(errno));
    return ST_OK;
}

/* Gains in [0.5, 1.5), biases in [-0.5, 0.5). */
static enum status set_vector(struct params *p, struct param *row, struct device *dev)
{
    struct rng_key key = rng_key(4, RNG_TEST, hash_text(row->name));
    double low = row->role == ROLE_GAIN ? 0.5 : -0.5;
    int64_t rows, cols, row0, col0;
    void *values;
    enum status st;

    param_shard(p, row, &rows, &cols, &row0, &col0);
    values = malloc((size_t)cols * dtype_size(p->wide));
    if (!values)
        return fail(ST_ENOMEM, "no memory for %s", row->name);
    for (int64_t j = 0; j < cols; j++)
        dtype_store(values, p->wide, j, low + rng_uniform(&key, (uint64_t)(col0 + j)));
    st = param_set(p, row, dev, values);
    free(values);
    return st;
}

enum status case_gains(struct params *p, struct device *dev)
{
    for (int i = 0; i < p->n; i++)
        if (param_is_vector(&p->item[i]))
            TRY(set_vector(p, &p->item[i], dev));
    return ST_OK;
}
