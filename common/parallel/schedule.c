#include "common/parallel/schedule.h"

#include <stdlib.h>

enum status schedule_open(struct schedule *s, int micro_batches)
{
    s->n = 0;
    s->list = calloc((size_t)micro_batches * 2 + 2, sizeof *s->list);
    if (!s->list)
        return fail(ST_ENOMEM, "no memory for a schedule of %d micro-batches", micro_batches);
    for (int i = 0; i < micro_batches; i++) {
        s->list[s->n++] = (struct instruction){INSTR_FORWARD, i};
        s->list[s->n++] = (struct instruction){INSTR_BACKWARD, i};
    }
    s->list[s->n++] = (struct instruction){INSTR_REDUCE, 0};
    s->list[s->n++] = (struct instruction){INSTR_UPDATE, 0};
    return ST_OK;
}

void schedule_close(struct schedule *s)
{
    free(s->list);
    s->list = NULL;
}
