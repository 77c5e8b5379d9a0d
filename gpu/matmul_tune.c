/* Which of cuBLASLt's candidates a product takes. */
#include "common/base/log.h"
#include "gpu/matmul_plan.h"
#include "gpu/probe.h"

/* How often each candidate of a product is timed. */
enum { TRIALS = 4 };

/* Pieces that an algorithm cuts K into. */
static uint32_t pieces(const cublasLtMatmulAlgo_t *algo)
{
    uint32_t n = 1;
    size_t written;

    if (cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &n, sizeof n,
                                             &written) != CUBLAS_STATUS_SUCCESS)
        return 0;
    return n > 1 ? n : 1;
}

/* Nonzero where tiles of 64 x 128 of the result keep nine tenths of the GPU at work. */
static int fills(const struct matmul_key *key, int sms)
{
    int64_t tiles = (key->m + 63) / 64 * ((key->n + 127) / 128) * key->batch;

    return 10 * tiles >= 9 * (int64_t)sms;
}

void gpu_matmul_lead(struct matmul_trial *t, const struct matmul_key *key, int sms)
{
    int lead = 0;

    if (fills(key, sms))
        while (lead < t->n && pieces(&t->algo[lead]) != 1)
            lead++;
    if (lead > 0 && lead < t->n) {
        cublasLtMatmulAlgo_t first = t->algo[lead];

        t->algo[lead] = t->algo[0];
        t->algo[0] = first;
    }
}

/* Milliseconds of one run. */
static enum status time_algo(float *ms, struct gpu_device *dev, struct matmul_plan *plan,
                             const struct gpu_product *p, const cublasLtMatmulAlgo_t *algo, void *y)
{
    CUDA_TRY(cudaEventRecord(dev->matmul->start, dev->stream));
    TRY(gpu_matmul_launch(dev, plan, p, algo, y));
    CUDA_TRY(cudaEventRecord(dev->matmul->stop, dev->stream));
    TRY(gpu_wait(dev));
    CUDA_TRY(cudaEventElapsedTime(ms, dev->matmul->start, dev->matmul->stop));
    return ST_OK;
}

/* The sum of y's mixed bits; equal results have equal ones. */
static enum status fingerprint(uint64_t *sum, struct gpu_device *dev,
                               const struct matmul_plan *plan, const struct gpu_product *p,
                               const void *y)
{
    int64_t steps = p->batch > 1 ? p->batch : 1;

    *sum = 0;
    for (int64_t i = 0; i < steps; i++) {
        const char *at = (const char *)y + i * p->y_step * (int64_t)dtype_size(p->y_type);
        struct tensor t = {.data = (void *)(uintptr_t)at,
                           .dtype = p->y_type,
                           .rows = plan->key.m,
                           .cols = plan->key.n,
                           .stride = p->y_stride};
        uint64_t part;

        TRY(gpu_probe_bits(&part, dev, &t));
        *sum = *sum * 0x9e3779b97f4a7c15u + part;
    }
    return ST_OK;
}

/* y of nothing but bytes `value`. */
static enum status fill(struct gpu_device *dev, const struct gpu_product *p, void *y, int value)
{
    size_t size = dtype_size(p->y_type);
    size_t width = (size_t)p->n * size, pitch = (size_t)p->y_stride * size;

    for (int64_t i = 0; i < p->batch; i++)
        CUDA_TRY(cudaMemset2DAsync((char *)y + (size_t)(i * p->y_step) * size,
                                   pitch > width ? pitch : width, value, width, (size_t)p->m,
                                   dev->stream));
    return ST_OK;
}

/* Results are compared by their bits; a candidate that cuts K into other pieces has others on other
 * numbers, whatever it has on these. Zeros, which any order of sums gives (of a batch without
 * targets, say), tell nothing: then the first stands alone. Before each run y gets bytes that no
 * product leaves behind, so that none passes by writing nothing. */
static enum status compare_results(struct matmul_trial *t, struct gpu_device *dev,
                                   struct matmul_plan *plan, const struct gpu_product *p, void *y)
{
    uint64_t want = 0, got, zeros;

    TRY(fill(dev, p, y, 0));
    TRY(fingerprint(&zeros, dev, plan, p, y));
    for (int i = 0; i < t->n; i++) {
        enum status st;

        TRY(fill(dev, p, y, 0xff));
        st = gpu_matmul_launch(dev, plan, p, &t->algo[i], y);
        if (st != ST_OK && i > 0) { /* refused after all: the others will do */
            status_clear();
            t->algo[i--] = t->algo[--t->n];
            continue;
        }
        TRY(st);
        TRY(fingerprint(&got, dev, plan, p, y));
        want = i == 0 ? got : want;
        t->same[i] = got == want && want != zeros && pieces(&t->algo[i]) == pieces(&t->algo[0]);
    }
    return ST_OK;
}

/* In turn: a GPU's clock falls while it works. */
static enum status time_trials(struct matmul_trial *t, struct gpu_device *dev,
                               struct matmul_plan *plan, const struct gpu_product *p, void *y)
{
    for (int run = 0; run < TRIALS * t->n; run++) {
        int i = run % t->n;
        float ms;

        TRY(time_algo(&ms, dev, plan, p, &t->algo[i], y));
        t->ms[i] = (run < t->n ? 0.0f : t->ms[i]) + ms / (float)TRIALS;
    }
    return ST_OK;
}

enum status gpu_matmul_tune(struct gpu_device *dev, struct matmul_plan *plan,
                            const struct gpu_product *p, struct matmul_trial *t, void *y)
{
    int chosen = 0, any = 0;
    double flops;

    TRY(compare_results(t, dev, plan, p, y));
    TRY(time_trials(t, dev, plan, p, y));
    for (int i = 1; i < t->n; i++) {
        any = t->ms[i] < t->ms[any] ? i : any;
        chosen = t->same[i] && t->ms[i] < t->ms[chosen] ? i : chosen;
    }
    plan->algo = t->algo[chosen];
    flops = 2.0 * (double)(p->m * p->n * p->k * p->batch);
    log_debug(
        "product m %lld n %lld k %lld batch %lld (%s to %s): candidate %d of %d, %.4f ms, %.0f "
        "TFLOP/s, %.2f times the fastest of any results",
        (long long)p->m, (long long)p->n, (long long)p->k, (long long)p->batch, dtype_name(p->type),
        dtype_name(p->y_type), chosen, t->n, (double)t->ms[chosen],
        1e-9 * flops / (double)t->ms[chosen], (double)(t->ms[chosen] / t->ms[any]));
    return ST_OK;
}
