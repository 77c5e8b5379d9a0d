#include "gpu/plan.h"

#include <stddef.h>

struct gpu_product gpu_product_of_gemm(const struct gemm *g, int i)
{
    const struct tensor *a = i ? &g->part[i - 1].a : &g->a, *b = i ? &g->part[i - 1].b : &g->b;
    const struct tensor *c = i ? NULL : g->c;

    return (struct gpu_product){.y = g->y.data,
                                .a = a->data,
                                .b = b->data,
                                .c = c ? c->data : NULL,
                                .type = a->dtype,
                                .y_type = g->y.dtype,
                                .b_turned = g->kind == GEMM_NT,
                                .accumulate = i > 0 || g->accumulate,
                                .m = g->y.rows,
                                .n = g->y.cols,
                                .k = a->cols,
                                .y_stride = g->y.stride,
                                .a_stride = a->stride,
                                .b_stride = b->stride,
                                .c_stride = c ? c->stride : 0,
                                .batch = 1,
                                .scale = g->k_scale};
}

struct gpu_product gpu_product_of_grad(const struct weight_grad *w, int accumulate)
{
    return (struct gpu_product){.y = w->dw.data,
                                .a = w->dy.data,
                                .b = w->x.data,
                                .type = w->dy.dtype,
                                .y_type = w->dw.dtype,
                                .a_turned = 1,
                                .accumulate = accumulate,
                                .m = w->dw.rows,
                                .n = w->dw.cols,
                                .k = w->dy.rows,
                                .y_stride = w->dw.stride,
                                .a_stride = w->dy.stride,
                                .b_stride = w->x.stride,
                                .batch = 1};
}

/* Nonzero when q's operand begins `elements` after p's. */
static int follows(const void *q, const void *p, int64_t elements, enum dtype type)
{
    return (const char *)q == (const char *)p + elements * (int64_t)dtype_size(type);
}

int gpu_product_chain(struct gpu_product *p, const struct gemm *g)
{
    *p = gpu_product_of_gemm(g, 0);
    for (int i = 1; i <= g->more; i++) {
        struct gpu_product q = gpu_product_of_gemm(g, i);
        int64_t b_offset = p->b_turned ? p->k : p->k * p->b_stride;

        if (q.a_stride != p->a_stride || q.b_stride != p->b_stride || q.type != p->type ||
            !follows(q.a, p->a, p->k, p->type) || !follows(q.b, p->b, b_offset, p->type))
            return 0;
        p->k += q.k;
    }
    return 1;
}

/* Nonzero when all but sizes, places and steps agree. */
static int alike(const struct gpu_product *p, const struct gpu_product *q)
{
    return p->type == q->type && p->y_type == q->y_type && p->a_turned == q->a_turned &&
           p->b_turned == q->b_turned && p->accumulate == q->accumulate &&
           p->y_stride == q->y_stride && p->a_stride == q->a_stride && p->b_stride == q->b_stride &&
           p->c_stride == q->c_stride && !p->c == !q->c && p->scale == q->scale && p->k == q->k;
}

/* q begins where p's columns end: b and y side by side, a the same. */
static int joins_right(const struct gpu_product *p, const struct gpu_product *q)
{
    int64_t b_offset = p->b_turned ? p->n * p->b_stride : p->n;

    return p->m == q->m && p->a == q->a && follows(q->y, p->y, p->n, p->y_type) &&
           follows(q->b, p->b, b_offset, p->type) &&
           (!p->c || follows(q->c, p->c, p->n, p->y_type));
}

/* q begins where p's rows end: a and y one above the other, b the same. A scale of rows belongs to
 * one product's rows only. */
static int joins_below(const struct gpu_product *p, const struct gpu_product *q)
{
    int64_t a_offset = p->a_turned ? p->m : p->m * p->a_stride;

    return p->n == q->n && p->b == q->b && !p->scale &&
           follows(q->y, p->y, p->m * p->y_stride, p->y_type) &&
           follows(q->a, p->a, a_offset, p->type) &&
           (!p->c || follows(q->c, p->c, p->m * p->c_stride, p->y_type));
}

/* Elements from p to q; 0 in *whole when the distance is no whole number of them. */
static int64_t distance(const void *q, const void *p, enum dtype type, int *whole)
{
    ptrdiff_t bytes = (const char *)q - (const char *)p;
    ptrdiff_t size = (ptrdiff_t)dtype_size(type);

    *whole = *whole && bytes % size == 0;
    return bytes / size;
}

/* Elements that one of the products touches in y: batched ones must not overlap. */
static int64_t y_extent(const struct gpu_product *p, int64_t step)
{
    int64_t inside_row = p->n, all = (p->m - 1) * p->y_stride + p->n;

    /* Side by side within the rows of one tensor, or wholly apart. */
    return step >= inside_row && p->batch * step <= p->y_stride ? 1 : step >= all;
}

/* Takes q as the next of the batch p when its distances are those of the batch. */
static int joins_batch(struct gpu_product *p, const struct gpu_product *q,
                       const struct gpu_product *last)
{
    int whole = 1;
    int64_t y = distance(q->y, last->y, p->y_type, &whole);
    int64_t a = distance(q->a, last->a, p->type, &whole);
    int64_t b = distance(q->b, last->b, p->type, &whole);
    int64_t c = p->c ? distance(q->c, last->c, p->y_type, &whole) : 0;
    struct gpu_product grown = *p;

    if (!whole || p->m != q->m || p->n != q->n || p->scale || y <= 0 || a < 0 || b < 0 || c < 0)
        return 0;
    if (p->batch > 1 && (y != p->y_step || a != p->a_step || b != p->b_step || c != p->c_step))
        return 0;
    grown.batch++;
    grown.y_step = y;
    grown.a_step = a;
    grown.b_step = b;
    grown.c_step = c;
    if (!y_extent(&grown, y))
        return 0;
    *p = grown;
    return 1;
}

int gpu_product_group(struct gpu_product *p, const struct gpu_product *list, int n)
{
    int used = 1;

    *p = list[0];
    while (used < n && alike(p, &list[used]) && joins_right(p, &list[used]))
        p->n += list[used++].n;
    if (used > 1)
        return used;
    while (used < n && alike(p, &list[used]) && joins_below(p, &list[used]))
        p->m += list[used++].m;
    if (used > 1)
        return used;
    while (used < n && alike(p, &list[used]) && joins_batch(p, &list[used], &list[used - 1]))
        used++;
    return used;
}
