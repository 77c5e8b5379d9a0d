#include "common/model/config_value.h"

#include "common/model/nearest.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Whatever the kind of enum, its values are small and not negative, and it has the size of int. */
_Static_assert(sizeof(enum layer_kind) == sizeof(int), "choices are stored as int");

static const char *digits(const char *s)
{
    while (isdigit((unsigned char)*s))
        s++;
    return s;
}

static int is_whole(const char *s)
{
    const char *first = s + (*s == '-');
    const char *last = digits(first);

    /* a leading zero would mean octal to YAML 1.1 */
    return last > first && *last == '\0' && (*first != '0' || last == first + 1);
}

static int is_decimal(const char *s)
{
    const char *p = s + (*s == '-'), *q = digits(p);
    int any = q > p;

    if (*q == '.') {
        p = q + 1;
        q = digits(p);
        any |= q > p;
    }
    if (any && (*q == 'e' || *q == 'E')) {
        p = q + 1 + (q[1] == '+' || q[1] == '-');
        q = digits(p);
        any = q > p;
    }
    return any && *q == '\0';
}

enum status config_value_int(int64_t *out, const char *what, const char *text, int64_t lo,
                             int64_t hi)
{
    long long v;

    if (!is_whole(text))
        return fail(ST_ECONFIG,
                    "%s: '%s' is not a whole number (digits only): give one from %" PRId64
                    " to %" PRId64,
                    what, text, lo, hi);
    errno = 0;
    v = strtoll(text, NULL, 10);
    if (errno || v < lo || v > hi)
        return fail(ST_ECONFIG,
                    "%s: %s is out of range: give a whole number from %" PRId64 " to %" PRId64,
                    what, text, lo, hi);
    *out = v;
    return ST_OK;
}

enum status config_value_real(double *out, const char *what, const char *text, double lo, double hi)
{
    double v;

    if (!is_decimal(text))
        return fail(ST_ECONFIG,
                    "%s: '%s' is not a number: give one from %g to %g, such as 0.1 "
                    "or 3e-4",
                    what, text, lo, hi);
    v = strtod(text, NULL);
    if (!isfinite(v) || v < lo || v > hi)
        return fail(ST_ECONFIG, "%s: %s is out of range: give a number from %g to %g", what, text,
                    lo, hi);
    *out = v == 0 ? 0 : v; /* -0 would be printed, and hashed, as another value */
    return ST_OK;
}

static enum status read_flag(bool *out, const struct config_key *k, const char *text)
{
    int on = !strcmp(text, "on") || !strcmp(text, "true");

    if (!on && strcmp(text, "off") != 0 && strcmp(text, "false") != 0)
        return fail(ST_ECONFIG, "%s: '%s' is neither on nor off", k->name, text);
    *out = on;
    return ST_OK;
}

static enum status read_choice(int *out, const struct config_key *k, const char *text)
{
    struct nearest near = nearest_to(text);
    char allowed[CONFIG_ALLOWED];

    for (int i = 0; k->choices[i]; i++) {
        if (!strcmp(text, k->choices[i])) {
            *out = i;
            return ST_OK;
        }
        nearest_offer(&near, k->choices[i]);
    }
    config_value_allowed(allowed, k);
    if (near.best)
        return fail(ST_ECONFIG, "%s: '%s' is not %s; did you mean %s?", k->name, text, allowed,
                    near.best);
    return fail(ST_ECONFIG, "%s: '%s' is not %s", k->name, text, allowed);
}

/* Decodes one character; returns its bytes, 0 where the text is not UTF-8. */
static int decode(uint32_t *code, const char *text)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *s = (const unsigned char *)text;
    int n = s[0] < 0x80 ? 1 : s[0] < 0xc0 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;

    *code = n == 1 ? s[0] : s[0] & (0x7fu >> n);
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        *code = *code << 6 | (s[i] & 0x3f);
    }
    if (s[0] >= 0xf8 || *code < least[n] || *code > 0x10ffff || (*code >> 11) == 0x1b)
        return 0; /* too long a form, beyond Unicode, or half a surrogate pair */
    return n;
}

static enum status read_text(char *out, const struct config_key *k, const char *text)
{
    size_t n = strlen(text), room = k->list ? CONFIG_LIST : CONFIG_TEXT;
    uint32_t code;
    int bytes;

    for (const char *s = text; *s; s += bytes) {
        bytes = decode(&code, s);
        if (!bytes)
            return fail(ST_ECONFIG, "%s: byte %d of the text is not valid UTF-8", k->name,
                        (int)(s - text));
    }
    if (n >= room)
        return fail(ST_ECONFIG, "%s: the text has %zu bytes, at most %zu are allowed", k->name, n,
                    room - 1);
    memcpy(out, text, n + 1);
    return ST_OK;
}

enum status config_value_set(struct config *cfg, const struct config_key *k, const char *text)
{
    void *field = (char *)cfg + k->offset;
    char allowed[CONFIG_ALLOWED];

    if (!*text && !k->may_be_empty) {
        config_value_allowed(allowed, k);
        return fail(ST_ECONFIG, "%s has no value: give %s", k->name, allowed);
    }
    switch (k->type) {
    case CONFIG_IS_TEXT:
        return read_text(field, k, text);
    case CONFIG_IS_INT:
        return config_value_int(field, k->name, text, k->lo, k->hi);
    case CONFIG_IS_REAL:
        return config_value_real(field, k->name, text, k->real_lo, k->real_hi);
    case CONFIG_IS_FLAG:
        return read_flag(field, k, text);
    case CONFIG_IS_CHOICE:
        return read_choice(field, k, text);
    }
    return fail(ST_EINTERNAL, "%s has type %d", k->name, (int)k->type);
}

void config_value_default(struct config *cfg, const struct config_key *k)
{
    char *field = (char *)cfg + k->offset;
    int choice = (int)k->integer;

    switch (k->type) {
    case CONFIG_IS_TEXT:
        memcpy(field, k->text, strlen(k->text) + 1); /* a unit test holds that it fits */
        break;
    case CONFIG_IS_INT:
        memcpy(field, &k->integer, sizeof k->integer);
        break;
    case CONFIG_IS_REAL:
        memcpy(field, &k->real, sizeof k->real);
        break;
    case CONFIG_IS_FLAG:
        *(bool *)(void *)field = k->integer != 0;
        break;
    case CONFIG_IS_CHOICE:
        memcpy(field, &choice, sizeof choice);
        break;
    }
}

/* The shortest of the decimal forms that strtod takes back to v. */
static void write_real(char *out, size_t size, double v)
{
    for (int precision = 6; precision <= 17; precision++) {
        snprintf(out, size, "%.*g", precision, v);
        if (strtod(out, NULL) == v)
            return;
    }
}

/* Characters that YAML would not take, or not give back, between double quotes. */
static int needs_code(uint32_t c)
{
    return c < ' ' || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 || c == 0xfeff ||
           c == 0xfffe || c == 0xffff;
}

static void write_text(char *out, size_t size, const char *text)
{
    size_t n = 0;
    uint32_t c;

    out[n++] = '"';
    /* room for the longest escape, the closing quote and the end */
    for (int bytes; *text && n + 8 < size; text += bytes) {
        bytes = decode(&c, text);
        if (c == '\n')
            n += (size_t)snprintf(out + n, size - n, "\\n");
        else if (c == '"' || c == '\\')
            n += (size_t)snprintf(out + n, size - n, "\\%c", (char)c);
        else if (needs_code(c))
            n += (size_t)snprintf(out + n, size - n, c < 0x100 ? "\\x%02x" : "\\u%04x", c);
        else
            n += (size_t)snprintf(out + n, size - n, "%.*s", bytes, text);
        bytes += !bytes; /* read_text() let nothing else in, but never stand still */
    }
    out[n++] = '"';
    out[n] = '\0';
}

void config_value_write(char *out, size_t size, const struct config_key *k,
                        const struct config *cfg)
{
    const char *field = (const char *)cfg + k->offset;
    int choice;

    switch (k->type) {
    case CONFIG_IS_TEXT:
        write_text(out, size, field);
        break;
    case CONFIG_IS_INT:
        snprintf(out, size, "%" PRId64, *(const int64_t *)(const void *)field);
        break;
    case CONFIG_IS_REAL:
        write_real(out, size, *(const double *)(const void *)field);
        break;
    case CONFIG_IS_FLAG:
        snprintf(out, size, "%s", *(const bool *)(const void *)field ? "on" : "off");
        break;
    case CONFIG_IS_CHOICE:
        memcpy(&choice, field, sizeof choice);
        snprintf(out, size, "%s", k->choices[choice]);
        break;
    }
}

void config_value_allowed(char out[CONFIG_ALLOWED], const struct config_key *k)
{
    size_t n = 0;

    switch (k->type) {
    case CONFIG_IS_TEXT:
        snprintf(out, CONFIG_ALLOWED, "%s%s", k->list ? "text, a list" : "text",
                 k->may_be_empty ? ", or \"\"" : "");
        break;
    case CONFIG_IS_INT:
        snprintf(out, CONFIG_ALLOWED, "a whole number from %" PRId64 " to %" PRId64, k->lo, k->hi);
        break;
    case CONFIG_IS_REAL:
        snprintf(out, CONFIG_ALLOWED, "a number from %g to %g", k->real_lo, k->real_hi);
        break;
    case CONFIG_IS_FLAG:
        snprintf(out, CONFIG_ALLOWED, "on or off");
        break;
    case CONFIG_IS_CHOICE:
        n = (size_t)snprintf(out, CONFIG_ALLOWED, "one of");
        for (int i = 0; k->choices[i] && n < CONFIG_ALLOWED; i++)
            n +=
                (size_t)snprintf(out + n, CONFIG_ALLOWED - n, "%s %s", i ? "," : "", k->choices[i]);
        break;
    }
}
