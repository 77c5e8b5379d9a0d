#include "common/parallel/schedule_order.h"

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Interleaved: p micro-batches go through chunk 0, the same p through chunk 1, ..., then the next
 * p. With one chunk this is micro-batch k. */
struct pass schedule_forward_pass(const struct schedule_shape *s, int k)
{
    int round = s->stages * s->chunks;

    if (s->chunks == 1)
        return (struct pass){PASS_FORWARD, k, 0};
    return (struct pass){PASS_FORWARD, k / round * s->stages + k % s->stages,
                         k % round / s->stages};
}

struct pass schedule_backward_pass(const struct schedule_shape *s, int k)
{
    struct pass p = schedule_forward_pass(s, k);

    p.kind = PASS_BACKWARD;
    p.chunk = s->chunks - 1 - p.chunk;
    return p;
}

/* Forward passes before the first backward one. */
static int warm_up(const struct schedule_shape *s)
{
    int total = s->micro_batches * s->chunks, after = s->stages - 1 - s->stage;

    switch (s->order) {
    case ORDER_GPIPE:
        return total;
    case ORDER_INTERLEAVED:
        return least(2 * after + (s->chunks - 1) * s->stages, total);
    default:
        return least(after, total);
    }
}

/* Weight gradients wait until `stage` micro-batches have theirs to do: they fill the time in which
 * stages near the end would wait for the last micro-batches. */
static int split_passes(struct pass *list, const struct schedule_shape *s)
{
    int n = 0, forward = 0, weight = 0, micros = s->micro_batches;

    while (forward < warm_up(s))
        list[n++] = (struct pass){PASS_FORWARD, forward++, 0};
    for (int back = 0; back < micros; back++) {
        if (forward < micros)
            list[n++] = (struct pass){PASS_FORWARD, forward++, 0};
        list[n++] = (struct pass){PASS_INPUT, back, 0};
        if (back + 1 - weight > s->stage)
            list[n++] = (struct pass){PASS_WEIGHT, weight++, 0};
    }
    while (weight < micros)
        list[n++] = (struct pass){PASS_WEIGHT, weight++, 0};
    return n;
}

int schedule_passes(struct pass *list, const struct schedule_shape *s)
{
    int total = s->micro_batches * s->chunks, forward = 0, n = 0;

    if (s->order == ORDER_ZB_H1)
        return split_passes(list, s);
    while (forward < warm_up(s))
        list[n++] = schedule_forward_pass(s, forward++);
    for (int back = 0; back < total; back++) {
        if (forward < total)
            list[n++] = schedule_forward_pass(s, forward++);
        list[n++] = schedule_backward_pass(s, back);
    }
    return n;
}

int schedule_peak(const struct schedule_shape *s)
{
    int total = s->micro_batches * s->chunks;

    if (s->order == ORDER_ZB_H1) /* p - i wait for backward, i for their weight gradients */
        return least(s->stages, total);
    return least(warm_up(s) + 1, total);
}
