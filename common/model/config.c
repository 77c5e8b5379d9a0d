#include "common/model/config.h"

#include "common/model/config_value.h"
#include "common/model/nearest.h"

#include <string.h>

/* clang-format off */
#define KIND(kind)       static const char *const kind##_words[] = {
#define CODE(code, text) text,
#define END()            NULL};
#include "common/model/config_choices.def"

#define ROW(sec, k, is, h)                                                                       \
    .section = #sec, .key = #k, .name = #sec "." #k, .type = (is), .help = (h),                  \
    .offset = offsetof(struct config, sec) + offsetof(struct config_##sec, k)

static const struct config_key table[CONFIG_KEYS] = {
#define SECTION(sec, h)
#define TEXT(sec, k, init, empty, h)       {ROW(sec, k, CONFIG_IS_TEXT, h), .unit = "",          \
                                            .text = (init), .may_be_empty = (empty)},
#define LIST(sec, k, h)                    {ROW(sec, k, CONFIG_IS_TEXT, h), .unit = "",          \
                                            .text = "", .may_be_empty = true, .list = true},
#define INT(sec, k, init, min, max, u, h)  {ROW(sec, k, CONFIG_IS_INT, h), .unit = (u),          \
                                            .integer = (init), .lo = (min), .hi = (max)},
#define REAL(sec, k, init, min, max, u, h) {ROW(sec, k, CONFIG_IS_REAL, h), .unit = (u),         \
                                            .real = (init), .real_lo = (min), .real_hi = (max)},
#define FLAG(sec, k, init, h)              {ROW(sec, k, CONFIG_IS_FLAG, h), .unit = "",          \
                                            .integer = (init)},
#define CHOICE(sec, k, kind, init, h)      {ROW(sec, k, CONFIG_IS_CHOICE, h), .unit = "",        \
                                            .integer = (init), .choices = kind##_words},
#define END(sec)
#include "common/model/config_keys.def"
};

static const struct config_section sections[] = {
#define SECTION(sec, h)                    {#sec, (h)},
#define TEXT(sec, k, init, empty, h)
#define LIST(sec, k, h)
#define INT(sec, k, init, min, max, u, h)
#define REAL(sec, k, init, min, max, u, h)
#define FLAG(sec, k, init, h)
#define CHOICE(sec, k, kind, init, h)
#define END(sec)
#include "common/model/config_keys.def"
    {NULL, NULL},
};
/* clang-format on */

const struct config_key *config_keys(void)
{
    return table;
}

const struct config_section *config_sections(void)
{
    return sections;
}

const struct config_key *config_find(const char *name)
{
    for (int i = 0; i < CONFIG_KEYS; i++)
        if (!strcmp(table[i].name, name))
            return &table[i];
    return NULL;
}

const char *config_choice_name(const char *name, int value)
{
    const struct config_key *k = config_find(name);

    if (!k || k->type != CONFIG_IS_CHOICE || value < 0)
        return NULL;
    for (int i = 0; k->choices[i]; i++)
        if (i == value)
            return k->choices[i];
    return NULL;
}

void config_default(struct config *cfg)
{
    memset(cfg, 0, sizeof *cfg);
    for (int i = 0; i < CONFIG_KEYS; i++)
        config_value_default(cfg, &table[i]);
}

/* The same key in another section is the likeliest slip ("model.lr"), then a misspelling. */
static const char *suggestion(const char *name)
{
    const char *dot = strchr(name, '.'), *key = dot ? dot + 1 : name;
    struct nearest near = nearest_to(name), near_key = nearest_to(key);

    for (int i = 0; i < CONFIG_KEYS; i++)
        if (!strcmp(table[i].key, key))
            return table[i].name;
    for (int i = 0; i < CONFIG_KEYS; i++) {
        nearest_offer(&near, table[i].name);
        nearest_offer(&near_key, table[i].key);
    }
    for (int i = 0; !near.best && near_key.best && i < CONFIG_KEYS; i++)
        if (!strcmp(table[i].key, near_key.best))
            return table[i].name;
    return near.best;
}

static enum status unknown_key(const char *name)
{
    const char *best = suggestion(name);

    if (best)
        return fail(ST_ECONFIG, "%s is not a key; did you mean %s?", name, best);
    return fail(ST_ECONFIG, "%s is not a key: --print-config lists them all", name);
}

enum status config_set(struct config *cfg, const char *name, const char *text,
                       enum config_origin origin, int line)
{
    const struct config_key *k = config_find(name);
    ptrdiff_t i = k - table;

    if (!k)
        return unknown_key(name);
    if (cfg->origin[i] == origin && cfg->line[i])
        return fail(ST_ECONFIG, "%s is given twice, first on line %d: keep one", name,
                    cfg->line[i]);
    if (cfg->origin[i] == origin)
        return fail(ST_ECONFIG, "%s is given twice: keep one", name);
    TRY(config_value_set(cfg, k, text));
    cfg->origin[i] = (unsigned char)origin;
    cfg->line[i] = line;
    return ST_OK;
}

/* config_set with the two quotes that stand for an empty text on a command line. */
static enum status set_argument(struct config *cfg, const char *name, const char *text)
{
    const struct config_key *k = config_find(name);

    if (k && k->type == CONFIG_IS_TEXT && !strcmp(text, "\"\""))
        text = "";
    else if (k && k->may_be_empty && !*text)
        return fail(ST_ECONFIG, "%s has no value: an empty text is written %s='\"\"'", name, name);
    return config_set(cfg, name, text, ORIGIN_ARGUMENT, 0);
}

enum status config_override(struct config *cfg, const char *argument)
{
    char name[64];
    const char *equals = strchr(argument, '=');
    size_t n = equals ? (size_t)(equals - argument) : 0;
    enum status st;

    if (!n)
        return fail(ST_EUSAGE, "argument '%s': expected key=value, such as train.steps=100",
                    argument);
    if (n >= sizeof name)
        return fail(ST_ECONFIG, "argument '%s': no key has so long a name", argument);
    memcpy(name, argument, n);
    name[n] = '\0';
    st = set_argument(cfg, name, equals + 1);
    if (st != ST_OK)
        status_prefix("argument '%s': ", argument);
    TRY(st);
    return ST_OK;
}
