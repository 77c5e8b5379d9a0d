/* Matrix products: groups are first put together (plan.h), then run by cuBLASLt (matmul.h). */
#include "gpu/device.h"
#include "gpu/elementwise.h"
#include "gpu/gpu.h"
#include "gpu/matmul.h"

/* Products of one op at most: a larger list is done in pieces. */
enum { LIST_MAX = 16 };

/* y = product * scale's column (+ c). The scale comes after the product's rounding. */
static enum status run_scaled(struct gpu_device *dev, const struct gpu_product *p)
{
    struct gpu_product bare = *p;
    struct tensor y = {.data = p->y,
                       .dtype = p->y_type,
                       .row_grains = 1,
                       .col_grains = 1,
                       .rows = p->m,
                       .cols = p->n,
                       .stride = p->y_stride};
    struct tensor c = y;

    if (p->scale->cols != 1 || p->scale->dtype != DT_F32)
        return fail(ST_ESHAPE,
                    "k_scale of %lld columns, %s: the gpu backend takes one f32 column (a shard is "
                    "one grain)",
                    (long long)p->scale->cols, dtype_name(p->scale->dtype));
    if (p->accumulate || p->c == p->y)
        return fail(ST_ESHAPE, "k_scale together with a product added to y: the gpu backend has "
                               "no such kernel");
    bare.scale = NULL;
    bare.c = NULL;
    TRY(gpu_matmul_run(dev, &bare));
    c.data = (void *)(uintptr_t)p->c;
    c.stride = p->c_stride;
    return gpu_scale_rows(dev, &y, p->scale, p->c ? &c : NULL);
}

static enum status run_list(struct gpu_device *dev, const struct gpu_product *list, int n)
{
    for (int done = 0; done < n;) {
        struct gpu_product p;

        done += gpu_product_group(&p, list + done, n - done);
        TRY(p.scale ? run_scaled(dev, &p) : gpu_matmul_run(dev, &p));
    }
    return ST_OK;
}

/* Makes g's residual something that the product can read itself. What is left: nothing, y, or a
 * tensor of y's type. */
static enum status prepare_residual(struct gpu_device *dev, struct gemm *g)
{
    if (!g->c || g->c->data == g->y.data)
        return ST_OK;
    if (g->accumulate) { /* two things to add: join the first to y, rounding once more */
        TRY(gpu_add(&dev->base, &g->y, &g->y, g->c));
        g->c = NULL;
        return ST_OK;
    }
    if (g->c->dtype == g->y.dtype)
        return ST_OK;
    if (g->y.dtype != DT_F32)
        return fail(ST_EDTYPE,
                    "residual %s of a %s product: the gpu backend takes the same type, "
                    "or any with an f32 product",
                    dtype_name(g->c->dtype), dtype_name(g->y.dtype));
    TRY(gpu_convert(&dev->base, &g->y, g->c, 1)); /* exact */
    g->accumulate = 1;
    g->c = NULL;
    return ST_OK;
}

static enum status check_operands(const struct gemm *g)
{
    for (int i = 0; i <= g->more; i++) {
        const struct tensor *a = i ? &g->part[i - 1].a : &g->a;
        const struct tensor *b = i ? &g->part[i - 1].b : &g->b;

        if (a->dtype != b->dtype || a->dtype != g->a.dtype)
            return fail(ST_EDTYPE, "product of %s and %s: the gpu backend takes one type",
                        dtype_name(a->dtype), dtype_name(b->dtype));
    }
    return ST_OK;
}

/* Several pairs that do not lie in a chain: one product after the other into y. With y in bf16
 * each addition rounds. */
static enum status run_pairs(struct gpu_device *dev, const struct gemm *g)
{
    for (int i = 0; i <= g->more; i++) {
        struct gpu_product p = gpu_product_of_gemm(g, i);

        if (p.scale)
            return fail(ST_ESHAPE, "k_scale with several pairs of operands: the gpu backend needs "
                                   "them one after the other in memory");
        TRY(gpu_matmul_run(dev, &p));
    }
    return ST_OK;
}

/* Products that wait to be put together. */
struct waiting {
    struct gpu_product list[LIST_MAX];
    int held;
};

static enum status run_waiting(struct gpu_device *dev, struct waiting *w)
{
    int n = w->held;

    w->held = 0;
    return run_list(dev, w->list, n);
}

/* One member of a group: it waits, or, when it is no single product, what waits is run first. */
static enum status take_member(struct gpu_device *dev, struct waiting *w, struct gemm one)
{
    struct gpu_product p;
    int chain;

    TRY(check_operands(&one));
    TRY(prepare_residual(dev, &one));
    chain = gpu_product_chain(&p, &one);
    if (w->held == LIST_MAX || !chain)
        TRY(run_waiting(dev, w));
    if (!chain)
        return run_pairs(dev, &one);
    w->list[w->held++] = p;
    return ST_OK;
}

enum status gpu_gemm(struct device *dev, const struct gemm *g, int n)
{
    struct waiting w = {.held = 0};

    for (int i = 0; i < n; i++)
        if (g[i].y.rows > 0 && g[i].y.cols > 0)
            TRY(take_member(gpu_of(dev), &w, g[i]));
    return run_waiting(gpu_of(dev), &w);
}

static enum status check_grad(const struct weight_grad *w)
{
    if (w->dy.dtype == w->x.dtype)
        return ST_OK;
    return fail(ST_EDTYPE, "weight gradient of %s and %s: the gpu backend takes one type",
                dtype_name(w->dy.dtype), dtype_name(w->x.dtype));
}

enum status gpu_weight_grad(struct device *dev, const struct weight_grad *w, int n,
                            const struct sample_plan *plan)
{
    struct waiting list = {.held = 0};
    int accumulate;

    TRY(gpu_plan(&accumulate, plan));
    for (int i = 0; i < n; i++) {
        TRY(check_grad(&w[i]));
        list.list[list.held++] = gpu_product_of_grad(&w[i], accumulate);
        if (list.held == LIST_MAX)
            TRY(run_waiting(gpu_of(dev), &list));
    }
    return run_waiting(gpu_of(dev), &list);
}
