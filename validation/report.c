#include "validation/report.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

enum { WHAT_WIDTH = 82, TEXT_SIZE = 512 };

void report_open(struct report *r, FILE *out, const char *subject, const char *backend,
                 const char *kernel)
{
    *r = (struct report){.out = out};
    fprintf(out, "validate %s  backend %s", subject, backend);
    if (kernel)
        fprintf(out, "  OpenBLAS kernels %s", kernel);
    fprintf(out, "\n%-*s %17s %9s\n", WHAT_WIDTH, "what", "worst", "bound");
    fflush(out);
}

static int row(struct report *r, int within, const char *what, const char *worst, const char *bound)
{
    fprintf(r->out, "%-*s %17s %9s  %s\n", WHAT_WIDTH, what, worst, bound, within ? "ok" : "MISS");
    fflush(r->out);
    r->rows++;
    r->misses += !within;
    return within;
}

int report_value(struct report *r, enum bound_id bound, double worst, const char *what, ...)
{
    char text[TEXT_SIZE], value[32], limit[32];
    va_list ap;

    va_start(ap, what);
    vsnprintf(text, sizeof text, what, ap);
    va_end(ap);
    snprintf(value, sizeof value, "%.2e", worst);
    snprintf(limit, sizeof limit, "%.0e", bound_row(bound)->value);
    return row(r, worst <= bound_row(bound)->value, text, value, limit);
}

int report_equal(struct report *r, int equal, const char *found, const char *what, ...)
{
    char text[TEXT_SIZE];
    va_list ap;

    va_start(ap, what);
    vsnprintf(text, sizeof text, what, ap);
    va_end(ap);
    return row(r, equal, text, found, "equal");
}

void report_note(struct report *r, const char *fmt, ...)
{
    va_list ap;

    fputs("    ", r->out);
    va_start(ap, fmt);
    vfprintf(r->out, fmt, ap);
    va_end(ap);
    fputc('\n', r->out);
    fflush(r->out);
}

enum status report_close(struct report *r)
{
    fprintf(r->out, "%d comparisons, %d missed\n", r->rows, r->misses);
    fflush(r->out);
    if (!r->rows)
        return fail(ST_EMISMATCH, "nothing was compared");
    if (r->misses)
        return fail(ST_EMISMATCH, "%d of %d comparisons missed their bound", r->misses, r->rows);
    return ST_OK;
}
