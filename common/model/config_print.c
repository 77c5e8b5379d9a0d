#include "common/base/hash.h"
#include "common/model/config.h"
#include "common/model/config_value.h"

#include <stdlib.h>
#include <string.h>

static enum status written(FILE *out)
{
    if (fflush(out) || ferror(out))
        return fail(ST_EIO, "the configuration could not be written: the disk may be full");
    return ST_OK;
}

/* Nonzero when row i begins a section. */
static int begins(int i)
{
    return i == 0 || strcmp(config_keys()[i].section, config_keys()[i - 1].section) != 0;
}

static const char *section_help(const char *name)
{
    const struct config_section *s = config_sections();

    while (s->name && strcmp(s->name, name) != 0)
        s++;
    return s->name ? s->help : "";
}

enum status config_print(FILE *out, const struct config *cfg)
{
    char value[CONFIG_VALUE];

    for (int i = 0; i < CONFIG_KEYS; i++) {
        const struct config_key *k = &config_keys()[i];

        if (begins(i))
            fprintf(out, "%s%s:\n", i ? "\n" : "", k->section);
        config_value_write(value, sizeof value, k, cfg);
        fprintf(out, "  %s: %s\n", k->key, value);
    }
    return written(out);
}

enum status config_table(FILE *out, const struct config *cfg)
{
    char value[CONFIG_VALUE], init[CONFIG_VALUE], allowed[CONFIG_ALLOWED];
    struct config defaults;

    config_default(&defaults);
    for (int i = 0; i < CONFIG_KEYS; i++) {
        const struct config_key *k = &config_keys()[i];

        if (begins(i))
            fprintf(out, "%s# %s\n", i ? "\n" : "", section_help(k->section));
        config_value_write(value, sizeof value, k, cfg);
        config_value_write(init, sizeof init, k, &defaults);
        config_value_allowed(allowed, k);
        fprintf(out, "%s = %s", k->name, value);
        fprintf(out, *k->unit ? " %s" : "%s", k->unit);
        fprintf(out, strcmp(value, init) ? "    (default %s; %s)\n" : "    (default; %s%s)\n",
                strcmp(value, init) ? init : "", allowed);
        fprintf(out, "    %s\n", k->help);
    }
    return written(out);
}

/* Text as a cell of a Markdown table. */
static void cell(FILE *out, const char *text)
{
    for (; *text; text++)
        fprintf(out, *text == '|' ? "\\%c" : "%c", *text);
    fputs(" | ", out);
}

static void markdown_row(FILE *out, const struct config_key *k, const struct config *defaults)
{
    char init[CONFIG_VALUE], code[CONFIG_VALUE + 2], allowed[CONFIG_ALLOWED];

    config_value_write(init, sizeof init, k, defaults);
    config_value_allowed(allowed, k);
    snprintf(code, sizeof code, "`%s`", init);
    fprintf(out, "| `%s` | ", k->key);
    cell(out, code);
    cell(out, k->unit);
    cell(out, allowed);
    cell(out, k->help);
    fputc('\n', out);
}

enum status config_markdown(FILE *out)
{
    struct config defaults;

    config_default(&defaults);
    fputs("# Configuration\n\n"
          "<!-- Written by `narrows config` from common/model/config_keys.def. -->\n\n"
          "A configuration is a YAML file of the sections below. Every key has a default. Keys on\n"
          "the command line, written `train.lr=1e-3`, win over the file; a preset\n"
          "(`model.preset: 60m-cola`, see `narrows presets`) gives sizes to the keys of `model`\n"
          "that stand beside it in neither place, and one named on the command line replaces\n"
          "the sizes of the file.\n\n"
          "Reading is strict: an unknown, misspelt or doubled key, a value of the wrong kind or\n"
          "out of its range, anchors, aliases and tags are refused with file and line. Whole\n"
          "numbers are plain digits (`1000`, not `1e3`). On a command line an empty text is\n"
          "written `key='\"\"'`.\n\n"
          "`narrows train FILE --print-config` prints the values that a run would use.\n",
          out);
    for (int i = 0; i < CONFIG_KEYS; i++) {
        const struct config_key *k = &config_keys()[i];

        if (begins(i))
            fprintf(out,
                    "\n## %s\n\n%s.\n\n| key | default | unit | allowed | meaning |\n"
                    "|---|---|---|---|---|\n",
                    k->section, section_help(k->section));
        markdown_row(out, k, &defaults);
    }
    return written(out);
}

enum status config_digest(uint64_t *digest, const struct config *cfg)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    enum status st;

    if (!out)
        return fail(ST_ENOMEM, "no memory to print the configuration");
    st = config_print(out, cfg);
    if (fclose(out) && st == ST_OK)
        st = fail(ST_ENOMEM, "no memory to print the configuration");
    if (st == ST_OK)
        *digest = hash_bytes(text, size);
    free(text);
    TRY(st);
    return ST_OK;
}
