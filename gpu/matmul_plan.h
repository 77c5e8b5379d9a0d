/* Plans of matrix products from inside; private to matmul.c and matmul_tune.c. */
#ifndef GPU_MATMUL_PLAN_H
#define GPU_MATMUL_PLAN_H

#include "gpu/matmul.h"

#include <cublasLt.h>

/* Where the added matrix of a product comes from. */
enum added { ADDED_NONE, ADDED_OUTPUT, ADDED_OTHER };

/* All that an algorithm's fitness depends on; compared byte by byte, so filled over zeros. */
struct matmul_key {
    int64_t m, n, k, y_stride, a_stride, b_stride, c_stride;
    int64_t batch, y_step, a_step, b_step, c_step;
    int32_t type, y_type, a_turned, b_turned, added;
    int32_t y_align, a_align, b_align, c_align, spare;
};

struct matmul_plan {
    struct matmul_key key;
    int used;
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t a, b, c, y;
    cublasLtMatmulAlgo_t algo;
};

struct gpu_matmul {
    cublasLtHandle_t lt;
    void *workspace;
    cudaEvent_t start, stop; /* for timing candidates */
    int count;
    struct matmul_plan plan[GPU_MATMUL_PLANS]; /* open addressing */
};

/* A product's candidates, the one first whose results all must have. same: nonzero where they are;
 * ms: the mean of TRIALS runs. */
struct matmul_trial {
    cublasLtMatmulAlgo_t algo[GPU_CANDIDATES];
    int n, same[GPU_CANDIDATES];
    float ms[GPU_CANDIDATES];
};

/* One product with algo into y (p->y, or scratch of the same layout while tuning). */
enum status gpu_matmul_launch(struct gpu_device *dev, struct matmul_plan *plan,
                              const struct gpu_product *p, const cublasLtMatmulAlgo_t *algo,
                              void *y);

/* Puts first the candidate whose results all must have: the heuristic's favourite, or, where it
 * cuts K into pieces though the result alone fills the GPU, the first that does not. The same on
 * every run: it depends on sizes, the list and the number of multiprocessors. */
void gpu_matmul_lead(struct matmul_trial *t, const struct matmul_key *key, int sms);

/* Keeps in plan->algo the fastest candidate that has the results of the first: which one is fastest
 * may change from run to run, results may not. What that costs is told beside it. */
enum status gpu_matmul_tune(struct gpu_device *dev, struct matmul_plan *plan,
                            const struct gpu_product *p, struct matmul_trial *t, void *y);

#endif
