#include "common/tensor/sample_plan.h"

#include <string.h>

void sample_share(int64_t n, int64_t rank, int64_t ranks, int64_t *begin, int64_t *end)
{
    int64_t lo = 0, hi = n, first = 0;

    while (ranks > 1) {
        int64_t left = ranks / 2, mid = lo + (hi - lo) / 2;

        if (2 * left != ranks) /* uneven: cut samples in proportion to ranks */
            mid = lo + (hi - lo) * left / ranks;
        if (rank - first < left) {
            hi = mid;
            ranks = left;
        } else {
            lo = mid;
            first += left;
            ranks -= left;
        }
    }
    *begin = lo;
    *end = hi;
}

void sample_tree_start(struct sample_tree *t, int64_t begin, int64_t end, int exact)
{
    memset(t, 0, sizeof *t);
    t->begin = t->next = begin;
    t->end = end;
    t->exact = exact;
}

/* The end of the largest node of the tree over [lo, hi) that begins at `at` and ends by `limit`. */
static int64_t node_end(int64_t lo, int64_t hi, int64_t at, int64_t limit)
{
    while (lo != at || hi > limit) {
        int64_t mid = lo + (hi - lo) / 2;

        if (at < mid)
            hi = mid;
        else
            lo = mid;
    }
    return hi;
}

/* Nonzero when [a, m) and [m, b) are the two halves of one node of the tree over [lo, hi). */
static int siblings(int64_t lo, int64_t hi, int64_t a, int64_t b)
{
    while (lo != a || hi != b) {
        int64_t mid = lo + (hi - lo) / 2;

        if (hi - lo < 2 || (a < mid && b > mid))
            return 0;
        if (b <= mid)
            hi = mid;
        else
            lo = mid;
    }
    return 1;
}

static int32_t free_slot(const struct sample_tree *t)
{
    for (int32_t slot = 0;; slot++) {
        int32_t i = 0;

        while (i < t->waiting && t->node[i].slot != slot)
            i++;
        if (i == t->waiting)
            return slot;
    }
}

/* Merges the waiting nodes that complete [begin, *...) upwards; returns where the result begins. */
static int64_t merge_up(struct sample_node *node, struct sample_tree *t, int64_t begin, int64_t end)
{
    while (t->waiting > 0 && t->node[t->waiting - 1].end == begin &&
           siblings(t->begin, t->end, t->node[t->waiting - 1].begin, end)) {
        node->merge[node->merges++] = t->node[--t->waiting].slot;
        begin = t->node[t->waiting].begin;
    }
    return begin;
}

static void add_node(struct sample_plan *plan, struct sample_tree *t, int64_t start, int64_t end)
{
    struct sample_node *node = &plan->node[plan->nodes++];
    int64_t begin = t->next;

    memset(node, 0, sizeof *node);
    node->first = (int32_t)(begin - start);
    node->count = (int32_t)(end - begin);
    begin = merge_up(node, t, begin, end);
    node->slot = free_slot(t);
    t->node[t->waiting].begin = begin;
    t->node[t->waiting].end = end;
    t->node[t->waiting++].slot = node->slot;
    t->next = end;
}

void sample_plan_next(struct sample_plan *plan, struct sample_tree *t, int64_t samples)
{
    int64_t start = t->next, limit = start + samples;

    plan->samples = (int32_t)samples;
    plan->exact = t->exact;
    plan->nodes = 0;
    if (!t->exact) {
        plan->node[0] = (struct sample_node){
            .count = (int32_t)samples, .merges = start > t->begin, .merge = {0}, .slot = 0};
        plan->nodes = 1;
        t->next = limit;
        return;
    }
    while (t->next < limit)
        add_node(plan, t, start, node_end(t->begin, t->end, t->next, limit));
}

int32_t sample_plan_slots(const struct sample_plan *plan, int64_t n)
{
    int32_t slots = 0;

    for (; n > 0; n--, plan++)
        for (int32_t i = 0; i < plan->nodes; i++)
            slots = plan->node[i].slot + 1 > slots ? plan->node[i].slot + 1 : slots;
    return slots;
}

int32_t sample_slots(int64_t begin, int64_t end, int64_t micro, int exact)
{
    struct sample_tree t;
    struct sample_plan plan;
    int32_t slots = 1;

    sample_tree_start(&t, begin, end, exact);
    while (t.next < end) {
        int64_t left = end - t.next;
        int32_t named;

        sample_plan_next(&plan, &t, left < micro ? left : micro);
        named = sample_plan_slots(&plan, 1);
        slots = named > slots ? named : slots;
    }
    return slots;
}
