#include "common/cli/options.h"

#include "common/model/config_value.h"
#include "common/model/nearest.h"

#include <string.h>

/* The walk over argv. */
struct walk {
    struct options *o;
    const struct options_spec *spec;
    int argc, i;
    char *const *argv;
    uint64_t given; /* bit k: option k was met */
};

static enum status unknown(const struct options_spec *spec, const char *name)
{
    struct nearest near = nearest_to(name);

    nearest_offer(&near, "--help");
    for (const struct option *op = spec->options; op->name; op++)
        nearest_offer(&near, op->name);
    if (near.best)
        return fail(ST_EUSAGE, "narrows %s has no option %s; did you mean %s?", spec->command, name,
                    near.best);
    return fail(ST_EUSAGE, "narrows %s has no option %s: see narrows %s --help", spec->command,
                name, spec->command);
}

static enum status store(const struct option *op, const char *text)
{
    enum status st = ST_OK;

    switch (op->type) {
    case OPTION_SWITCH:
        *(bool *)op->out = true;
        break;
    case OPTION_TEXT:
        *(const char **)op->out = text;
        break;
    case OPTION_INT:
        st = config_value_int(op->out, op->name, text, op->lo, op->hi);
        break;
    case OPTION_REAL:
        st = config_value_real(op->out, op->name, text, (double)op->lo, (double)op->hi);
        break;
    }
    return st == ST_OK ? ST_OK : ST_EUSAGE;
}

/* Stores option op. text: the value that stands in the same word, or NULL. */
static enum status take(struct walk *w, const struct option *op, const char *text)
{
    uint64_t bit = (uint64_t)1 << (op - w->spec->options);

    if (w->given & bit)
        return fail(ST_EUSAGE, "%s is given twice: keep one", op->name);
    w->given |= bit;
    if (!op->value && text)
        return fail(ST_EUSAGE, "%s takes no value, but '%s' was given", op->name, text);
    if (op->value && !text) {
        /* a word like --other is more likely a forgotten value than the value itself */
        if (w->i + 1 >= w->argc || !strncmp(w->argv[w->i + 1], "--", 2))
            return fail(ST_EUSAGE, "%s needs a value: %s=%s", op->name, op->name, op->value);
        text = w->argv[++w->i];
    }
    TRY(store(op, text));
    return ST_OK;
}

static enum status long_option(struct walk *w, const char *word)
{
    const char *equals = strchr(word, '=');
    size_t n = equals ? (size_t)(equals - word) : strlen(word);
    char name[64];

    snprintf(name, sizeof name, "%.*s", (int)(n < 63 ? n : 63), word);
    for (const struct option *op = w->spec->options; op->name; op++)
        if (!strcmp(op->name, name))
            return take(w, op, equals ? equals + 1 : NULL);
    return unknown(w->spec, name);
}

static enum status short_option(struct walk *w, const char *word)
{
    for (const struct option *op = w->spec->options; op->name; op++)
        if (op->letter && op->letter == word[1])
            return take(w, op, word[2] ? word + 2 : NULL);
    return unknown(w->spec, word);
}

/* Nonzero for key=value; a path with = in it can be written ./a=b. */
static int is_override(const char *word)
{
    size_t n = strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");

    return n > 0 && word[n] == '=';
}

static enum status plain_word(struct walk *w, const char *word)
{
    struct options *o = w->o;
    int override = is_override(word);

    if (override && !w->spec->overrides)
        return fail(ST_EUSAGE, "narrows %s takes no key=value, but '%s' was given",
                    w->spec->command, word);
    if ((override ? o->overrides : o->words) == OPTIONS_WORDS)
        return fail(ST_EUSAGE,
                    "more than %d arguments: give fewer files at once, or put keys into a file",
                    OPTIONS_WORDS);
    if (override)
        o->override[o->overrides++] = word;
    else
        o->word[o->words++] = word;
    return ST_OK;
}

static enum status check_count(const struct walk *w)
{
    const struct options_spec *spec = w->spec;

    if (w->o->words < spec->least)
        return fail(ST_EUSAGE, "narrows %s needs %s: see narrows %s --help", spec->command,
                    spec->words, spec->command);
    if (w->o->words > spec->most && !spec->most)
        return fail(ST_EUSAGE, "narrows %s takes no arguments, but '%s' was given", spec->command,
                    w->o->word[0]);
    if (w->o->words > spec->most)
        return fail(ST_EUSAGE, "narrows %s takes %s and no more, but '%s' was given", spec->command,
                    spec->words, w->o->word[spec->most]);
    return ST_OK;
}

enum status options_parse(struct options *o, const struct options_spec *spec, int argc,
                          char *const *argv)
{
    struct walk w = {.o = o, .spec = spec, .argc = argc, .argv = argv};
    int ended = 0;

    memset(o, 0, sizeof *o);
    for (w.i = 0; w.i < argc; w.i++) {
        const char *word = argv[w.i];

        if (!ended && (!strcmp(word, "--help") || !strcmp(word, "-h"))) {
            o->help = true;
            return ST_OK;
        }
        if (!ended && !strcmp(word, "--"))
            ended = 1;
        else if (!ended && !strncmp(word, "--", 2))
            TRY(long_option(&w, word));
        else if (!ended && word[0] == '-' && word[1])
            TRY(short_option(&w, word));
        else
            TRY(plain_word(&w, word));
    }
    return check_count(&w);
}

enum status options_override(struct config *cfg, const struct options *o)
{
    for (int i = 0; i < o->overrides; i++)
        TRY(config_override(cfg, o->override[i]));
    return ST_OK;
}

static void option_line(FILE *out, const struct option *op)
{
    char left[64], letter[8] = "    ";

    if (op->letter)
        snprintf(letter, sizeof letter, "-%c, ", op->letter);
    snprintf(left, sizeof left, "%s%s%s%s", letter, op->name, op->value ? " " : "",
             op->value ? op->value : "");
    fprintf(out, "  %-26s %s\n", left, op->help);
}

enum status options_help(FILE *out, const struct options_spec *spec)
{
    static const struct option help = {.name = "--help", .letter = 'h', .help = "print this text"};

    fprintf(out, "narrows %s: %s\n\nusage: narrows %s [options]%s%s%s\n\noptions:\n", spec->command,
            spec->summary, spec->command, *spec->words ? " " : "", spec->words,
            spec->overrides ? " [key=value ...]" : "");
    for (const struct option *op = spec->options; op->name; op++)
        option_line(out, op);
    option_line(out, &help);
    if (spec->overrides)
        fputs("\nkey=value sets a key of the configuration, such as train.steps=100; it wins over "
              "the file.\n--print-config lists all keys.\n",
              out);
    fprintf(out, "\nexample:\n");
    for (const char *line = spec->examples; *line;) {
        size_t n = strcspn(line, "\n");

        fprintf(out, "  %.*s\n", (int)n, line);
        line += n + (line[n] == '\n');
    }
    if (fflush(out) || ferror(out))
        return fail(ST_EIO, "the help could not be written");
    return ST_OK;
}
