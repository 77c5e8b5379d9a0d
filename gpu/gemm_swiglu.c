/* SwiGLU with the product beside it: in one kernel (glu.h) where there is one and the operands are
 * as it wants them, which their shapes, types and addresses alone decide; else one after the other.
 */
#include "gpu/glu.h"
#include "gpu/gpu.h"

/* A product of two matrices, and nothing else. */
static int bare(const struct gemm *g, enum gemm_kind kind)
{
    return g->kind == kind && !g->more && !g->accumulate && !g->c && !g->k_scale;
}

/* What a tensor map can describe. */
static int mapped(const struct tensor *t)
{
    return t->dtype == DT_BF16 && t->rows > 0 && t->cols > 0 && (uintptr_t)t->data % 16 == 0 &&
           t->stride % 8 == 0;
}

static int same(const struct tensor *a, const struct tensor *b)
{
    return a->data == b->data && a->dtype == b->dtype && a->stride == b->stride &&
           a->cols == b->cols;
}

static int fits_forward(struct device *dev, const struct gemm g[2], const struct tensor *f)
{
    return gpu_of(dev)->glu && f->rows >= GPU_GLU_ROWS && bare(&g[0], GEMM_NT) &&
           bare(&g[1], GEMM_NT) && same(&g[0].a, &g[1].a) && mapped(&g[0].a) && mapped(&g[0].b) &&
           mapped(&g[1].b) && mapped(&g[0].y) && mapped(&g[1].y) && mapped(f);
}

static int fits_backward(struct device *dev, const struct gemm *g, const struct swiglu_grad *d)
{
    return gpu_of(dev)->glu && d->df.rows >= GPU_GLU_ROWS && bare(g, GEMM_NN) &&
           g->y.dtype == DT_BF16 && mapped(&g->a) && mapped(&g->b) && mapped(&d->g) &&
           mapped(&d->u) && mapped(&d->dg) && mapped(&d->du);
}

enum status gpu_gemm_swiglu_forward(struct device *dev, const struct gemm g[2], struct tensor *f,
                                    enum swiglu_kind kind)
{
    if (fits_forward(dev, g, f))
        return gpu_glu_forward(gpu_of(dev), g, f, kind);
    TRY(gpu_gemm(dev, g, 2));
    return gpu_swiglu_forward(dev, f, &g[0].y, &g[1].y, kind);
}

enum status gpu_gemm_swiglu_backward(struct device *dev, const struct gemm *g,
                                     const struct swiglu_grad *d, enum swiglu_kind kind)
{
    if (fits_backward(dev, g, d))
        return gpu_glu_backward(gpu_of(dev), g, d, kind);
    TRY(gpu_gemm(dev, g, 1));
    return gpu_swiglu_backward(dev, d, kind);
}
