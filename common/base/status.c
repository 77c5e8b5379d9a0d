#include "common/base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The record of the current failure. One of the program's few mutable file-scope variables: an
 * error has to find its way past functions that know nothing of it. Each thread has its own, so
 * that one that writes files beside the training does not disturb it. */
static _Thread_local struct {
    char message[2048];
    char trace[4096];
} record;

static const struct {
    const char *text;
    int exit_code;
} table[] = {
#define X(code, text, exit) {text, exit},
    STATUS_LIST(X)
#undef X
};

const char *status_text(enum status st)
{
    return st >= ST_OK && st < ST_COUNT ? table[st].text : "unknown status";
}

int status_exit_code(enum status st)
{
    return st >= ST_OK && st < ST_COUNT ? table[st].exit_code : 11;
}

enum status fail(enum status st, const char *fmt, ...)
{
    va_list args;

    if (record.message[0])
        return st;
    va_start(args, fmt);
    vsnprintf(record.message, sizeof record.message, fmt, args);
    va_end(args);
    return st;
}

void status_prefix(const char *fmt, ...)
{
    char old[sizeof record.message];
    va_list args;
    int n;

    memcpy(old, record.message, sizeof old);
    va_start(args, fmt);
    n = vsnprintf(record.message, sizeof record.message, fmt, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof record.message)
        snprintf(record.message + n, sizeof record.message - (size_t)n, "%s", old);
}

enum status status_trace(enum status st, const char *file, int line, const char *expr)
{
    size_t used = strlen(record.trace);

    snprintf(record.trace + used, sizeof record.trace - used, "%s:%d: %s: %s\n", file, line, expr,
             status_text(st));
    return st;
}

const char *status_message(void)
{
    return record.message;
}

const char *status_backtrace(void)
{
    return record.trace;
}

void status_clear(void)
{
    record.message[0] = record.trace[0] = '\0';
}
