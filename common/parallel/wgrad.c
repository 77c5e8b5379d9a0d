#include "common/parallel/wgrad.h"

enum status wgrad_push(struct wgrad_queue *q, const struct tensor *dw, const struct tensor *dy,
                       const struct tensor *x)
{
    FAIL_IF(q->n == WGRAD_MAX, ST_EINTERNAL);
    q->item[q->n++] = (struct weight_grad){.dw = *dw, .dy = *dy, .x = *x};
    return ST_OK;
}

enum status wgrad_run(struct wgrad_queue *q, struct device *dev, const struct sample_plan *plan)
{
    int n = q->n;

    q->n = 0;
    return n ? op_weight_grad(dev, q->item, n, plan) : ST_OK;
}
