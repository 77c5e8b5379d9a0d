/* The table of bounds, validation/bounds.def. */
#ifndef VALIDATION_BOUNDS_H
#define VALIDATION_BOUNDS_H

#include <stdio.h>

enum bound_id {
#define BOUND(id, value, what, reason) id,
#include "validation/bounds.def"
    BOUND_COUNT
};

struct bound {
    const char *name; /* "BOUND_EQUAL" */
    double value;
    const char *what, *reason;
};

/* A row of the table. */
const struct bound *bound_row(enum bound_id id);

/* The table as Markdown, for --bounds and docs/numerics.md. */
void bounds_print(FILE *out);

#endif
