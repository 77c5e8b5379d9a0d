#include "gpu/matmul.h"

#include "common/base/log.h"
#include "gpu/comm.h"
#include "gpu/matmul_plan.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

static enum status check(cublasStatus_t st, const char *what)
{
    if (st == CUBLAS_STATUS_SUCCESS)
        return ST_OK;
    return fail(st == CUBLAS_STATUS_ALLOC_FAILED ? ST_ENOMEM : ST_EDEVICE, "%s: %s", what,
                cublasLtGetStatusString(st));
}

#define LT_TRY(call) TRY(check((call), #call))

enum status gpu_matmul_open(struct gpu_matmul **mm)
{
    struct gpu_matmul *made = calloc(1, sizeof *made);

    if (!made)
        return fail(ST_ENOMEM, "no host memory for the plans of matrix products");
    *mm = made;
    LT_TRY(cublasLtCreate(&made->lt));
    CUDA_TRY(cudaMalloc(&made->workspace, GPU_WORKSPACE));
    CUDA_TRY(cudaEventCreate(&made->start));
    CUDA_TRY(cudaEventCreate(&made->stop));
    return ST_OK;
}

void gpu_matmul_close(struct gpu_matmul *mm)
{
    if (!mm)
        return;
    if (mm->start)
        cudaEventDestroy(mm->start);
    if (mm->stop)
        cudaEventDestroy(mm->stop);
    cudaFree(mm->workspace);
    if (mm->lt)
        cublasLtDestroy(mm->lt);
    free(mm);
}

/* Bytes that the address and the step between batches are multiples of, at most 16. */
static int32_t alignment(const void *p, int64_t step, enum dtype type)
{
    uintptr_t bits = (uintptr_t)p | (uintptr_t)(step * (int64_t)dtype_size(type)) | 16u;

    return (int32_t)(bits & -bits);
}

static struct matmul_key key_of(const struct gpu_product *p)
{
    struct matmul_key key;

    memset(&key, 0, sizeof key);
    key.m = p->m;
    key.n = p->n;
    key.k = p->k;
    key.y_stride = p->y_stride;
    key.a_stride = p->a_stride;
    key.b_stride = p->b_stride;
    key.c_stride = p->c ? p->c_stride : p->y_stride;
    key.batch = p->batch;
    key.y_step = p->y_step;
    key.a_step = p->a_step;
    key.b_step = p->b_step;
    key.c_step = p->c ? p->c_step : p->y_step;
    key.type = (int32_t)p->type;
    key.y_type = (int32_t)p->y_type;
    key.a_turned = p->a_turned;
    key.b_turned = p->b_turned;
    key.added = p->accumulate || p->c == p->y ? ADDED_OUTPUT : p->c ? ADDED_OTHER : ADDED_NONE;
    key.y_align = alignment(p->y, p->y_step, p->y_type);
    key.a_align = alignment(p->a, p->a_step, p->type);
    key.b_align = alignment(p->b, p->b_step, p->type);
    key.c_align = p->c ? alignment(p->c, p->c_step, p->y_type) : key.y_align;
    return key;
}

static cudaDataType type_of(int32_t type)
{
    return type == DT_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* Stored [rows, cols] with a row stride is, to a column-major library, [cols, rows] with that
 * leading dimension. */
static enum status layout(cublasLtMatrixLayoutOpaque_t *l, int32_t type, int64_t rows, int64_t cols,
                          int64_t stride)
{
    int64_t least = stride > cols ? stride : cols; /* one row may carry any stride */

    LT_TRY(cublasLtMatrixLayoutInit(l, type_of(type), (uint64_t)cols, (uint64_t)rows, least));
    return ST_OK;
}

static enum status layout_batch(cublasLtMatrixLayoutOpaque_t *l, int64_t batch, int64_t step)
{
    int32_t count = (int32_t)batch;

    if (batch == 1)
        return ST_OK;
    LT_TRY(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                            sizeof count));
    LT_TRY(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
                                            sizeof step));
    return ST_OK;
}

/* The library computes y' = op(b)' op(a)': its first operand is b. */
static enum status plan_describe(struct matmul_plan *plan, const struct matmul_key *k)
{
    cublasOperation_t first = k->b_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = k->a_turned ? CUBLAS_OP_T : CUBLAS_OP_N;

    plan->key = *k;
    LT_TRY(cublasLtMatmulDescInit(&plan->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    LT_TRY(cublasLtMatmulDescSetAttribute(&plan->desc, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                          sizeof first));
    LT_TRY(cublasLtMatmulDescSetAttribute(&plan->desc, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                          sizeof second));
    TRY(layout(&plan->b, k->type, k->b_turned ? k->n : k->k, k->b_turned ? k->k : k->n,
               k->b_stride));
    TRY(layout(&plan->a, k->type, k->a_turned ? k->k : k->m, k->a_turned ? k->m : k->k,
               k->a_stride));
    TRY(layout(&plan->c, k->y_type, k->m, k->n, k->c_stride));
    TRY(layout(&plan->y, k->y_type, k->m, k->n, k->y_stride));
    TRY(layout_batch(&plan->b, k->batch, k->b_step));
    TRY(layout_batch(&plan->a, k->batch, k->a_step));
    TRY(layout_batch(&plan->c, k->batch, k->c_step));
    return layout_batch(&plan->y, k->batch, k->y_step);
}

static enum status prefer(cublasLtMatmulPreferenceOpaque_t *pref, const struct matmul_key *k)
{
    const uint64_t workspace = GPU_WORKSPACE;
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* or none at all */
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        uint32_t bytes;
    } align[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)k->b_align},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)k->a_align},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)k->c_align},
                 {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)k->y_align}};

    LT_TRY(cublasLtMatmulPreferenceInit(pref));
    LT_TRY(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                &workspace, sizeof workspace));
    LT_TRY(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                &schemes, sizeof schemes));
    for (size_t i = 0; i < sizeof align / sizeof align[0]; i++)
        LT_TRY(cublasLtMatmulPreferenceSetAttribute(pref, align[i].name, &align[i].bytes,
                                                    sizeof align[i].bytes));
    return ST_OK;
}

/* The usable candidates, the heuristic's favourite first. */
static enum status candidates(struct gpu_matmul *mm, struct matmul_plan *plan,
                              struct matmul_trial *t)
{
    cublasLtMatmulPreferenceOpaque_t pref;
    cublasLtMatmulHeuristicResult_t result[GPU_CANDIDATES];
    const struct matmul_key *k = &plan->key;
    int found = 0;

    TRY(prefer(&pref, k));
    LT_TRY(cublasLtMatmulAlgoGetHeuristic(mm->lt, &plan->desc, &plan->b, &plan->a, &plan->c,
                                          &plan->y, &pref, GPU_CANDIDATES, result, &found));
    t->n = 0;
    for (int i = 0; i < found; i++)
        if (result[i].state == CUBLAS_STATUS_SUCCESS && result[i].workspaceSize <= GPU_WORKSPACE)
            t->algo[t->n++] = result[i].algo;
    if (t->n == 0)
        return fail(ST_EDEVICE,
                    "cuBLASLt offers no algorithm for y[%lld,%lld] = a b over %lld (%s to %s, "
                    "row strides y %lld, a %lld, b %lld)",
                    (long long)k->m, (long long)k->n, (long long)k->k,
                    dtype_name((enum dtype)k->type), dtype_name((enum dtype)k->y_type),
                    (long long)k->y_stride, (long long)k->a_stride, (long long)k->b_stride);
    return ST_OK;
}

enum status gpu_matmul_launch(struct gpu_device *dev, struct matmul_plan *plan,
                              const struct gpu_product *p, const cublasLtMatmulAlgo_t *algo,
                              void *y)
{
    const float one = 1.0f, beta = plan->key.added == ADDED_NONE ? 0.0f : 1.0f;
    const void *c = plan->key.added == ADDED_OTHER    ? p->c
                    : plan->key.added == ADDED_OUTPUT ? p->y
                                                      : y;

    LT_TRY(cublasLtMatmul(dev->matmul->lt, &plan->desc, &one, p->b, &plan->b, p->a, &plan->a, &beta,
                          c, &plan->c, y, &plan->y, algo, dev->matmul->workspace, GPU_WORKSPACE,
                          dev->stream));
    return ST_OK;
}

/* Bytes from y's first element past its last. */
static size_t y_bytes(const struct gpu_product *p)
{
    int64_t last = (p->batch - 1) * p->y_step + (p->m - 1) * p->y_stride + p->n;

    return (size_t)last * dtype_size(p->y_type);
}

/* Chooses plan's algorithm. Where y is also an operand the trials write elsewhere; without memory
 * for that, the first candidate stands: the same bits, perhaps slower. */
static enum status choose(struct gpu_device *dev, struct matmul_plan *plan,
                          const struct gpu_product *p)
{
    struct matmul_trial t;
    enum status st;
    void *y = p->y;

    TRY(candidates(dev->matmul, plan, &t));
    gpu_matmul_lead(&t, &plan->key, dev->sms);
    plan->algo = t.algo[0];
    if (t.n == 1 || gpu_capturing(dev))
        return ST_OK;
    if (plan->key.added == ADDED_OUTPUT && cudaMalloc(&y, y_bytes(p)) != cudaSuccess) {
        cudaGetLastError();
        log_debug("no memory to time the product m %lld n %lld k %lld: the first candidate it is",
                  (long long)p->m, (long long)p->n, (long long)p->k);
        return ST_OK;
    }
    st = gpu_matmul_tune(dev, plan, p, &t, y);
    if (y != p->y) {
        if (st == ST_OK)
            st = gpu_comm_quiet(dev);
        cudaFree(y);
    }
    return st;
}

/* The slot of key: the plan itself, or the free place where it belongs; NULL when all are taken. */
static struct matmul_plan *find(struct gpu_matmul *mm, const struct matmul_key *key)
{
    const unsigned char *bytes = (const unsigned char *)key;
    uint64_t h = 0xcbf29ce484222325u;

    for (size_t i = 0; i < sizeof *key; i++)
        h = (h ^ bytes[i]) * 0x100000001b3u;
    for (uint64_t i = 0; i < GPU_MATMUL_PLANS; i++) {
        struct matmul_plan *plan = &mm->plan[(h + i) % GPU_MATMUL_PLANS];

        if (!plan->used || memcmp(&plan->key, key, sizeof *key) == 0)
            return plan;
    }
    return NULL;
}

enum status gpu_matmul_run(struct gpu_device *dev, const struct gpu_product *p)
{
    struct matmul_key key = key_of(p);
    struct matmul_plan *plan = find(dev->matmul, &key);

    if ((p->type != DT_BF16 && p->type != DT_F32) ||
        (p->y_type != DT_BF16 && p->y_type != DT_F32) || (p->type == DT_F32 && p->y_type != DT_F32))
        return fail(ST_EDTYPE,
                    "product of %s into %s: the gpu backend has bf16 into bf16 or f32, "
                    "and f32 into f32",
                    dtype_name(p->type), dtype_name(p->y_type));
    if (!plan)
        return fail(ST_EDEVICE, "more than %d kinds of matrix products", GPU_MATMUL_PLANS);
    if (!plan->used) {
        TRY(plan_describe(plan, &key));
        TRY(choose(dev, plan, p));
        plan->used = 1;
    }
    TRY(gpu_matmul_launch(dev, plan, p, &plan->algo, p->y));
    return gpu_put(dev, GPU_PUT_PRODUCT); /* not in launch: nothing must disturb what is timed */
}
