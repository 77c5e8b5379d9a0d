/* `narrows data prepare`. */
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/cli/data.h"
#include "common/cli/interrupt.h"
#include "common/cli/options.h"
#include "common/data/prepare.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { OPTIONS = 13, MANY = 8 /* threads, where nobody says how many */ };

struct choices {
    const char *tokenizer, *output, *format, *input, *key, *separator, *invalid;
    int64_t threads;
    bool no_eod, overwrite, quiet;
};

static void fill(struct option *table, struct choices *c)
{
    const struct option options[OPTIONS] = {
        {"--tokenizer", 't', "T", OPTION_TEXT, &c->tokenizer, 0, 0,
         "bytes, or a tokenizer's file or folder"},
        {"--output", 'o', "PREFIX", OPTION_TEXT, &c->output, 0, 0,
         "writes PREFIX.bin, and PREFIX.idx for megatron"},
        {"--format", 'f', "F", OPTION_TEXT, &c->format, 0, 0,
         "megatron (default): with the borders of documents; llmc: tokens alone"},
        {"--input", 'i', "KIND", OPTION_TEXT, &c->input, 0, 0,
         "text or jsonl; default: jsonl for .jsonl, .ndjson, .json, else text"},
        {"--key", 'k', "KEY", OPTION_TEXT, &c->key, 0, 0,
         "jsonl: where an object has its text (default text)"},
        {"--document-separator", 's', "LINE", OPTION_TEXT, &c->separator, 0, 0,
         "text: a line that ends a document; \"\" is the blank line (default: a file is one)"},
        {"--no-eod", 0, NULL, OPTION_SWITCH, &c->no_eod, 0, 0,
         "no end-of-document token behind each document"},
        {"--invalid-utf8", 0, "POLICY", OPTION_TEXT, &c->invalid, 0, 0,
         "refuse (default), replace by U+FFFD, or skip the document"},
        {"--threads", 'j', "N", OPTION_INT, &c->threads, 1, PREPARE_THREADS,
         "threads that tokenise (default: the processors, at most 8); the output is the same for "
         "any"},
        {"--overwrite", 0, NULL, OPTION_SWITCH, &c->overwrite, 0, 0,
         "replace an output that is there"},
        {"--quiet", 'q', NULL, OPTION_SWITCH, &c->quiet, 0, 0, "no progress on stderr"},
        {0}};

    memcpy(table, options, sizeof options);
}

/* ---- the choices ---- */

/* The place of word among the NULL-ended words. */
static enum status choose(int *out, const char *option, const char *word, const char *const *words)
{
    for (int i = 0; words[i]; i++)
        if (!strcmp(word, words[i])) {
            *out = i;
            return ST_OK;
        }
    return fail(ST_EUSAGE, "%s %s: choose %s%s%s%s%s", option, word, words[0],
                words[2] ? ", " : " or ", words[1], words[2] ? " or " : "",
                words[2] ? words[2] : "");
}

static enum status settle(struct prepare_options *o, const struct choices *c)
{
    static const char *const formats[] = {"megatron", "llmc", NULL};
    static const char *const kinds[] = {"text", "jsonl", NULL};
    static const char *const policies[] = {"refuse", "replace", "skip", NULL};
    int format, kind = -1, policy;

    if (!c->tokenizer || !c->output)
        return fail(ST_EUSAGE, "narrows data prepare needs %s: see narrows data prepare --help",
                    c->tokenizer ? "--output PREFIX" : "--tokenizer T (bytes, or a file)");
    TRY(choose(&format, "--format", c->format, formats));
    TRY(choose(&policy, "--invalid-utf8", c->invalid, policies));
    if (c->input)
        TRY(choose(&kind, "--input", c->input, kinds));
    if (c->separator && strpbrk(c->separator, "\r\n"))
        return fail(ST_EUSAGE, "--document-separator holds a line end; it is the content of one "
                               "line");
    o->format = (enum shard_format)format;
    o->documents = (struct documents_options){.kind = (enum documents_kind)(kind + 1),
                                              .separator = c->separator,
                                              .key = c->key,
                                              .invalid = (enum documents_policy)policy};
    return ST_OK;
}

/* ---- progress ---- */

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct clock {
    double start, shown;
    int terminal;
};

/* A line that is written over on a terminal, five times a second; else one every ten seconds. */
static void show(void *context, const struct prepare_state *s)
{
    struct clock *c = context;
    double t = now(), seconds = t - c->start, rate = (double)s->taken / seconds;
    char a[TEXT_NUMBER], b[TEXT_NUMBER], d[TEXT_NUMBER], e[TEXT_NUMBER];

    if (t - c->shown < (c->terminal ? 0.2 : 10))
        return;
    c->shown = t;
    if (c->terminal)
        fputs("\r\033[K", stderr);
    fprintf(stderr, "prepare  %s", text_bytes(a, (double)s->taken));
    if (s->size > 0)
        fprintf(stderr, " of %s  %.1f%%", text_bytes(a, (double)s->size),
                100.0 * (double)s->taken / (double)s->size);
    fprintf(stderr, "  %s documents  %s tokens  %s/s", text_count(b, (double)s->documents),
            text_count(d, (double)s->tokens), text_bytes(e, rate));
    if (s->size > 0)
        fprintf(stderr, "  eta %s", text_duration(a, (double)(s->size - s->taken) / rate));
    fputs(c->terminal ? "" : "\n", stderr);
    fflush(stderr);
}

static void clear(const struct clock *c)
{
    if (c->terminal && c->shown > c->start)
        fputs("\r\033[K", stderr);
}

/* ---- the end ---- */

static void line_of(const char *what, int64_t n, const char *meaning)
{
    if (n)
        log_info("%-10s %lld document%s %s", what, (long long)n, n == 1 ? "" : "s", meaning);
}

static void report(const struct prepare_state *s, const struct prepare_options *o, double seconds)
{
    char a[TEXT_NUMBER], b[TEXT_NUMBER], d[TEXT_NUMBER], e[TEXT_NUMBER];
    struct rusage use = {0};

    getrusage(RUSAGE_SELF, &use);
    line_of("left out", s->counts.empty, "without a byte");
    line_of("left out", s->counts.skipped, "not in UTF-8");
    line_of("replaced", s->counts.replaced, "with U+FFFD for what is not UTF-8");
    line_of("note", s->counts.nul, "with NUL characters, kept");
    line_of("note", s->counts.cr, "with carriage returns (CR), kept");
    log_info("prepared   %lld documents, %lld tokens from %s of text (%.3f bytes a token)",
             (long long)s->documents, (long long)s->tokens, text_bytes(a, (double)s->bytes),
             (double)s->bytes / (double)s->tokens);
    log_info("took       %s with %d threads: %s/s of text, %s tokens/s; memory at most %s",
             text_duration(a, seconds), o->threads, text_bytes(b, (double)s->bytes / seconds),
             text_count(d, (double)s->tokens / seconds),
             text_bytes(e, 1024.0 * (double)use.ru_maxrss));
    log_info("next       narrows data inspect %s", o->output);
}

/* One thread reads and writes, and has no work for many more; each takes memory. */
static int64_t default_threads(void)
{
    int64_t processors = sysconf(_SC_NPROCESSORS_ONLN);

    return processors < 1 ? 1 : processors < MANY ? processors : MANY;
}

static enum status run(const struct choices *c, struct prepare_options *o)
{
    struct clock clock = {.start = now(), .terminal = isatty(2)};
    struct prepare_state state;
    struct tokenizer t;
    enum status st;

    clock.shown = clock.start;
    o->threads = (int)(c->threads ? c->threads : default_threads());
    o->stop = o->documents.stop = interrupt_requested;
    o->progress = c->quiet ? NULL : show;
    TRY(tokenizer_open(&t, c->tokenizer));
    o->context = &clock;
    st = prepare(&state, &t, o);
    o->context = NULL;
    tokenizer_close(&t);
    clear(&clock);
    if (st == ST_OK)
        report(&state, o, now() - clock.start);
    return st;
}

enum status data_prepare(struct host *job, int argc, char **argv)
{
    struct choices c = {.format = "megatron", .key = "text", .invalid = "refuse"};
    struct option table[OPTIONS];
    const struct options_spec spec = {
        "data prepare",
        "turns text into a token shard that `narrows train` and others read",
        "FILE...",
        1,
        OPTIONS_WORDS,
        false,
        table,
        "narrows data prepare books.jsonl.zst --tokenizer gpt2/tokenizer.json -o data/books\n"
        "narrows data prepare wiki-*.txt.gz -t bytes -s '<|endoftext|>' -o data/wiki -j 8\n"
        "zcat dump.gz | narrows data prepare - -t bytes --input jsonl --key body -o data/dump"};
    struct prepare_options o = {0};
    struct options words;

    (void)job;
    fill(table, &c);
    TRY(options_parse(&words, &spec, argc, argv));
    if (words.help)
        return options_help(stdout, &spec);
    TRY(settle(&o, &c));
    o.paths = words.word;
    o.files = words.words;
    o.output = c.output;
    o.end_ids = !c.no_eod;
    o.overwrite = c.overwrite;
    return run(&c, &o);
}
