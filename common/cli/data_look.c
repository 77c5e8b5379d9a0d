/* `narrows data inspect`, `verify` and `head`: what a shard is, whether it is sound, how it
 * begins. */
#include "common/base/hash.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/cli/data.h"
#include "common/cli/interrupt.h"
#include "common/cli/options.h"
#include "common/data/shard.h"
#include "common/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Nonzero for X.idx beside X.bin, as a pattern of the shell gives them: one shard, named twice. */
static int is_second_name(const struct options *words, int i)
{
    size_t n = strlen(words->word[i]);

    if (n < 5 || strcmp(words->word[i] + n - 4, ".idx") != 0)
        return 0;
    for (int k = 0; k < words->words; k++)
        if (strlen(words->word[k]) == n && !strncmp(words->word[k], words->word[i], n - 4) &&
            !strcmp(words->word[k] + n - 4, ".bin"))
            return 1;
    return 0;
}

static enum status printed(void)
{
    return fflush(stdout) || ferror(stdout) ? fail(ST_EIO, "the output could not be written")
                                            : ST_OK;
}

/* ---- inspect ---- */

/* Shortest, longest and number of empty ones of n pieces that begin at start(s, 0 .. n). */
static void lengths(const struct shard *s, const char *what, int64_t n,
                    int64_t (*start)(const struct shard *, int64_t))
{
    int64_t least = INT64_MAX, most = 0, empty = 0;

    for (int64_t i = 0; i < n; i++) {
        int64_t length = start(s, i + 1) - start(s, i);

        least = length < least ? length : least;
        most = length > most ? length : most;
        empty += length == 0;
    }
    printf("  %-11s %lld", what, (long long)n);
    if (n > 0)
        printf(": shortest %lld, mean %.1f, longest %lld tokens", (long long)least,
               (double)s->count / (double)n, (long long)most);
    if (empty)
        printf("; %lld empty", (long long)empty);
    putchar('\n');
}

static void inspect(const struct shard *s)
{
    char bytes[TEXT_NUMBER], hex[HASH_HEX];

    hash_hex(hex, shard_hash(s));
    if (s->format == SHARD_MEGATRON)
        printf("%s: Megatron, index %s\n", s->path, s->index_path);
    else
        printf("%s: llm.c\n", s->path);
    printf("  type        %s\n", shard_type_name(s->type));
    printf("  tokens      %lld (%s)\n", (long long)s->count,
           text_bytes(bytes, (double)s->count * s->width));
    if (s->format == SHARD_MEGATRON) {
        lengths(s, "documents", s->documents, shard_document);
        lengths(s, "sequences", s->sequences, shard_sequence);
    } else {
        puts("  documents   not known: the format has no borders");
    }
    printf("  hash        %s (index or header, size, both ends)\n", hex);
}

enum status data_inspect(struct host *job, int argc, char **argv)
{
    static const struct option none[] = {{0}};
    const struct options_spec spec = {"data inspect",
                                      "says what shards are: format, type, tokens, documents",
                                      "SHARD...",
                                      1,
                                      OPTIONS_WORDS,
                                      false,
                                      none,
                                      "narrows data inspect data/books\n"
                                      "narrows data inspect fineweb_train_*.bin"};
    struct options words;
    struct shard s;

    (void)job;
    TRY(options_parse(&words, &spec, argc, argv));
    if (words.help)
        return options_help(stdout, &spec);
    for (int i = 0; i < words.words; i++) {
        if (is_second_name(&words, i))
            continue;
        TRY(shard_open(&s, words.word[i]));
        inspect(&s);
        shard_close(&s);
    }
    return printed();
}

/* ---- verify ---- */

struct verify_options {
    const char *tokenizer;
    int64_t vocab;
};

static enum status vocabulary(int64_t *vocab, const struct verify_options *o)
{
    struct tokenizer t;

    *vocab = o->vocab;
    if (!o->tokenizer)
        return ST_OK;
    TRY(tokenizer_open(&t, o->tokenizer));
    *vocab = t.vocab;
    tokenizer_close(&t);
    if (o->vocab && o->vocab != *vocab)
        return fail(ST_EUSAGE, "--vocab %lld and the %lld ids of --tokenizer %s differ; give one",
                    (long long)o->vocab, (long long)*vocab, o->tokenizer);
    return ST_OK;
}

static enum status verify(const char *path, int64_t vocab)
{
    struct shard s;
    enum status st;

    TRY(shard_open(&s, path));
    st = vocab ? shard_check_ids(&s, vocab, 0, s.count) : ST_OK;
    if (st == ST_OK)
        printf("%s: sound, %lld tokens%s\n", s.path, (long long)s.count,
               vocab ? ", all within the vocabulary"
                     : "; ids not looked at (--tokenizer, --vocab)");
    shard_close(&s);
    return st;
}

/* Each shard, also after one that is not sound. */
static enum status verify_all(const struct options *words, int64_t vocab)
{
    enum status first = ST_OK;
    int bad = 0, all = 0;

    for (int i = 0; i < words->words; i++) {
        enum status st;

        if (is_second_name(words, i))
            continue;
        all++;
        st = verify(words->word[i], vocab);
        if (st == ST_OK)
            continue;
        bad++;
        first = first == ST_OK ? st : first;
        if (words->words > 1) {
            printf("%s\n", status_message());
            status_clear();
        }
    }
    TRY(printed());
    return bad ? fail(first, "%d of %d shards are not sound", bad, all) : ST_OK;
}

enum status data_verify(struct host *job, int argc, char **argv)
{
    struct verify_options o = {0};
    int64_t vocab;
    const struct option table[] = {{"--tokenizer", 't', "T", OPTION_TEXT, &o.tokenizer, 0, 0,
                                    "also check that every id is one of this tokenizer's"},
                                   {"--vocab", 'v', "V", OPTION_INT, &o.vocab, 1, 1 << 24,
                                    "also check that every id is below V"},
                                   {0}};
    const struct options_spec spec = {"data verify",
                                      "checks every number of a shard against the files",
                                      "SHARD...",
                                      1,
                                      OPTIONS_WORDS,
                                      false,
                                      table,
                                      "narrows data verify data/books --tokenizer bytes\n"
                                      "narrows data verify data/*.bin --vocab 50257"};
    struct options words;

    (void)job;
    TRY(options_parse(&words, &spec, argc, argv));
    if (words.help)
        return options_help(stdout, &spec);
    TRY(vocabulary(&vocab, &o));
    return verify_all(&words, vocab);
}

/* ---- head ---- */

struct head_options {
    const char *tokenizer;
    int64_t documents, tokens;
};

static enum status print_tokens(const struct tokenizer *t, const int32_t *ids, int64_t n)
{
    struct byte_list text = {0};
    enum status st;

    if (!t) {
        for (int64_t i = 0; i < n; i++)
            printf(i ? " %d" : "%d", (int)ids[i]);
        putchar('\n');
        return ST_OK;
    }
    st = tokenizer_decode(&text, t, ids, n, TOKENIZER_SPECIAL);
    if (st == ST_OK && text.count > 0)
        fwrite(text.bytes, 1, (size_t)text.count, stdout);
    putchar('\n');
    list_bytes_free(&text);
    return st;
}

static enum status head(const struct shard *s, const struct tokenizer *t,
                        const struct head_options *o)
{
    int64_t documents = s->documents < o->documents ? s->documents : o->documents;

    for (int64_t j = 0; j < documents && !interrupt_requested(); j++) {
        int64_t first = shard_document(s, j), n = shard_document(s, j + 1) - first;
        int64_t shown = o->tokens && o->tokens < n ? o->tokens : n;
        int32_t *ids = malloc((size_t)(shown + 1) * sizeof *ids);
        enum status st;

        if (!ids)
            return fail(ST_ENOMEM, "no memory for %lld tokens; give --tokens", (long long)shown);
        shard_read(ids, s, first, shown);
        printf("# document %lld: %lld tokens%s\n", (long long)j, (long long)n,
               shown < n ? ", cut" : "");
        st = print_tokens(t, ids, shown);
        free(ids);
        TRY(st);
    }
    return printed();
}

static enum status run_head(const char *path, const struct head_options *o)
{
    struct tokenizer t = {0};
    struct shard s;
    enum status st = ST_OK;

    TRY(shard_open(&s, path));
    if (o->tokenizer)
        st = tokenizer_open(&t, o->tokenizer);
    if (st == ST_OK)
        st = head(&s, o->tokenizer ? &t : NULL, o);
    if (o->tokenizer)
        tokenizer_close(&t);
    shard_close(&s);
    return st;
}

enum status data_head(struct host *job, int argc, char **argv)
{
    struct head_options o = {.documents = 3, .tokens = 64};
    const struct option table[] = {{"--documents", 'n', "N", OPTION_INT, &o.documents, 1, INT64_MAX,
                                    "documents to print (default 3)"},
                                   {"--tokens", 'm', "M", OPTION_INT, &o.tokens, 0, INT64_MAX,
                                    "tokens of each (default 64); 0 = all"},
                                   {"--tokenizer", 't', "T", OPTION_TEXT, &o.tokenizer, 0, 0,
                                    "print text, with special tokens; without: ids"},
                                   {0}};
    const struct options_spec spec = {"data head",
                                      "prints the first documents of a shard, as ids or as text",
                                      "SHARD",
                                      1,
                                      1,
                                      false,
                                      table,
                                      "narrows data head data/books --tokenizer bytes\n"
                                      "narrows data head data/books.bin -n 1 --tokens 0"};
    struct options words;

    (void)job;
    TRY(options_parse(&words, &spec, argc, argv));
    if (words.help)
        return options_help(stdout, &spec);
    return run_head(words.word[0], &o);
}
