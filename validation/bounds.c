#include "validation/bounds.h"

static const struct bound table[] = {
#define BOUND(id, value, what, reason) {#id, value, what, reason},
#include "validation/bounds.def"
};

const struct bound *bound_row(enum bound_id id)
{
    return &table[id];
}

void bounds_print(FILE *out)
{
    fputs("| what is compared | bound | reason |\n| --- | --- | --- |\n", out);
    for (int i = 0; i < BOUND_COUNT; i++)
        fprintf(out, "| %s | %g | %s |\n", table[i].what, table[i].value, table[i].reason);
}
