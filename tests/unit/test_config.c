/* The table of keys: defaults, values and their mistakes, overrides, print-outs, digest. */
#include "common/cli/yaml.h"
#include "common/model/config.h"
#include "common/model/config_value.h"
#include "common/model/nearest.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void expect_parts(const char *input, const char *const parts[4])
{
    for (int i = 0; i < 4 && parts[i]; i++)
        ck_assert_msg(strstr(status_message(), parts[i]) != NULL, "%s\n gave: %s\n lacks: %s",
                      input, status_message(), parts[i]);
}

START_TEST(test_defaults)
{
    struct config cfg;

    config_default(&cfg);
    ck_assert_int_eq(cfg.model.layer, LAYER_COLA);
    ck_assert_int_eq(cfg.train.steps, 1000);
    ck_assert_double_eq(cfg.train.beta2, 0.95);
    ck_assert(cfg.data.packing);
    ck_assert(!cfg.model.tied);
    ck_assert_str_eq(cfg.sample.prompt, "\n");
    ck_assert_str_eq(cfg.data.train, "");
    for (int i = 0; i < CONFIG_KEYS; i++)
        ck_assert_int_eq(cfg.origin[i], ORIGIN_DEFAULT);
}
END_TEST

/* Each row: names found again, default within its own bounds, help in one style. */
START_TEST(test_table)
{
    const struct config_section *s = config_sections();
    char value[CONFIG_VALUE];
    struct config cfg;

    config_default(&cfg);
    for (int i = 0; i < CONFIG_KEYS; i++) {
        const struct config_key *k = &config_keys()[i];

        ck_assert_ptr_eq(config_find(k->name), k);
        ck_assert_int_eq(strlen(k->help) > 5, 1);
        ck_assert_msg(k->help[strlen(k->help) - 1] != '.', "%s: help ends with a stop", k->name);
        if (strcmp(s->name, k->section) != 0)
            s++;
        ck_assert_str_eq(s->name, k->section);
        if (k->type == CONFIG_IS_TEXT) {
            ck_assert_uint_lt(strlen(k->text), CONFIG_TEXT);
            continue;
        }
        config_value_write(value, sizeof value, k, &cfg);
        ck_assert_msg(config_value_set(&cfg, k, value) == ST_OK, "%s", status_message());
    }
    ck_assert_ptr_null(s[1].name);
    ck_assert_ptr_null(config_find("model.widht"));
    ck_assert_ptr_null(config_find("width"));
}
END_TEST

static const struct {
    const char *argument;
    const char *parts[4];
} bad_arguments[] = {
    {"train.steps=1e3", {"argument 'train.steps=1e3'", "'1e3' is not a whole number", "from 1 to"}},
    {"train.steps=abc", {"train.steps: 'abc' is not a whole number"}},
    {"train.steps=", {"train.steps has no value", "give a whole number from 1 to"}},
    {"train.steps=-5", {"train.steps: -5 is out of range", "from 1 to 1000000000"}},
    {"train.steps=0", {"train.steps: 0 is out of range"}},
    {"train.steps=1099511627776", {"1099511627776 is out of range"}},
    {"train.steps=99999999999999999999", {"99999999999999999999 is out of range"}},
    {"train.seed=9223372036854775808", {"out of range"}},
    {"train.steps=10 ", {"'10 ' is not a whole number"}},
    {"train.steps= 10", {"' 10' is not a whole number"}},
    {"train.steps=10x", {"'10x' is not a whole number"}},
    {"train.steps=10.0", {"'10.0' is not a whole number"}},
    {"train.steps=0x10", {"'0x10' is not a whole number"}},
    {"train.steps=010", {"'010' is not a whole number"}},
    {"train.steps=+10", {"'+10' is not a whole number"}},
    {"train.steps=1_000", {"'1_000' is not a whole number"}},
    {"train.steps=-", {"'-' is not a whole number"}},
    {"train.lr=nan", {"train.lr: 'nan' is not a number", "3e-4"}},
    {"train.lr=inf", {"'inf' is not a number"}},
    {"train.lr=-inf", {"'-inf' is not a number"}},
    {"train.lr=0x1p-3", {"'0x1p-3' is not a number"}},
    {"train.lr=1e", {"'1e' is not a number"}},
    {"train.lr=.", {"'.' is not a number"}},
    {"train.lr=1e-3 # peak", {"'1e-3 # peak' is not a number"}},
    {"train.lr=1,5", {"'1,5' is not a number"}},
    {"train.lr=-1e-3", {"train.lr: -1e-3 is out of range", "from 0 to 10"}},
    {"train.lr=1e400", {"1e400 is out of range"}},
    {"train.lr=", {"train.lr has no value"}},
    {"train.beta1=1", {"train.beta1: 1 is out of range"}},
    {"data.packing=1", {"data.packing: '1' is neither on nor off"}},
    {"data.packing=On", {"'On' is neither on nor off"}},
    {"data.packing=", {"data.packing has no value: give on or off"}},
    {"model.layer=cloa", {"'cloa' is not one of full, cola, svd", "did you mean cola?"}},
    {"model.layer=transformer", {"'transformer' is not one of full, cola, svd"}},
    {"model.layer=COLA", {"'COLA' is not one of full, cola, svd"}},
    {"model.widht=8", {"model.widht is not a key", "did you mean model.width?"}},
    {"model.lr=1", {"model.lr is not a key; did you mean train.lr?"}},
    {"lr=1", {"lr is not a key; did you mean train.lr?"}},
    {"trian.steps=1", {"did you mean train.steps?"}},
    {"train.step=1", {"did you mean train.steps?"}},
    {"learning.speedup=1", {"learning.speedup is not a key", "--print-config"}},
    {"model=8", {"model is not a key"}},
    {"=8", {"expected key=value"}},
    {"train.steps", {"expected key=value, such as train.steps=100"}},
    {"data.train=", {"data.train has no value", "data.train='\"\"'"}},
    {"data.tokenizer=\"\"", {"data.tokenizer has no value"}},
    {"data.train=caf\xe9.txt", {"data.train: byte 3 of the text is not valid UTF-8"}},
    {"data.train=\xc0\x80", {"not valid UTF-8"}},
    {"data.train=\xed\xa0\x80", {"not valid UTF-8"}},
    {"a.very.long.name.that.no.key.could.ever.have.since.it.does.not.fit.in=1", {"so long a name"}},
};

START_TEST(test_bad_argument)
{
    struct config cfg, before;
    const char *argument = bad_arguments[_i].argument;

    config_default(&cfg);
    before = cfg;
    status_clear();
    ck_assert_msg(config_override(&cfg, argument) != ST_OK, "%s was taken", argument);
    expect_parts(argument, bad_arguments[_i].parts);
    ck_assert_msg(strstr(status_message(), argument) != NULL, "%s", status_message());
    ck_assert_msg(!memcmp(&cfg, &before, sizeof cfg), "%s changed the configuration", argument);
}
END_TEST

START_TEST(test_good_arguments)
{
    struct config cfg;

    config_default(&cfg);
    ck_assert_int_eq(config_override(&cfg, "train.steps=1000000000"), ST_OK);
    ck_assert_int_eq(config_override(&cfg, "train.seed=9223372036854775807"), ST_OK);
    ck_assert_int_eq(config_override(&cfg, "train.lr=2.5E-4"), ST_OK);
    ck_assert_int_eq(config_override(&cfg, "train.clip=-0"), ST_OK);
    ck_assert_int_eq(config_override(&cfg, "train.lr_min=.5"), ST_OK);
    ck_assert_int_eq(config_override(&cfg, "data.packing=false"), ST_OK);
    ck_assert_int_eq(config_override(&cfg, "model.tied=on"), ST_OK);
    ck_assert_int_eq(config_override(&cfg, "parallel.strategy=vanilla"), ST_OK);
    ck_assert_int_eq(config_override(&cfg, "data.train=a=b c.txt"), ST_OK);
    ck_assert_int_eq(config_override(&cfg, "data.validation=\"\""), ST_OK);
    ck_assert_int_eq(cfg.train.steps, 1000000000);
    ck_assert_int_eq(cfg.train.seed, INT64_MAX);
    ck_assert_double_eq(cfg.train.lr, 2.5e-4);
    ck_assert_double_eq(cfg.train.lr_min, 0.5);
    ck_assert(!signbit(cfg.train.clip));
    ck_assert(!cfg.data.packing);
    ck_assert(cfg.model.tied);
    ck_assert_int_eq(cfg.parallel.strategy, STRATEGY_VANILLA);
    ck_assert_str_eq(cfg.data.train, "a=b c.txt");
    ck_assert_str_eq(cfg.data.validation, "");
    ck_assert_int_eq(config_override(&cfg, "train.lr=1"), ST_ECONFIG);
    ck_assert_ptr_nonnull(strstr(status_message(), "train.lr is given twice"));
}
END_TEST

START_TEST(test_text_length)
{
    char text[CONFIG_TEXT + 1];
    struct config cfg;

    config_default(&cfg);
    memset(text, 'x', sizeof text);
    text[CONFIG_TEXT] = '\0';
    ck_assert_int_eq(config_set(&cfg, "data.tokenizer", text, ORIGIN_FILE, 1), ST_ECONFIG);
    ck_assert_ptr_nonnull(strstr(status_message(), "512 bytes, at most 511"));
    text[CONFIG_TEXT - 1] = '\0';
    ck_assert_int_eq(config_set(&cfg, "data.tokenizer", text, ORIGIN_FILE, 1), ST_OK);
    ck_assert_str_eq(cfg.data.tokenizer, text);
}
END_TEST

/* A value other than the default, as far from it as the key allows. */
static void unusual(char *out, size_t size, const struct config_key *k)
{
    switch (k->type) {
    case CONFIG_IS_TEXT:
        snprintf(out, size,
                 "a \"b\"\\ \t\x01\x7f: # \xc3\xa9 \xc2\x85 \xe2\x80\xa8 \xef\xbb\xbf "
                 "\xf0\x9f\x98\x80\n ");
        break;
    case CONFIG_IS_INT:
        snprintf(out, size, "%lld", (long long)(k->integer == k->hi ? k->lo : k->hi));
        break;
    case CONFIG_IS_REAL:
        snprintf(out, size, "%.17g", k->real_lo + (k->real_hi - k->real_lo) / 3);
        break;
    case CONFIG_IS_FLAG:
        snprintf(out, size, "%s", k->integer ? "off" : "on");
        break;
    case CONFIG_IS_CHOICE:
        snprintf(out, size, "%s", k->choices[k->integer ? 0 : 1]);
        break;
    }
}

static char *printed(const struct config *cfg)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    ck_assert_ptr_nonnull(out);
    ck_assert_int_eq(config_print(out, cfg), ST_OK);
    ck_assert_int_eq(fclose(out), 0);
    return text;
}

START_TEST(test_print_reads_back)
{
    char value[CONFIG_VALUE], *first, *second;
    struct config cfg, back;

    config_default(&cfg);
    config_default(&back);
    for (int i = 0; i < CONFIG_KEYS; i++) {
        unusual(value, sizeof value, &config_keys()[i]);
        ck_assert_msg(config_set(&cfg, config_keys()[i].name, value, ORIGIN_FILE, 1) == ST_OK, "%s",
                      status_message());
    }
    first = printed(&cfg);
    ck_assert_msg(yaml_read_text(&back, "config.yaml", first, strlen(first)) == ST_OK, "%s\n%s",
                  status_message(), first);
    second = printed(&back);
    ck_assert_str_eq(first, second);
    ck_assert_int_eq(memcmp(&cfg, &back, offsetof(struct config, name)), 0);
    free(first);
    free(second);
}
END_TEST

/* Every key counts for the digest, and nothing else does. */
START_TEST(test_digest)
{
    char value[CONFIG_VALUE];
    struct config cfg, other;
    uint64_t a, b;

    config_default(&cfg);
    ck_assert_int_eq(config_digest(&a, &cfg), ST_OK);
    for (int i = 0; i < CONFIG_KEYS; i++) {
        const struct config_key *k = &config_keys()[i];

        other = cfg;
        unusual(value, sizeof value, k);
        ck_assert_int_eq(config_value_set(&other, k, value), ST_OK);
        ck_assert_int_eq(config_digest(&b, &other), ST_OK);
        ck_assert_msg(a != b, "%s does not count", k->name);
    }
    other = cfg;
    other.line[0] = 7;
    other.origin[0] = ORIGIN_FILE;
    ck_assert_int_eq(config_digest(&b, &other), ST_OK);
    ck_assert_uint_eq(a, b);
}
END_TEST

START_TEST(test_choice_name)
{
    ck_assert_str_eq(config_choice_name("model.layer", LAYER_SVD), "svd");
    ck_assert_str_eq(config_choice_name("run.backend", BACKEND_REF), "ref");
    ck_assert_ptr_null(config_choice_name("model.layer", 3));
    ck_assert_ptr_null(config_choice_name("model.layer", -1));
    ck_assert_ptr_null(config_choice_name("model.width", 0));
    ck_assert_ptr_null(config_choice_name("model.nothing", 0));
}
END_TEST

START_TEST(test_nearest)
{
    struct nearest n = nearest_to("widht");

    ck_assert_int_eq(nearest_distance("width", "width"), 0);
    ck_assert_int_eq(nearest_distance("widht", "width"), 1);
    ck_assert_int_eq(nearest_distance("", "abc"), 3);
    ck_assert_int_eq(nearest_distance("abc", ""), 3);
    ck_assert_int_eq(nearest_distance("kitten", "sitting"), 3);
    ck_assert_int_eq(nearest_distance("abcdef", "abdef"), 1);
    nearest_offer(&n, "height");
    ck_assert_ptr_null(n.best);
    nearest_offer(&n, "width");
    nearest_offer(&n, "with");
    ck_assert_str_eq(n.best, "width");
    n = nearest_to("x");
    nearest_offer(&n, "y");
    ck_assert_ptr_null(n.best);
}
END_TEST

START_TEST(test_table_marks_changes)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    struct config cfg;

    config_default(&cfg);
    cfg.train.lr = 0.25;
    ck_assert_int_eq(config_table(out, &cfg), ST_OK);
    fclose(out);
    ck_assert_ptr_nonnull(
        strstr(text, "train.lr = 0.25    (default 0.001; a number from 0 to 10)"));
    ck_assert_ptr_nonnull(strstr(text, "parallel.timeout = 120 seconds    (default; a number"));
    ck_assert_ptr_nonnull(strstr(text, "model.layer = cola    (default; one of full, cola, svd)"));
    for (int i = 0; i < CONFIG_KEYS; i++)
        ck_assert_ptr_nonnull(strstr(text, config_keys()[i].name));
    free(text);
}
END_TEST

/* docs/config.md is what the table says now. */
START_TEST(test_markdown)
{
    const char *source = getenv("SOURCE");
    char path[1024], *text = NULL, *stored;
    size_t size = 0, n;
    FILE *out = open_memstream(&text, &size), *in;

    ck_assert_int_eq(config_markdown(out), ST_OK);
    fclose(out);
    snprintf(path, sizeof path, "%s/docs/config.md", source ? source : ".");
    in = fopen(path, "rb");
    ck_assert_msg(in != NULL, "%s cannot be opened", path);
    stored = calloc(1, 1 << 20);
    n = fread(stored, 1, (1 << 20) - 1, in);
    fclose(in);
    ck_assert_msg(n == size && !memcmp(stored, text, n),
                  "%s is not what config_markdown() writes: write it again", path);
    free(stored);
    free(text);
}
END_TEST

/* A full disk is reported. */
START_TEST(test_full_disk)
{
    FILE *out = fopen("/dev/full", "w");
    struct config cfg;

    if (!out)
        return;
    config_default(&cfg);
    ck_assert_int_eq(config_print(out, &cfg), ST_EIO);
    fclose(out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config");
    TCase *tests = tcase_create("config");

    tcase_add_test(tests, test_defaults);
    tcase_add_test(tests, test_table);
    tcase_add_loop_test(tests, test_bad_argument, 0,
                        (int)(sizeof bad_arguments / sizeof bad_arguments[0]));
    tcase_add_test(tests, test_good_arguments);
    tcase_add_test(tests, test_text_length);
    tcase_add_test(tests, test_print_reads_back);
    tcase_add_test(tests, test_digest);
    tcase_add_test(tests, test_choice_name);
    tcase_add_test(tests, test_nearest);
    tcase_add_test(tests, test_table_marks_changes);
    tcase_add_test(tests, test_markdown);
    tcase_add_test(tests, test_full_disk);
    suite_add_tcase(suite, tests);
    return check_unit(suite);
}
