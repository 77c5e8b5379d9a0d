/* Configuration files: what is refused, with which line, and what is taken. */
#include "common/cli/yaml.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *text;
    const char *parts[4];
} bad[] = {
    {"", {"x.yaml: the file has no content"}},
    {"# only a comment\n", {"x.yaml: the file has no content"}},
    {"---\n", {"x.yaml:2: ", "expected sections", "a single value"}},
    {"hello\n", {"x.yaml:1: ", "expected sections such as model: and train:"}},
    {"- model\n", {"x.yaml:1: ", "found a list"}},
    {"model:\n  widht: 8\n", {"x.yaml:2: ", "model.widht is not a key", "mean model.width?"}},
    {"model:\n  lr: 8\n", {"x.yaml:2: ", "did you mean train.lr?"}},
    {"modle:\n  width: 8\n", {"x.yaml:1: ", "modle is not a section; did you mean model?"}},
    {"optimizer:\n  lr: 1\n", {"x.yaml:1: ", "optimizer is not a section", "parallel, run"}},
    {"lr: 1e-3\n", {"x.yaml:1: ", "lr belongs into section train"}},
    {"model.width: 8\n", {"x.yaml:1: ", "model.width: in a file", "write model:"}},
    {"model:\n  model.width: 8\n", {"x.yaml:2: ", "model.model.width is not a key"}},
    {"model:\n  width: 8\n  layers: 2\n  width: 16\n",
     {"x.yaml:4: ", "model.width is given twice", "first on line 2"}},
    {"model:\n  width: 8\ntrain:\n  lr: 1\nmodel:\n  heads: 2\n",
     {"x.yaml:5: ", "section model is given twice"}},
    {"train:\n\n  steps: 1e3\n", {"x.yaml:3: ", "train.steps: '1e3' is not a whole number"}},
    {"train:\n  steps: abc\n", {"x.yaml:2: ", "'abc' is not a whole number"}},
    {"train:\n  steps: -1\n", {"x.yaml:2: ", "-1 is out of range"}},
    {"train:\n  steps: 1099511627776\n", {"x.yaml:2: ", "1099511627776 is out of range"}},
    {"train:\n  lr: .nan\n", {"x.yaml:2: ", "'.nan' is not a number"}},
    {"train:\n  lr: .inf\n", {"x.yaml:2: ", "'.inf' is not a number"}},
    {"train:\n  steps: 10 steps\n", {"x.yaml:2: ", "'10 steps' is not a whole number"}},
    {"train:\n  steps: 10\n    20\n", {"x.yaml:2: ", "'10 20' is not a whole number"}},
    {"train:\n  steps:\n", {"x.yaml:2: ", "train.steps has no value"}},
    {"train:\n  steps: ~\n", {"x.yaml:2: ", "train.steps has no value"}},
    {"train:\n  steps: \"\"\n", {"x.yaml:2: ", "train.steps", "in quotes"}},
    {"train:\n  steps: '10'\n", {"x.yaml:2: ", "stands in quotes where a number"}},
    {"data:\n  packing: 'on'\n", {"x.yaml:2: ", "stands in quotes where a switch"}},
    {"data:\n  train:\n", {"x.yaml:2: ", "data.train has no value", "written \"\""}},
    {"data:\n  train: null\n", {"x.yaml:2: ", "data.train has no value"}},
    {"data:\n  tokenizer: \"\"\n", {"x.yaml:2: ", "data.tokenizer has no value: give text"}},
    {"data:\n  train: \"a\\0b\"\n", {"x.yaml:2: ", "zero byte"}},
    {"model:\n  layer: cloa\n", {"x.yaml:2: ", "not one of full, cola, svd", "mean cola?"}},
    {"train:\n  lr:\n    peak: 1\n", {"x.yaml:", "train.lr: expected a single value", "a mapping"}},
    {"train:\n  lr: [1, 2]\n", {"x.yaml:2: ", "train.lr: expected a single value", "a list"}},
    {"train:\n  rate: [1, 2]\n", {"x.yaml:2: ", "train.rate is not a key"}},
    {"train: 5\n", {"x.yaml:1: ", "train: expected its keys on the lines below"}},
    {"train:\n", {"x.yaml:1: ", "train: expected its keys", "nothing"}},
    {"train:\nsteps: 5\n", {"x.yaml:1: ", "train: expected its keys", "nothing"}},
    {"data:\n  train: [a, [b]]\n",
     {"x.yaml:2: ", "data.train: expected a text in the list", "a list"}},
    {"data:\n  train:\n    - a\n    - 'b,c'\n", {"x.yaml:4: ", "'b,c' holds a comma"}},
    {"data:\n  train: [a, \"\"]\n", {"x.yaml:2: ", "empty"}},
    {"data:\n  tokenizer: [a]\n", {"x.yaml:2: ", "expected a single value", "a list"}},
    {"train: [steps]\n", {"x.yaml:1: ", "found a list"}},
    {"train:\n  steps: &n 5\n", {"x.yaml:2: ", "the anchor &n is not supported"}},
    {"train: &t\n  steps: 5\n", {"x.yaml:1: ", "the anchor &t is not supported"}},
    {"train:\n  steps: *n\n", {"x.yaml:2: ", "the alias *n is not supported"}},
    {"train:\n  <<: *n\n", {"x.yaml:2: ", "the alias *n is not supported"}},
    {"train:\n  steps: !!int 5\n", {"x.yaml:2: ", "the tag", "leave it out"}},
    {"train: !t\n  steps: 5\n", {"x.yaml:1: ", "the tag !t is not supported"}},
    {"train:\n\tsteps: 5\n", {"x.yaml:2: ", "not valid YAML", "blanks"}},
    {"train:\n  steps: 5\n lr: 1\n", {"x.yaml:3: ", "not valid YAML"}},
    {"train: {steps: 5\n", {"x.yaml:", "not valid YAML"}},
    {"train:\n  steps:5\n", {"x.yaml:2: ", "train: expected its keys", "a value"}},
    {"train:\n  steps: 5\n---\nmodel:\n  width: 8\n", {"x.yaml:3: ", "a second document"}},
    {"train:\n  ? [steps]\n  : 5\n", {"x.yaml:2: ", "train: expected a key, found a list"}},
    {"? {a: b}\n: 5\n", {"x.yaml:1: ", "expected the name of a section, found a mapping"}},
    {"train:\n  steps: \xff\n", {"x.yaml: byte ", "is not text"}},
};

START_TEST(test_bad_file)
{
    struct config cfg;

    config_default(&cfg);
    status_clear();
    ck_assert_msg(yaml_read_text(&cfg, "x.yaml", bad[_i].text, strlen(bad[_i].text)) == ST_ECONFIG,
                  "was taken, or another status: %s\n%s", bad[_i].text, status_message());
    for (int p = 0; p < 4 && bad[_i].parts[p]; p++)
        ck_assert_msg(strstr(status_message(), bad[_i].parts[p]) != NULL, "%s gave: %s\n lacks: %s",
                      bad[_i].text, status_message(), bad[_i].parts[p]);
    /* the place once, not once a level */
    ck_assert_ptr_null(strstr(strstr(status_message(), "x.yaml") + 1, "x.yaml"));
}
END_TEST

START_TEST(test_good_file)
{
    static const char text[] = "\xef\xbb\xbf# comment\r\n"
                               "%YAML 1.1\r\n---\r\n"
                               "train: {steps: 7, lr: 1E-3}   # inline\r\n"
                               "data:\r\n"
                               "  train: a b.txt   \r\n"
                               "  validation:\r\n    - 0.7 c d\r\n    - '0.3 e-[0-9].bin'\r\n"
                               "  packing: false\r\n"
                               "  document_separator: '# not a comment'\r\n"
                               "model:\r\n"
                               "  layer: \"svd\"\r\n"
                               "  outer_silu: on\r\n"
                               "sample:\r\n"
                               "  prompt: |\r\n    two\r\n    lines\r\n";
    struct config cfg;

    config_default(&cfg);
    ck_assert_msg(yaml_read_text(&cfg, "some/dir.d/my.run.yaml", text, strlen(text)) == ST_OK, "%s",
                  status_message());
    ck_assert_str_eq(cfg.name, "my.run");
    ck_assert_int_eq(cfg.train.steps, 7);
    ck_assert_double_eq(cfg.train.lr, 1e-3);
    ck_assert_str_eq(cfg.data.train, "a b.txt");
    ck_assert_str_eq(cfg.data.validation, "[0.7 c d, 0.3 e-[0-9].bin]");
    ck_assert(!cfg.data.packing);
    ck_assert_str_eq(cfg.data.document_separator, "# not a comment");
    ck_assert_int_eq(cfg.model.layer, LAYER_SVD);
    ck_assert_int_eq(cfg.model.outer_silu, SILU_ON);
    ck_assert_str_eq(cfg.sample.prompt, "two\nlines\n");
    ck_assert_int_eq(cfg.origin[config_find("train.lr") - config_keys()], ORIGIN_FILE);
    ck_assert_int_eq(cfg.line[config_find("data.train") - config_keys()], 6);
    /* arguments win over the file */
    ck_assert_int_eq(config_override(&cfg, "train.steps=9"), ST_OK);
    ck_assert_int_eq(cfg.train.steps, 9);
}
END_TEST

static void write_file(const char *path, size_t size)
{
    FILE *out = fopen(path, "w");

    ck_assert_ptr_nonnull(out);
    for (size_t i = 0; i < size; i++)
        fputc('#', out);
    fclose(out);
}

START_TEST(test_files)
{
    char dir[] = "/tmp/test_config_XXXXXX", path[64];
    struct config cfg;

    config_default(&cfg);
    ck_assert_ptr_nonnull(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/missing.yaml", dir);
    ck_assert_int_eq(yaml_read(&cfg, path), ST_EIO);
    ck_assert_ptr_nonnull(strstr(status_message(), path));
    ck_assert_ptr_nonnull(strstr(status_message(), strerror(ENOENT)));
    status_clear();
    ck_assert_int_eq(yaml_read(&cfg, dir), ST_EIO);
    ck_assert_ptr_nonnull(strstr(status_message(), strerror(EISDIR)));
    status_clear();
    snprintf(path, sizeof path, "%s/a.yaml", dir);
    write_file(path, (1 << 20) + 1);
    ck_assert_int_eq(yaml_read(&cfg, path), ST_EIO);
    ck_assert_ptr_nonnull(strstr(status_message(), "larger than 1048576 bytes"));
    status_clear();
    write_file(path, 0);
    ck_assert_int_eq(yaml_read(&cfg, path), ST_ECONFIG);
    ck_assert_ptr_nonnull(strstr(status_message(), "no content"));
    status_clear();
    ck_assert_int_eq(chmod(path, 0), 0);
    if (access(path, R_OK) != 0) /* root may read everything */
        ck_assert_int_eq(yaml_read(&cfg, path), ST_EIO);
    unlink(path);
    rmdir(dir);
}
END_TEST

START_TEST(test_long_name)
{
    char path[300];
    struct config cfg;

    config_default(&cfg);
    memset(path, 'n', sizeof path);
    memcpy(path + sizeof path - 6, ".yaml", 6);
    ck_assert_int_eq(yaml_read_text(&cfg, path, "", 0), ST_ECONFIG);
    ck_assert_ptr_nonnull(strstr(status_message(), "name of the file has 294 bytes"));
}
END_TEST

/* Every example is read, resolved and valid on the ranks that it asks for. */
START_TEST(test_examples)
{
    const char *source = getenv("SOURCE");
    char folder[512], path[1024];
    struct dirent *entry;
    struct config cfg;
    DIR *dir;
    int met = 0;

    snprintf(folder, sizeof folder, "%s/examples", source ? source : ".");
    dir = opendir(folder);
    ck_assert_msg(dir != NULL, "%s cannot be opened", folder);
    while ((entry = readdir(dir)) != NULL) {
        if (!strstr(entry->d_name, ".yaml"))
            continue;
        met++;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        config_default(&cfg);
        ck_assert_msg(yaml_read(&cfg, path) == ST_OK, "%s", status_message());
        ck_assert_msg(config_resolve(&cfg, 0, 259) == ST_OK, "%s", status_message());
        ck_assert_msg(config_validate(&cfg, 0) == ST_OK, "%s: %s", path, status_message());
        ck_assert_msg(config_need_data(&cfg) == ST_OK, "%s: %s", path, status_message());
    }
    closedir(dir);
    ck_assert_int_ge(met, 7);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config file");
    TCase *tests = tcase_create("config file");

    tcase_add_loop_test(tests, test_bad_file, 0, (int)(sizeof bad / sizeof bad[0]));
    tcase_add_test(tests, test_good_file);
    tcase_add_test(tests, test_files);
    tcase_add_test(tests, test_long_name);
    tcase_add_test(tests, test_examples);
    suite_add_tcase(suite, tests);
    return check_unit(suite);
}
