/* `narrows data stats`. */
#include "common/base/text.h"
#include "common/cli/data.h"
#include "common/cli/options.h"
#include "common/data/shard.h"
#include "common/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IDS = 1 << 24, PIECE = 1 << 16, BINS = 64 };

struct stats {
    int64_t *count; /* [IDS]: how often each id occurs */
    int64_t tokens, other, largest, documents;
    int64_t bin[BINS]; /* documents of 0, 1, 2-3, 4-7, ... tokens */
};

static void count_ids(struct stats *s, const struct shard *shard)
{
    int32_t ids[PIECE];

    for (int64_t i = 0; i < shard->count; i += PIECE) {
        int64_t n = shard->count - i < PIECE ? shard->count - i : PIECE;

        shard_read(ids, shard, i, n);
        for (int64_t j = 0; j < n; j++) {
            int inside = ids[j] >= 0 && ids[j] < IDS;

            s->count[inside ? ids[j] : 0] += inside;
            s->other += !inside;
            s->largest = ids[j] > s->largest ? ids[j] : s->largest;
        }
    }
    s->tokens += shard->count;
}

static void count_documents(struct stats *s, const struct shard *shard)
{
    if (shard->format != SHARD_MEGATRON)
        return;
    for (int64_t j = 0; j < shard->documents; j++) {
        int64_t n = shard_document(shard, j + 1) - shard_document(shard, j);
        int bin = 0;

        for (; n > 0; n >>= 1)
            bin++;
        s->bin[bin]++;
    }
    s->documents += shard->documents;
}

static void print_documents(const struct stats *s)
{
    static const char bar[] = "########################################";
    int64_t most = 1;

    if (s->documents == 0)
        return;
    printf("\ndocuments by length in tokens\n");
    for (int i = 0; i < BINS; i++)
        most = s->bin[i] > most ? s->bin[i] : most;
    for (int i = 0; i < BINS; i++) {
        int64_t low = i < 2 ? i : INT64_C(1) << (i - 1), high = i < 2 ? i : low + (low - 1);
        double share = (double)s->bin[i] / (double)most * (double)(sizeof bar - 1);

        if (s->bin[i] > 0)
            printf("  %10lld to %-10lld %10lld  %.*s\n", (long long)low, (long long)high,
                   (long long)s->bin[i], (int)(share + 0.5), bar);
    }
}

/* The most frequent id that is not among the n chosen ones. */
static int64_t next_id(const struct stats *s, const int64_t *chosen, int n)
{
    int64_t best = -1;

    for (int64_t id = 0; id < IDS; id++) {
        int taken = s->count[id] == 0;

        for (int i = 0; i < n && !taken; i++)
            taken = chosen[i] == id;
        if (!taken && (best < 0 || s->count[id] > s->count[best]))
            best = id;
    }
    return best;
}

/* A piece as people read it: bytes that are not printable ASCII as \x. */
static void print_piece(const struct tokenizer *t, int64_t id)
{
    struct token_piece piece;

    if (!t->kind || id >= t->vocab || tokenizer_piece(&piece, t, (int32_t)id) != ST_OK)
        return;
    fputs("  ", stdout);
    for (int32_t i = 0; i < piece.n; i++)
        printf((unsigned char)piece.bytes[i] >= 0x20 && (unsigned char)piece.bytes[i] < 0x7f
                   ? "%c"
                   : "\\x%02x",
               (unsigned char)piece.bytes[i]);
}

static void print_ids(const struct stats *s, const struct tokenizer *t, int64_t top)
{
    int64_t chosen[100], distinct = 0;

    for (int64_t id = 0; id < IDS; id++)
        distinct += s->count[id] > 0;
    printf("\nids\n  largest     %lld\n  different   %lld\n", (long long)s->largest,
           (long long)distinct);
    if (s->other)
        printf("  negative or above %d: %lld\n", IDS - 1, (long long)s->other);
    for (int i = 0; i < top; i++) {
        chosen[i] = next_id(s, chosen, i);
        if (chosen[i] < 0)
            break;
        printf("  %-10lld %12lld  %5.2f %%", (long long)chosen[i], (long long)s->count[chosen[i]],
               100.0 * (double)s->count[chosen[i]] / (double)s->tokens);
        print_piece(t, chosen[i]);
        putchar('\n');
    }
}

static enum status gather(struct stats *s, const struct options *words)
{
    struct shard shard;

    s->count = calloc(IDS, sizeof *s->count);
    if (!s->count)
        return fail(ST_ENOMEM, "no memory to count ids");
    for (int i = 0; i < words->words; i++) {
        TRY(shard_open(&shard, words->word[i]));
        count_ids(s, &shard);
        count_documents(s, &shard);
        shard_close(&shard);
    }
    return ST_OK;
}

static enum status run(const struct options *words, const char *tokenizer, int64_t top)
{
    struct stats s = {.largest = -1};
    struct tokenizer t = {0};
    enum status st = ST_OK;

    if (tokenizer)
        TRY(tokenizer_open(&t, tokenizer));
    st = gather(&s, words);
    if (st == ST_OK) {
        printf("tokens      %lld\ndocuments   ", (long long)s.tokens);
        printf(s.documents ? "%lld\n" : "not known\n", (long long)s.documents);
        print_documents(&s);
        print_ids(&s, &t, top);
    }
    free(s.count);
    if (tokenizer)
        tokenizer_close(&t);
    if (st == ST_OK && (fflush(stdout) || ferror(stdout)))
        st = fail(ST_EIO, "the output could not be written");
    return st;
}

enum status data_stats(struct host *job, int argc, char **argv)
{
    const char *tokenizer = NULL;
    int64_t top = 10;
    const struct option table[] = {
        {"--tokenizer", 't', "T", OPTION_TEXT, &tokenizer, 0, 0, "print what the ids stand for"},
        {"--top", 'n', "N", OPTION_INT, &top, 0, 100, "most frequent ids to list (default 10)"},
        {0}};
    const struct options_spec spec = {
        "data stats",  "counts lengths of documents and how often ids occur",
        "SHARD...",    1,
        OPTIONS_WORDS, false,
        table,         "narrows data stats data/books --tokenizer bytes"};
    struct options words;

    (void)job;
    TRY(options_parse(&words, &spec, argc, argv));
    if (words.help)
        return options_help(stdout, &spec);
    return run(&words, tokenizer, top);
}
