/* From the products that an op asks for to the products that the library is given: neighbours in
 * memory become one larger product, equal distances one batched product. No CUDA here.
 */
#ifndef GPU_PLAN_H
#define GPU_PLAN_H

#include "common/backend/op_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[m,n] (+)= op(a) [m,k] op(b) [k,n] (+ c), `batch` times, operands `*_step` elements apart.
 * a_turned: a is stored [k,m];  b_turned: b is stored [n,k]. Row-major, strides in elements. */
struct gpu_product {
    void *y;
    const void *a, *b, *c; /* c: read in y's place and type with stride c_stride; NULL: none */
    enum dtype type, y_type;
    int a_turned, b_turned, accumulate;
    int64_t m, n, k;
    int64_t y_stride, a_stride, b_stride, c_stride;
    int64_t batch, y_step, a_step, b_step, c_step;
    const struct tensor *scale; /* [m,1] multiplies the product's rows; NULL: none */
};

/* The first pair of g, or pair i = 1, 2 of its further ones (which accumulates). */
struct gpu_product gpu_product_of_gemm(const struct gemm *g, int i);

/* dw[out,in] (+)= dy' x. */
struct gpu_product gpu_product_of_grad(const struct weight_grad *w, int accumulate);

/* The pairs of g as one product along k when they lie one after the other; returns nonzero then. */
int gpu_product_chain(struct gpu_product *p, const struct gemm *g);

/* Puts into *p one product that does the first of list[0..n) and as many of its followers as it
 * can; returns how many (1 or more).
 *   same a, b and y side by side          -> one product with larger n
 *   same b, a and y one above the other   -> one product with larger m
 *   same shapes, equal distances          -> one batched product */
int gpu_product_group(struct gpu_product *p, const struct gpu_product *list, int n);

#ifdef __cplusplus
}
#endif
#endif
