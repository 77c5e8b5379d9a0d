/* narrows tokenize: what a tokenizer makes of a text, and of ids. */
#include "common/base/hash.h"
#include "common/cli/commands.h"
#include "common/cli/options.h"
#include "common/tokenizer/decoder.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OPTIONS = 8, CHUNK = 1 << 16, NAME = 4096 };

struct wishes {
    const char *text;
    bool decode, pieces, special, frame, info, time;
};

static void fill_options(struct option *table, struct wishes *w)
{
    const struct option options[OPTIONS] = {
        {"--text", 't', "TEXT", OPTION_TEXT, &w->text, 0, 0, "this text, in place of a file's"},
        {"--decode", 'd', NULL, OPTION_SWITCH, &w->decode, 0, 0,
         "the input is ids, the output their text"},
        {"--pieces", 'p', NULL, OPTION_SWITCH, &w->pieces, 0, 0,
         "a line for each token: its id and its text"},
        {"--special", 's', NULL, OPTION_SWITCH, &w->special, 0, 0,
         "find special tokens in the text; with --decode, write them"},
        {"--frame", 'f', NULL, OPTION_SWITCH, &w->frame, 0, 0,
         "with what the tokenizer puts around a text, such as a begin token"},
        {"--time", 0, NULL, OPTION_SWITCH, &w->time, 0, 0,
         "print how long it took, on one thread, in place of the ids"},
        {"--info", 'i', NULL, OPTION_SWITCH, &w->info, 0, 0,
         "what the tokenizer is: kind, size, special tokens; reads no text"},
        {0}};

    memcpy(table, options, sizeof options);
}

static enum status output_failed(void)
{
    return fail(ST_EIO, "the output could not be written: %s", strerror(errno));
}

/* Reads all of a file, or of the standard input for NULL or "-". */
static enum status read_input(struct byte_list *out, const char *path)
{
    int own = path && strcmp(path, "-") != 0;
    FILE *in = own ? fopen(path, "rb") : stdin;
    enum status st = ST_OK;
    size_t got = 1;

    if (!in)
        return fail(ST_EIO, "cannot open %s: %s", path, strerror(errno));
    while (st == ST_OK && got > 0) {
        st = list_bytes_room(out, CHUNK);
        got = st == ST_OK ? fread(out->bytes + out->count, 1, CHUNK, in) : 0;
        out->count += (int64_t)got;
    }
    if (st == ST_OK && ferror(in))
        st = fail(ST_EIO, "cannot read %s: %s", own ? path : "the standard input", strerror(errno));
    if (own)
        fclose(in);
    return st;
}

/* ---- from text to ids ---- */

static enum status print_ids(const struct tokenizer *t, const struct token_list *ids, bool pieces)
{
    char name[NAME];

    for (int64_t i = 0; i < ids->count; i++) {
        if (pieces)
            TRY(tokenizer_name(name, sizeof name, t, ids->ids[i]));
        if (pieces ? printf("%d\t%s\n", (int)ids->ids[i], name) < 0
                   : printf("%s%d", i ? " " : "", (int)ids->ids[i]) < 0)
            return output_failed();
    }
    if ((!pieces && putchar('\n') == EOF) || fflush(stdout) != 0)
        return output_failed();
    return ST_OK;
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static enum status print_time(const struct byte_list *in, const struct token_list *ids,
                              double seconds)
{
    printf("%lld bytes, %lld tokens, %.3f s, %.1f MB/s\n", (long long)in->count,
           (long long)ids->count, seconds, seconds > 0 ? 1e-6 * (double)in->count / seconds : 0.0);
    return fflush(stdout) != 0 ? output_failed() : ST_OK;
}

static enum status encode(const struct tokenizer *t, const struct byte_list *in,
                          const struct wishes *w)
{
    struct token_list ids = {0};
    double begin = now();
    enum status st =
        tokenizer_encode(&ids, t, in->bytes, in->count,
                         (w->special ? TOKENIZER_SPECIAL : 0u) | (w->frame ? TOKENIZER_FRAME : 0u));

    if (st == ST_OK)
        st = w->time ? print_time(in, &ids, now() - begin) : print_ids(t, &ids, w->pieces);
    list_tokens_free(&ids);
    return st;
}

/* ---- from ids to text ---- */

/* Reads whole numbers with white space or commas between them. */
static enum status read_ids(struct token_list *out, struct byte_list *in)
{
    char *at, *end;

    TRY(list_bytes_add(in, "", 1)); /* a zero ends the last number */
    for (at = in->bytes; at < in->bytes + in->count - 1; at = end) {
        long value;
        int32_t id;

        end = at + 1;
        if (isspace((unsigned char)*at) || *at == ',')
            continue;
        errno = 0;
        value = strtol(at, &end, 10);
        if (end == at || errno || value < INT32_MIN || value > INT32_MAX)
            return fail(ST_EFORMAT, "token %lld is '%.20s', which is no id; give whole numbers",
                        (long long)out->count, at);
        id = (int32_t)value;
        TRY(list_tokens_add(out, &id, 1));
    }
    return ST_OK;
}

static enum status decode(const struct tokenizer *t, struct byte_list *in, const struct wishes *w)
{
    struct token_list ids = {0};
    struct byte_list text = {0};
    enum status st = read_ids(&ids, in);

    if (st == ST_OK && w->pieces)
        st = print_ids(t, &ids, true);
    else if (st == ST_OK)
        st = tokenizer_decode(&text, t, ids.ids, ids.count,
                              w->special ? TOKENIZER_SPECIAL : TOKENIZER_PLAIN);
    if (st == ST_OK && text.count > 0 &&
        fwrite(text.bytes, 1, (size_t)text.count, stdout) != (size_t)text.count)
        st = output_failed();
    if (st == ST_OK && fflush(stdout) != 0)
        st = output_failed();
    list_tokens_free(&ids);
    list_bytes_free(&text);
    return st;
}

/* ---- the tokenizer itself ---- */

static enum status print_special(const struct tokenizer *t, const char *what, int32_t id)
{
    char name[NAME];

    if (id < 0) {
        printf("%-12snone\n", what);
        return ST_OK;
    }
    TRY(tokenizer_name(name, sizeof name, t, id));
    printf("%-12s%s (%d)\n", what, name, (int)id);
    return ST_OK;
}

static enum status print_info(const struct tokenizer *t)
{
    char identity[HASH_HEX];

    hash_hex(identity, t->identity);
    printf("%-12s%s\n%-12s%d\n", "kind", t->kind, "tokens", (int)t->vocab);
    TRY(print_special(t, "begin", t->begin));
    TRY(print_special(t, "end", t->end));
    TRY(print_special(t, "pad", t->pad));
    printf("%-12s%s\n", "identity", identity);
    return fflush(stdout) != 0 ? output_failed() : ST_OK;
}

static enum status work(const struct tokenizer *t, const struct options *words,
                        const struct wishes *w)
{
    struct byte_list in = {0};
    enum status st;

    if (w->info)
        return print_info(t);
    if (w->text && words->words > 1)
        return fail(ST_EUSAGE, "--text and a file %s are given; leave one out", words->word[1]);
    st = w->text ? list_bytes_add(&in, w->text, (int64_t)strlen(w->text))
                 : read_input(&in, words->words > 1 ? words->word[1] : NULL);
    if (st == ST_OK)
        st = w->decode ? decode(t, &in, w) : encode(t, &in, w);
    list_bytes_free(&in);
    return st;
}

enum status command_tokenize(struct host *job, int argc, char **argv)
{
    struct wishes w = {0};
    struct option table[OPTIONS];
    struct options words;
    struct tokenizer t;
    enum status st;
    const struct options_spec spec = {
        "tokenize",
        "turns the text of FILE, or of the standard input, into token ids, or back",
        "TOKENIZER [FILE]",
        1,
        2,
        false,
        table,
        "narrows tokenize bytes --text \"Hello\"\n"
        "narrows tokenize path/tokenizer.json notes.txt > ids.txt\n"
        "narrows tokenize path/tokenizer.json --decode ids.txt\n"
        "narrows tokenize path/tokenizer.model --info"};

    (void)job;
    fill_options(table, &w);
    TRY(options_parse(&words, &spec, argc, argv));
    if (words.help)
        return options_help(stdout, &spec);
    TRY(tokenizer_open(&t, words.word[0]));
    st = work(&t, &words, &w);
    tokenizer_close(&t);
    return st;
}
