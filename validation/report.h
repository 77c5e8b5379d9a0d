/* What a validation found: a table, one row a comparison, and whether any missed its bound. */
#ifndef VALIDATION_REPORT_H
#define VALIDATION_REPORT_H

#include "common/base/status.h"
#include "validation/bounds.h"

struct report {
    FILE *out;
    int rows, misses;
};

/* Begins a table on out: prints what it ran on (backend, its BLAS kernel family, threads). kernel
 * may be NULL where nothing is computed. */
void report_open(struct report *r, FILE *out, const char *subject, const char *backend,
                 const char *kernel);

/* A row "what  worst  bound  ok". NaN is a miss. Returns nonzero when it is within its bound. */
int report_value(struct report *r, enum bound_id bound, double worst, const char *what, ...)
    __attribute__((format(printf, 4, 5)));

/* A row for things that must be equal: `found` is what they are (a hash) or where they differ. */
int report_equal(struct report *r, int equal, const char *found, const char *what, ...)
    __attribute__((format(printf, 4, 5)));

/* A line under the last row: detail of a miss. */
void report_note(struct report *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Prints the count. Errors: ST_EMISMATCH when a row missed its bound or there was no row. */
enum status report_close(struct report *r);

#endif
