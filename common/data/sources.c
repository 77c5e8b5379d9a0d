#include "common/data/sources.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { DECIMALS = 6, MILLION = 1000000 };

/* Reads "0.25" as 250000; returns where it ends, NULL when that is no weight. */
static const char *read_weight(int64_t *millionths, const char *text)
{
    int64_t value = 0;
    int digits = 0, decimals = 0;

    for (; isdigit((unsigned char)*text); text++, digits++)
        value = value > MILLION ? value : 10 * value + (*text - '0');
    if (*text == '.')
        for (text++; isdigit((unsigned char)*text); text++, digits++)
            if (decimals++ < DECIMALS)
                value = 10 * value + (*text - '0');
    if (digits == 0 || decimals > DECIMALS)
        return NULL;
    for (int i = decimals; i < DECIMALS; i++)
        value *= 10;
    *millionths = value;
    return text;
}

static char *trim(char *text)
{
    size_t n;

    while (*text == ' ')
        text++;
    n = strlen(text);
    while (n > 0 && text[n - 1] == ' ')
        text[--n] = '\0';
    return text;
}

/* "0.7 data/books": a number, blanks, a path. Without a number all of it is the path. */
static enum status read_entry(struct sources *s, const char *key, char *entry)
{
    int starts_as_number = isdigit((unsigned char)*entry) || *entry == '.';
    char *blank = strchr(entry, ' ');
    const char *end = NULL;
    int weighted =
        starts_as_number && blank && strspn(entry, "0123456789.") == (size_t)(blank - entry);

    if (!*entry)
        return fail(ST_ECONFIG, "%s: entry %d of the list is empty", key, s->n + 1);
    if (s->n == SOURCES_MOST)
        return fail(ST_ECONFIG,
                    "%s lists more than %d sources; a pattern such as data/web-*.bin "
                    "makes one source of many shards",
                    key, SOURCES_MOST);
    if (weighted) {
        end = read_weight(&s->weight[s->n], entry);
        if (end != blank || s->weight[s->n] < 1 || s->weight[s->n] > (int64_t)MILLION * MILLION)
            return fail(ST_ECONFIG,
                        "%s: '%.*s' is no weight: give a number from 0.000001 to 1000000 with at "
                        "most %d decimals",
                        key, (int)(blank - entry), entry, DECIMALS);
    }
    if (s->n > 0 && weighted != s->weighted)
        return fail(ST_ECONFIG,
                    "%s gives some of its sources a weight and others none: give one to each, or "
                    "to none for as often as they are long",
                    key);
    s->weighted = weighted;
    s->path[s->n++] = weighted ? trim(blank) : entry;
    return ST_OK;
}

static enum status read_list(struct sources *s, const char *key)
{
    char *rest = s->text + 1;

    s->text[strlen(s->text) - 1] = '\0';
    while (rest) {
        char *entry = strsep(&rest, ",");

        TRY(read_entry(s, key, trim(entry)));
    }
    return ST_OK;
}

enum status sources_read(struct sources *s, const char *key, const char *text)
{
    size_t n = strlen(text);
    enum status st = ST_OK;

    *s = (struct sources){.text = strdup(text)};
    if (!s->text)
        return fail(ST_ENOMEM, "no memory for the sources of %s", key);
    if (n > 1 && text[0] == '[' && text[n - 1] == ']')
        st = read_list(s, key);
    else
        s->path[s->n++] = s->text;
    if (st != ST_OK)
        sources_close(s);
    return st;
}

void sources_close(struct sources *s)
{
    free(s->text);
    *s = (struct sources){0};
}
