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
    TRY(gpu_convert(&dev->base, &g->y, g->c)); /* exact */
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

enum status gpu_gemm(struct device *dev, const struct gemm *g, int n)
{
    struct gpu_device *gpu = gpu_of(dev);
    struct gpu_product list[LIST_MAX];
    int held = 0;

    for (int i = 0; i < n; i++) {
        struct gemm one = g[i];
        struct gpu_product p;

        if (one.y.rows == 0 || one.y.cols == 0)
            continue;
        TRY(check_operands(&one));
        TRY(prepare_residual(gpu, &one));
        if (held == LIST_MAX || !gpu_product_chain(&p, &one)) {
            TRY(run_list(gpu, list, held));
            held = 0;
        }
        if (gpu_product_chain(&p, &one))
            list[held++] = p;
        else
            TRY(run_pairs(gpu, &one));
    }
    return run_list(gpu, list, held);
}

enum status gpu_weight_grad(struct device *dev, const struct weight_grad *w, int n,
                            const struct sample_plan *plan)
{
    struct gpu_product list[LIST_MAX];
    int held = 0, accumulate;

    TRY(gpu_plan(&accumulate, plan));
    for (int i = 0; i < n; i++) {
        if (w[i].dy.dtype != w[i].x.dtype)
            return fail(ST_EDTYPE, "weight gradient of %s and %s: the gpu backend takes one type",
                        dtype_name(w[i].dy.dtype), dtype_name(w[i].x.dtype));
        list[held++] = gpu_product_of_grad(&w[i], accumulate);
        if (held == LIST_MAX || i == n - 1) {
            TRY(run_list(gpu_of(dev), list, held));
            held = 0;
        }
    }
    return ST_OK;
}
