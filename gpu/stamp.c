/* Moments of a profile: CUDA events, made as they are first needed and then used again, and ranges
 * for Nsight Systems under the same names where NVTX is there. */
#include "gpu/stamp.h"

#include "gpu/comm.h"
#include "gpu/gpu.h"

#ifdef HAVE_NVTX
#include <nvtx3/nvToolsExt.h>
#endif
#include <stdlib.h>

enum status gpu_stamp_on(struct gpu_device *dev, int64_t n, cudaStream_t stream)
{
    struct gpu_stamps *s = &dev->stamps;

    if (n >= s->room) {
        int64_t room = 2 * n + 1024;
        cudaEvent_t *more = realloc(s->event, (size_t)room * sizeof *more);

        if (!more)
            return fail(ST_ENOMEM, "no memory for %lld moments of a profile", (long long)room);
        s->event = more;
        s->room = room;
    }
    for (; s->made <= n; s->made++)
        CUDA_TRY(cudaEventCreate(&s->event[s->made]));
    CUDA_TRY(cudaEventRecord(s->event[n], stream));
    return gpu_put(dev, 1);
}

enum status gpu_stamp(struct device *dev, int64_t n, const char *name)
{
#ifdef HAVE_NVTX
    if (!name)
        nvtxRangePop();
    else if (*name)
        nvtxRangePushA(name);
#else
    (void)name;
#endif
    return gpu_stamp_on(gpu_of(dev), n, gpu_of(dev)->stream);
}

enum status gpu_stamps(struct device *dev, double *seconds, int64_t n)
{
    struct gpu_device *gpu = gpu_of(dev);

    FAIL_IF(n > gpu->stamps.made, ST_EINTERNAL);
    TRY(gpu_wait(gpu));
    TRY(gpu_comm_quiet(gpu));
    for (int64_t i = 0; i < n; i++) {
        float ms;

        CUDA_TRY(cudaEventElapsedTime(&ms, gpu->stamps.event[0], gpu->stamps.event[i]));
        seconds[i] = 1e-3 * (double)ms;
    }
    return ST_OK;
}

void gpu_stamps_close(struct gpu_stamps *s)
{
    for (int64_t i = 0; i < s->made; i++)
        cudaEventDestroy(s->event[i]);
    free(s->event);
}
