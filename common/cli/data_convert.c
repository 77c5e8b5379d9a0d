/* `narrows data convert`: shards of either format, one after the other, as one shard. */
#include "common/base/log.h"
#include "common/cli/data.h"
#include "common/cli/interrupt.h"
#include "common/cli/options.h"
#include "common/data/shard_write.h"

#include <string.h>

enum { PIECE = 1 << 16 };

struct convert_options {
    const char *output, *format;
    bool overwrite;
    int64_t vocab;
};

static enum status copy_sequence(struct shard_write *w, const struct shard *s, int64_t i)
{
    int64_t at = shard_sequence(s, i), end = shard_sequence(s, i + 1);
    int32_t ids[PIECE];

    while (at < end) {
        int64_t n = end - at < PIECE ? end - at : PIECE;

        if (interrupt_requested())
            return fail(ST_ESTOP, "stopped on request; nothing was written to %s", w->path);
        shard_read(ids, s, at, n);
        TRY(shard_write_tokens(w, ids, n));
        at += n;
    }
    return shard_write_sequence(w);
}

/* Documents keep their sequences, empty ones too. */
static enum status copy_shard(struct shard_write *w, const struct shard *s, int64_t vocab)
{
    int64_t sequence = 0;

    TRY(shard_check_ids(s, vocab, 0, s->count));
    for (int64_t j = 0; j < s->documents; j++) {
        int64_t end = s->format == SHARD_LLMC ? 1 : shard_number(s->index.documents, j + 1, 8);

        for (; sequence < end; sequence++)
            TRY(copy_sequence(w, s, sequence));
        TRY(shard_write_document(w));
    }
    return ST_OK;
}

static enum status copy_all(struct shard_write *w, const struct options *words, int64_t vocab)
{
    struct shard s;

    for (int i = 0; i < words->words; i++) {
        enum status st;

        TRY(shard_open(&s, words->word[i]));
        st = copy_shard(w, &s, vocab);
        shard_close(&s);
        TRY(st);
    }
    return ST_OK;
}

/* `narrow`, when all ids are below it, else all that 32 bits hold. */
static enum status find_vocab(int64_t *vocab, const struct options *words, int64_t narrow)
{
    struct shard s;

    *vocab = narrow;
    for (int i = 0; i < words->words; i++) {
        TRY(shard_open(&s, words->word[i]));
        if (shard_check_ids(&s, narrow, 0, s.count) != ST_OK)
            *vocab = INT32_MAX;
        status_clear();
        shard_close(&s);
    }
    return ST_OK;
}

static enum status run(const struct options *words, const struct convert_options *o)
{
    int llmc = !strcmp(o->format, "llmc");
    int64_t vocab = o->vocab, tokens, documents;
    struct shard_write w;
    enum status st;

    if (!o->output)
        return fail(ST_EUSAGE, "narrows data convert needs --output PREFIX");
    if (!llmc && strcmp(o->format, "megatron") != 0)
        return fail(ST_EUSAGE, "--format %s: choose megatron or llmc", o->format);
    if (!o->vocab) /* up to where shard_write_open takes 16 bits */
        TRY(find_vocab(&vocab, words, llmc ? 65536 : 65499));
    TRY(shard_write_open(&w, o->output, llmc ? SHARD_LLMC : SHARD_MEGATRON, vocab, o->overwrite));
    st = copy_all(&w, words, vocab);
    tokens = w.count;
    documents = w.documents;
    if (st == ST_OK)
        st = shard_write_finish(&w);
    else
        shard_write_abandon(&w);
    if (st == ST_OK)
        log_info("converted  %d shard%s: %lld tokens, %lld documents", words->words,
                 words->words == 1 ? "" : "s", (long long)tokens, (long long)documents);
    return st;
}

enum status data_convert(struct host *job, int argc, char **argv)
{
    struct convert_options o = {.format = "megatron"};
    const struct option table[] = {
        {"--output", 'o', "PREFIX", OPTION_TEXT, &o.output, 0, 0,
         "writes PREFIX.bin, and PREFIX.idx for megatron"},
        {"--format", 'f', "F", OPTION_TEXT, &o.format, 0, 0,
         "megatron (default), or llmc, which loses the borders of documents"},
        {"--vocab", 'v', "V", OPTION_INT, &o.vocab, 1, 1 << 24,
         "refuse ids from V on; chooses the type (default: the narrowest that fits)"},
        {"--overwrite", 0, NULL, OPTION_SWITCH, &o.overwrite, 0, 0,
         "replace an output that is there"},
        {0}};
    const struct options_spec spec = {"data convert",
                                      "joins shards, in the order given, into one of either format",
                                      "SHARD...",
                                      1,
                                      OPTIONS_WORDS,
                                      false,
                                      table,
                                      "narrows data convert a b c.bin -o all\n"
                                      "narrows data convert data/books -f llmc -o books-llmc"};
    struct options words;

    (void)job;
    TRY(options_parse(&words, &spec, argc, argv));
    if (words.help)
        return options_help(stdout, &spec);
    return run(&words, &o);
}
