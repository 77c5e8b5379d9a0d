/* The words after `narrows COMMAND`: options, positional arguments, and key=value overrides.
 *
 * A command declares one table; parsing and --help follow from it, so that they cannot differ.
 *
 *     int64_t tokens = 200;
 *     const struct option options[] = {
 *         {"--tokens", 'n', "N", OPTION_INT, &tokens, 1, 1000000, "tokens to write"},
 *         {0},
 *     };
 *     struct options_spec spec = {"generate", "writes text with a trained model", "RUN", 1, 1,
 *                                 true, options, "narrows generate runs/quickstart -n 50"};
 *     struct options words;
 *     TRY(options_parse(&words, &spec, argc, argv));
 *     if (words.help)
 *         return options_help(stdout, &spec);
 *
 * Forms: --name VALUE, --name=VALUE, -n VALUE, -nVALUE; "--" ends the options; section.key=value
 * is an override. Every command knows --help and -h. Each option may be given once.
 */
#ifndef COMMON_CLI_OPTIONS_H
#define COMMON_CLI_OPTIONS_H

#include "common/base/status.h"
#include "common/model/config.h"

enum { OPTIONS_WORDS = 1024 }; /* positional arguments, or overrides, of a command line */

enum option_type {
    OPTION_SWITCH, /* bool: set to true */
    OPTION_TEXT,   /* const char *: points into argv */
    OPTION_INT,    /* int64_t in [lo, hi] */
    OPTION_REAL    /* double in [lo, hi] */
};

/* One option; a table of them ends with name NULL. */
struct option {
    const char *name;  /* "--tokens" */
    char letter;       /* 'n' for -n; 0 = none */
    const char *value; /* "N", what --help calls the value; NULL for a switch */
    enum option_type type;
    void *out; /* keeps its value when the option is not given */
    int64_t lo, hi;
    const char *help; /* no full stop */
};

struct options_spec {
    const char *command; /* "generate" */
    const char *summary; /* what it does, beginning with a verb, no full stop */
    const char *words;   /* positional arguments as in a usage line: "CONFIG"; "" = none */
    int least, most;     /* number of them */
    bool overrides;      /* key=value is allowed */
    const struct option *options;
    const char *examples; /* lines that can be pasted */
};

struct options {
    const char *word[OPTIONS_WORDS]; /* positional arguments; point into argv */
    const char *override[OPTIONS_WORDS];
    int words, overrides;
    bool help; /* --help was met; the rest was not looked at */
};

/* Sorts argv[0 .. argc) (what follows the command's name) into o and the options' out fields.
 * Errors: ST_EUSAGE for an unknown option (with the nearest), a missing or superfluous value, one
 * given twice, a number out of range, and too few or too many positional arguments. */
enum status options_parse(struct options *o, const struct options_spec *spec, int argc,
                          char *const *argv);

/* Gives all overrides of o to cfg, in their order. Errors as config_override(). */
enum status options_override(struct config *cfg, const struct options *o);

/* Prints the help of a command: usage, options, examples. Errors: ST_EIO. */
enum status options_help(FILE *out, const struct options_spec *spec);

#endif
