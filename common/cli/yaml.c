#include "common/cli/yaml.h"

#include "common/model/nearest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { LARGEST = 1 << 20 }; /* bytes of a file; a configuration has a few thousand */

struct reader {
    yaml_parser_t parser;
    struct config *cfg;
    const char *path;
    int line;      /* of the current event, from 1 */
    unsigned seen; /* bit i: section i of config_sections() was met */
};

/* Records a message with file and line; the first one wins, so this goes before any other. */
#define REFUSE(r, ...)                                                 \
    do {                                                               \
        enum status st_ = fail(ST_ECONFIG, __VA_ARGS__);               \
        status_prefix("%s:%d: ", (r)->path, (r)->line);                \
        return status_trace(st_, __FILE__, __LINE__, "configuration"); \
    } while (0)

static enum status syntax_error(struct reader *r)
{
    const yaml_parser_t *p = &r->parser;
    const char *problem = p->problem ? p->problem : "cannot be parsed";

    if (p->error == YAML_MEMORY_ERROR)
        return fail(ST_ENOMEM, "%s: no memory to read the configuration", r->path);
    if (p->error == YAML_READER_ERROR)
        return fail(ST_ECONFIG, "%s: byte %zu is not text: %s (0x%02x)", r->path, p->problem_offset,
                    problem, (unsigned)p->problem_value & 0xff);
    r->line = (int)p->problem_mark.line + 1;
    REFUSE(r,
           "not valid YAML: %s (column %zu); is the indentation made of blanks, and is there "
           "a blank after each colon?",
           problem, p->problem_mark.column + 1);
}

static enum status refuse_extras(struct reader *r, const yaml_event_t *e)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;

    if (e->type == YAML_ALIAS_EVENT)
        REFUSE(r, "the alias *%s is not supported: write the value out",
               (const char *)e->data.alias.anchor);
    if (e->type == YAML_SCALAR_EVENT) {
        anchor = e->data.scalar.anchor;
        tag = e->data.scalar.tag;
    } else if (e->type == YAML_MAPPING_START_EVENT) {
        anchor = e->data.mapping_start.anchor;
        tag = e->data.mapping_start.tag;
    }
    if (anchor)
        REFUSE(r, "the anchor &%s is not supported: write the value where it is needed",
               (const char *)anchor);
    if (tag)
        REFUSE(r, "the tag %s is not supported: leave it out", (const char *)tag);
    return ST_OK;
}

/* The next event, which the caller deletes; on failure there is nothing to delete. */
static enum status next(struct reader *r, yaml_event_t *e)
{
    enum status st;

    if (!yaml_parser_parse(&r->parser, e))
        return syntax_error(r);
    r->line = (int)e->start_mark.line + 1;
    st = refuse_extras(r, e);
    if (st != ST_OK)
        yaml_event_delete(e);
    return st;
}

static const char *found(yaml_event_type_t type)
{
    switch (type) {
    case YAML_SCALAR_EVENT:
        return "a single value";
    case YAML_SEQUENCE_START_EVENT:
        return "a list";
    case YAML_MAPPING_START_EVENT:
        return "a mapping";
    case YAML_STREAM_END_EVENT:
        return "the end of the file";
    default:
        return "nothing";
    }
}

/* Nonzero for what YAML reads as no value at all. */
static int is_null(const char *text, yaml_scalar_style_t style)
{
    return style == YAML_PLAIN_SCALAR_STYLE &&
           (!*text || !strcmp(text, "~") || !strcmp(text, "null") || !strcmp(text, "Null") ||
            !strcmp(text, "NULL"));
}

static enum status set_value(struct reader *r, const char *name, const yaml_event_t *e)
{
    const char *text = (const char *)e->data.scalar.value;
    yaml_scalar_style_t style = e->data.scalar.style;
    const struct config_key *k = config_find(name);
    enum status st;

    if (k && is_null(text, style))
        REFUSE(r, "%s has no value%s", name,
               k->may_be_empty ? ": an empty text is written \"\"" : ": give one, or drop the key");
    if (k && style != YAML_PLAIN_SCALAR_STYLE && k->type != CONFIG_IS_TEXT &&
        k->type != CONFIG_IS_CHOICE)
        REFUSE(r, "%s: the text \"%s\" stands in quotes where a %s is expected: write it without",
               name, text, k->type == CONFIG_IS_FLAG ? "switch" : "number");
    if (k && strlen(text) != e->data.scalar.length)
        REFUSE(r, "%s: the text holds a zero byte", name);
    st = config_set(r->cfg, name, text, ORIGIN_FILE, r->line);
    if (st != ST_OK)
        status_prefix("%s:%d: ", r->path, r->line);
    return st;
}

/* The full name of the key that event e spells inside section. */
static enum status key_name(struct reader *r, char name[128], const char *section,
                            const yaml_event_t *e)
{
    const char *key = (const char *)e->data.scalar.value;

    if (e->type != YAML_SCALAR_EVENT)
        REFUSE(r, "%s: expected a key, found %s", section, found(e->type));
    if (snprintf(name, 128, "%s.%s", section, key) >= 128)
        REFUSE(r, "%s.%.40s... is not a key: no key has so long a name", section, key);
    return ST_OK;
}

/* Appends one entry to "[a, b". */
static enum status add_entry(struct reader *r, char list[CONFIG_LIST], const char *name,
                             const yaml_event_t *e)
{
    const char *text = (const char *)e->data.scalar.value;
    size_t n = strlen(list);

    if (e->type != YAML_SCALAR_EVENT)
        REFUSE(r, "%s: expected a text in the list, found %s", name, found(e->type));
    if (strlen(text) != e->data.scalar.length || !*text)
        REFUSE(r, "%s: a text of the list is empty or holds a zero byte", name);
    if (strchr(text, ','))
        REFUSE(r, "%s: '%s' holds a comma, which parts the entries of a list", name, text);
    if (n + strlen(text) + 4 > CONFIG_LIST)
        REFUSE(r, "%s: the list has more than %d bytes", name, CONFIG_LIST - 1);
    snprintf(list + n, CONFIG_LIST - n, "%s%s", n > 1 ? ", " : "", text);
    return ST_OK;
}

/* A YAML list as the text "[a, b]". Its beginning has been read. */
static enum status read_list(struct reader *r, const char *name)
{
    char list[CONFIG_LIST] = "[";
    int line = r->line;
    yaml_event_t e;
    enum status st;

    for (;;) {
        TRY(next(r, &e));
        if (e.type == YAML_SEQUENCE_END_EVENT)
            break;
        st = add_entry(r, list, name, &e);
        yaml_event_delete(&e);
        TRY(st);
    }
    yaml_event_delete(&e);
    snprintf(list + strlen(list), 2, "]");
    st = config_set(r->cfg, name, list, ORIGIN_FILE, line);
    if (st != ST_OK)
        status_prefix("%s:%d: ", r->path, line);
    return st;
}

static enum status read_key(struct reader *r, const char *section, const yaml_event_t *key)
{
    char name[128];
    yaml_event_t e;
    yaml_event_type_t type;
    enum status st = ST_OK;
    int list = 0;

    TRY(key_name(r, name, section, key));
    TRY(next(r, &e));
    type = e.type;
    if (type == YAML_SCALAR_EVENT) {
        st = set_value(r, name, &e);
    } else if (type == YAML_SEQUENCE_START_EVENT && config_find(name) && config_find(name)->list) {
        list = 1;
        st = read_list(r, name);
    } else if (!config_find(name)) { /* what it holds does not matter then */
        st = config_set(r->cfg, name, "", ORIGIN_FILE, r->line);
        status_prefix("%s:%d: ", r->path, (int)key->start_mark.line + 1);
    }
    yaml_event_delete(&e);
    TRY(st);
    if (type != YAML_SCALAR_EVENT && !list)
        REFUSE(r, "%s: expected a single value, found %s", name, found(type));
    return ST_OK;
}

static enum status read_section(struct reader *r, const char *section)
{
    yaml_event_t e;
    enum status st = ST_OK;

    TRY(next(r, &e));
    if (e.type != YAML_MAPPING_START_EVENT) {
        const char *what = e.type == YAML_SCALAR_EVENT ? "a value or nothing" : found(e.type);

        yaml_event_delete(&e);
        REFUSE(r, "%s: expected its keys on the lines below, indented, found %s", section, what);
    }
    for (;;) {
        yaml_event_delete(&e);
        TRY(next(r, &e));
        if (e.type == YAML_MAPPING_END_EVENT)
            break;
        st = read_key(r, section, &e);
        if (st != ST_OK)
            break;
    }
    yaml_event_delete(&e);
    return st;
}

/* Says why `section` is none. */
static enum status unknown_section(struct reader *r, const char *section)
{
    struct nearest near = nearest_to(section);

    if (config_find(section))
        REFUSE(r,
               "%s: in a file a key stands below its section: write %.*s: and the key under it, "
               "indented",
               section, (int)strcspn(section, "."), section);
    for (int i = 0; i < CONFIG_KEYS; i++)
        if (!strcmp(config_keys()[i].key, section))
            REFUSE(r, "%s belongs into section %s: write %s: and %s under it, indented", section,
                   config_keys()[i].section, config_keys()[i].section, section);
    for (const struct config_section *s = config_sections(); s->name; s++)
        nearest_offer(&near, s->name);
    if (near.best)
        REFUSE(r, "%s is not a section; did you mean %s?", section, near.best);
    REFUSE(r, "%s is not a section: they are model, data, train, parallel, run, checkpoint, sample",
           section);
}

/* Checks that `section` exists and is met for the first time. */
static enum status check_section(struct reader *r, const char *section)
{
    for (unsigned i = 0; config_sections()[i].name; i++) {
        if (strcmp(config_sections()[i].name, section) != 0)
            continue;
        if (r->seen >> i & 1)
            REFUSE(r, "section %s is given twice: put all of its keys into one", section);
        r->seen |= 1u << i;
        return ST_OK;
    }
    return unknown_section(r, section);
}

/* The section that event e names. */
static enum status section_name(struct reader *r, char section[64], const yaml_event_t *e)
{
    if (e->type != YAML_SCALAR_EVENT)
        REFUSE(r, "expected the name of a section, found %s", found(e->type));
    snprintf(section, 64, "%s", (const char *)e->data.scalar.value);
    TRY(check_section(r, section));
    return ST_OK;
}

static enum status read_root(struct reader *r)
{
    char section[64];
    yaml_event_t e;
    enum status st = ST_OK;

    TRY(next(r, &e));
    if (e.type != YAML_MAPPING_START_EVENT) {
        const char *what = found(e.type);

        yaml_event_delete(&e);
        REFUSE(r, "expected sections such as model: and train:, found %s", what);
    }
    for (;;) {
        yaml_event_delete(&e);
        TRY(next(r, &e));
        if (e.type == YAML_MAPPING_END_EVENT)
            break;
        st = section_name(r, section, &e);
        if (st == ST_OK)
            st = read_section(r, section);
        if (st != ST_OK)
            break;
    }
    yaml_event_delete(&e);
    return st;
}

/* Start of the stream, one document, end of the stream. */
static enum status read_stream(struct reader *r)
{
    yaml_event_t e;
    yaml_event_type_t type;

    TRY(next(r, &e));
    yaml_event_delete(&e);
    TRY(next(r, &e));
    type = e.type;
    yaml_event_delete(&e);
    if (type == YAML_STREAM_END_EVENT)
        return fail(ST_ECONFIG,
                    "%s: the file has no content: `narrows train --print-config` "
                    "shows the keys to write",
                    r->path);
    TRY(read_root(r));
    TRY(next(r, &e)); /* end of the document */
    yaml_event_delete(&e);
    TRY(next(r, &e));
    type = e.type;
    yaml_event_delete(&e);
    if (type != YAML_STREAM_END_EVENT)
        REFUSE(r, "a second document begins: a file holds one configuration");
    return ST_OK;
}

/* "examples/quickstart.yaml" names the configuration quickstart. */
static enum status set_name(struct config *cfg, const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    size_t n = dot && dot > base ? (size_t)(dot - base) : strlen(base);

    if (n >= sizeof cfg->name)
        return fail(ST_ECONFIG, "%s: the name of the file has %zu bytes, at most %zu are allowed",
                    path, n, sizeof cfg->name - 1);
    memcpy(cfg->name, base, n);
    cfg->name[n] = '\0';
    return ST_OK;
}

enum status yaml_read_text(struct config *cfg, const char *path, const char *text, size_t n)
{
    struct reader r = {.cfg = cfg, .path = path, .line = 1};
    enum status st;

    TRY(set_name(cfg, path));
    if (!yaml_parser_initialize(&r.parser))
        return fail(ST_ENOMEM, "%s: no memory to read the configuration", path);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, n);
    st = read_stream(&r);
    yaml_parser_delete(&r.parser);
    TRY(st);
    return ST_OK;
}

enum status yaml_read(struct config *cfg, const char *path)
{
    FILE *in = fopen(path, "rb");
    char *text = in ? malloc(LARGEST + 1) : NULL;
    size_t n = text ? fread(text, 1, LARGEST + 1, in) : 0;
    enum status st = ST_OK;

    if (!in)
        return fail(ST_EIO, "configuration %s cannot be opened: %s", path, strerror(errno));
    if (!text)
        st = fail(ST_ENOMEM, "%s: no memory to read the configuration", path);
    else if (ferror(in))
        st = fail(ST_EIO, "configuration %s cannot be read: %s", path, strerror(errno));
    else if (n > LARGEST)
        st = fail(ST_EIO, "configuration %s is larger than %d bytes: is it the right file?", path,
                  LARGEST);
    fclose(in);
    if (st == ST_OK)
        st = yaml_read_text(cfg, path, text, n);
    free(text);
    TRY(st);
    return ST_OK;
}
