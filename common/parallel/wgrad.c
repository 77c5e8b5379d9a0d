#include "common/parallel/wgrad.h"

#include <stdlib.h>
#include <string.h>

static enum status put(struct weight_grad list[WGRAD_MAX], int *n, const struct tensor *dw,
                       const struct tensor *dy, const struct tensor *x)
{
    FAIL_IF(*n == WGRAD_MAX, ST_EINTERNAL);
    list[(*n)++] = (struct weight_grad){.dw = *dw, .dy = *dy, .x = *x};
    return ST_OK;
}

enum status wgrad_push(struct wgrad_queue *q, const struct tensor *dw, const struct tensor *dy,
                       const struct tensor *x)
{
    return put(q->item, &q->n, dw, dy, x);
}

enum status wgrad_hold(struct wgrad_queue *q, const struct tensor *dw, const struct tensor *dy,
                       const struct tensor *x)
{
    return put(q->held, &q->holds, dw, dy, x);
}

enum status wgrad_let_go(struct wgrad_queue *q)
{
    FAIL_IF(q->n + q->holds > WGRAD_MAX, ST_EINTERNAL);
    memcpy(q->item + q->n, q->held, (size_t)q->holds * sizeof *q->held);
    q->n += q->holds;
    q->holds = 0;
    return ST_OK;
}

enum status wgrad_run(struct wgrad_queue *q, struct device *dev, const struct sample_plan *plan)
{
    int n = q->n;

    q->n = 0;
    if (q->later) {
        FAIL_IF(q->later->n + n > q->later->room, ST_EINTERNAL);
        memcpy(q->later->item + q->later->n, q->item, (size_t)n * sizeof *q->item);
        q->later->n += n;
        return ST_OK;
    }
    return n ? op_weight_grad(dev, q->item, n, plan) : ST_OK;
}

enum status wgrad_later_open(struct wgrad_later *l, int n)
{
    *l = (struct wgrad_later){.item = calloc((size_t)n, sizeof *l->item), .room = n};
    return l->item ? ST_OK : fail(ST_ENOMEM, "no memory to put off %d weight gradients", n);
}

void wgrad_later_close(struct wgrad_later *l)
{
    free(l->item);
    *l = (struct wgrad_later){0};
}

enum status wgrad_later_run(struct wgrad_later *l, struct device *dev,
                            const struct sample_plan *plan, int n)
{
    int end = l->next + n;

    FAIL_IF(end > l->n, ST_EINTERNAL);
    for (; l->next < end; l->next += n) {
        n = end - l->next < WGRAD_MAX ? end - l->next : WGRAD_MAX;
        TRY(op_weight_grad(dev, l->item + l->next, n, plan));
    }
    if (l->next == l->n)
        l->next = l->n = 0;
    return ST_OK;
}
