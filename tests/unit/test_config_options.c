/* The command line of a subcommand: options, positional arguments, overrides, help. */
#include "common/cli/options.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

struct result {
    struct options words;
    bool dry;
    int64_t tokens;
    double heat;
    const char *prompt;
};

/* Parses the words of `line`, cut at single blanks; they live in `copy`. */
static enum status parse(struct result *r, char copy[512], const char *line)
{
    const struct option table[] = {
        {"--dry-run", 0, NULL, OPTION_SWITCH, &r->dry, 0, 0, "print sizes and stop"},
        {"--tokens", 'n', "N", OPTION_INT, &r->tokens, 1, 100, "tokens to write"},
        {"--temperature", 0, "T", OPTION_REAL, &r->heat, 0, 5, "of the draw"},
        {"--prompt", 'p', "TEXT", OPTION_TEXT, &r->prompt, 0, 0, "text to continue"},
        {.name = NULL},
    };
    const struct options_spec spec = {"play", "plays", "CONFIG [MORE]", 1,
                                      2,      true,    table,           "narrows play a.yaml"};
    char *argv[32], *rest = copy;
    int argc = 0;

    snprintf(copy, 512, "%s", line);
    while (*line && rest)
        argv[argc++] = strsep(&rest, " ");
    *r = (struct result){.tokens = 7, .heat = 1, .prompt = "none"};
    return options_parse(&r->words, &spec, argc, argv);
}

static const struct {
    const char *line;
    const char *parts[3];
} bad[] = {
    {"", {"narrows play needs CONFIG [MORE]", "narrows play --help"}},
    {"--dry-run", {"narrows play needs CONFIG"}},
    {"a b c", {"takes CONFIG [MORE] and no more", "'c'"}},
    {"a --promt x", {"has no option --promt", "did you mean --prompt?"}},
    {"a --promt=x", {"has no option --promt;", "did you mean --prompt?"}},
    {"a --hepl", {"did you mean --help?"}},
    {"a --dry", {"has no option --dry"}},
    {"a --quantize", {"has no option --quantize: see narrows play --help"}},
    {"a -x", {"has no option -x"}},
    {"a --tokens", {"--tokens needs a value: --tokens=N"}},
    {"a --tokens --dry-run", {"--tokens needs a value"}},
    {"a -n", {"--tokens needs a value"}},
    {"a --tokens abc", {"--tokens: 'abc' is not a whole number", "from 1 to 100"}},
    {"a --tokens 1e1", {"--tokens: '1e1' is not a whole number"}},
    {"a --tokens 0", {"--tokens: 0 is out of range"}},
    {"a --tokens -5", {"--tokens: -5 is out of range"}},
    {"a --tokens=", {"--tokens: '' is not a whole number"}},
    {"a -n101", {"--tokens: 101 is out of range"}},
    {"a --temperature nan", {"--temperature: 'nan' is not a number"}},
    {"a --temperature 6", {"--temperature: 6 is out of range", "from 0 to 5"}},
    {"a --dry-run=yes", {"--dry-run takes no value, but 'yes'"}},
    {"a --dry-run --dry-run", {"--dry-run is given twice"}},
    {"a -n 5 --tokens 6", {"--tokens is given twice"}},
};

START_TEST(test_bad_line)
{
    struct result r;
    char copy[512];

    status_clear();
    ck_assert_msg(parse(&r, copy, bad[_i].line) == ST_EUSAGE, "'%s' was taken", bad[_i].line);
    for (int p = 0; p < 3 && bad[_i].parts[p]; p++)
        ck_assert_msg(strstr(status_message(), bad[_i].parts[p]) != NULL,
                      "'%s'\n gave: %s\n lacks: %s", bad[_i].line, status_message(),
                      bad[_i].parts[p]);
}
END_TEST

START_TEST(test_good_lines)
{
    struct result r;
    char copy[512];

    ck_assert_int_eq(parse(&r, copy, "a.yaml"), ST_OK);
    ck_assert_int_eq(r.words.words, 1);
    ck_assert_str_eq(r.words.word[0], "a.yaml");
    ck_assert_int_eq(r.tokens, 7);
    ck_assert_str_eq(r.prompt, "none");
    ck_assert(!r.dry);
    ck_assert_int_eq(
        parse(&r, copy, "-n 5 a.yaml train.steps=3 --dry-run --prompt -x b model.rank=2"), ST_OK);
    ck_assert_int_eq(r.words.words, 2);
    ck_assert_str_eq(r.words.word[1], "b");
    ck_assert_int_eq(r.words.overrides, 2);
    ck_assert_str_eq(r.words.override[0], "train.steps=3");
    ck_assert_str_eq(r.words.override[1], "model.rank=2");
    ck_assert_int_eq(r.tokens, 5);
    ck_assert_str_eq(r.prompt, "-x");
    ck_assert(r.dry);
    ck_assert_int_eq(parse(&r, copy, "a -n9 --temperature=0.5 --prompt=--b=c"), ST_OK);
    ck_assert_int_eq(r.tokens, 9);
    ck_assert_double_eq(r.heat, 0.5);
    ck_assert_str_eq(r.prompt, "--b=c");
    /* a path that looks like an override, one that looks like an option, and a lone dash */
    ck_assert_int_eq(parse(&r, copy, "./a=b.yaml -- --odd"), ST_OK);
    ck_assert_str_eq(r.words.word[0], "./a=b.yaml");
    ck_assert_str_eq(r.words.word[1], "--odd");
    ck_assert_int_eq(parse(&r, copy, "-"), ST_OK);
    ck_assert_str_eq(r.words.word[0], "-");
    ck_assert_int_eq(parse(&r, copy, "--help --no-such-thing"), ST_OK);
    ck_assert(r.words.help);
    ck_assert_int_eq(parse(&r, copy, "-h"), ST_OK);
    ck_assert(r.words.help);
}
END_TEST

START_TEST(test_overrides)
{
    struct result r;
    struct config cfg;
    char copy[512];

    config_default(&cfg);
    ck_assert_int_eq(parse(&r, copy, "a train.steps=3 train.lr=0.5"), ST_OK);
    ck_assert_int_eq(options_override(&cfg, &r.words), ST_OK);
    ck_assert_int_eq(cfg.train.steps, 3);
    ck_assert_int_eq(parse(&r, copy, "a steps=3"), ST_OK);
    ck_assert_int_eq(options_override(&cfg, &r.words), ST_ECONFIG);
    ck_assert_ptr_nonnull(strstr(status_message(), "argument 'steps=3': steps is not a key; did "
                                                   "you mean train.steps?"));
}
END_TEST

START_TEST(test_no_overrides)
{
    const struct option table[] = {{.name = NULL}};
    const struct options_spec spec = {"presets", "lists sizes", "", 0, 0, false, table, ""};
    char key[] = "train.steps=3", word[] = "x", *argv[] = {key};
    struct options o;

    ck_assert_int_eq(options_parse(&o, &spec, 1, argv), ST_EUSAGE);
    ck_assert_ptr_nonnull(strstr(status_message(), "takes no key=value, but 'train.steps=3'"));
    status_clear();
    argv[0] = word;
    ck_assert_int_eq(options_parse(&o, &spec, 1, argv), ST_EUSAGE);
    ck_assert_ptr_nonnull(strstr(status_message(), "takes no arguments, but 'x'"));
}
END_TEST

START_TEST(test_too_many_words)
{
    const struct option table[] = {{.name = NULL}};
    const struct options_spec spec = {"cat", "lists", "FILES", 0, 9999, false, table, ""};
    char word[] = "x", *argv[OPTIONS_WORDS + 1];
    struct options o;

    for (int i = 0; i <= OPTIONS_WORDS; i++)
        argv[i] = word;
    ck_assert_int_eq(options_parse(&o, &spec, OPTIONS_WORDS, argv), ST_OK);
    ck_assert_int_eq(options_parse(&o, &spec, OPTIONS_WORDS + 1, argv), ST_EUSAGE);
}
END_TEST

START_TEST(test_help)
{
    const struct option table[] = {
        {"--tokens", 'n', "N", OPTION_INT, NULL, 1, 9, "tokens to write"},
        {"--dry-run", 0, NULL, OPTION_SWITCH, NULL, 0, 0, "print sizes and stop"},
        {.name = NULL},
    };
    const struct options_spec spec = {
        "play", "plays", "CONFIG", 1, 1, true, table, "narrows play a.yaml\nnarrows play b.yaml\n"};
    static const char want[] =
        "narrows play: plays\n\nusage: narrows play [options] CONFIG [key=value ...]\n\n"
        "options:\n"
        "  -n, --tokens N             tokens to write\n"
        "      --dry-run              print sizes and stop\n"
        "  -h, --help                 print this text\n\n"
        "key=value sets a key of the configuration, such as train.steps=100; it wins over the "
        "file.\n--print-config lists all keys.\n\n"
        "example:\n  narrows play a.yaml\n  narrows play b.yaml\n";
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    ck_assert_int_eq(options_help(out, &spec), ST_OK);
    fclose(out);
    ck_assert_str_eq(text, want);
    free(text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("options");
    TCase *tests = tcase_create("options");

    tcase_add_loop_test(tests, test_bad_line, 0, (int)(sizeof bad / sizeof bad[0]));
    tcase_add_test(tests, test_good_lines);
    tcase_add_test(tests, test_overrides);
    tcase_add_test(tests, test_no_overrides);
    tcase_add_test(tests, test_too_many_words);
    tcase_add_test(tests, test_help);
    suite_add_tcase(suite, tests);
    return check_unit(suite);
}
