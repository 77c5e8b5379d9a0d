/* Opening a GPU, its memory, and where the host waits for it. */
#include "gpu/device.h"

#include "common/base/log.h"
#include "gpu/attention.h"
#include "gpu/comm.h"
#include "gpu/glu.h"
#include "gpu/gpu.h"
#include "gpu/graph.h"
#include "gpu/items.h"
#include "gpu/matmul.h"
#include "gpu/probe.h"
#include "gpu/stamp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum status gpu_check(cudaError_t err, const char *what)
{
    if (err == cudaSuccess)
        return ST_OK;
    return fail(err == cudaErrorMemoryAllocation ? ST_ENOMEM : ST_EDEVICE, "%s: %s (%s)", what,
                cudaGetErrorString(err), cudaGetErrorName(err));
}

enum status gpu_launched(struct gpu_device *dev, const char *op)
{
    TRY(gpu_check(cudaGetLastError(), op));
    return gpu_put(dev, 1);
}

/* The node's GPU of this rank, made current. Streams share the GPU's queues, and what waits at the
 * head of one holds up the stream behind it: a receive that waits for a peer would hold up the send
 * that this peer waits for. A rank has about ten streams, one a communicator; CUDA's default is 8
 * queues. It reads the variable once, before its first call. */
static enum status choose(int *ordinal, const struct device_options *opt)
{
    int count = 0;
    cudaError_t err;

    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    err = cudaGetDeviceCount(&count);

    if (err != cudaSuccess || count == 0)
        return fail(ST_EDEVICE,
                    "no GPU answers: %s (driver and GPU: nvidia-smi; without one: "
                    "run.backend=ref)",
                    err == cudaSuccess ? "CUDA counts 0 devices" : cudaGetErrorString(err));
    if (opt->local_size > count)
        return fail(ST_EDEVICE,
                    "%d ranks on this node, but %d GPU%s: one rank a GPU is allowed (start fewer "
                    "ranks a node, widen CUDA_VISIBLE_DEVICES, or run.backend=ref)",
                    opt->local_size, count, count == 1 ? "" : "s");
    if (opt->local_rank < 0 || opt->local_rank >= count)
        return fail(ST_EDEVICE, "local rank %d has no GPU: this node has %d", opt->local_rank,
                    count);
    *ordinal = opt->local_rank;
    CUDA_TRY(cudaSetDevice(*ordinal));
    return ST_OK;
}

static enum status staging_open(struct gpu_staging *st)
{
    CUDA_TRY(cudaMallocHost((void **)&st->memory, (size_t)GPU_STAGE_SLOTS * GPU_STAGE_BYTES));
    for (int i = 0; i < GPU_STAGE_SLOTS; i++)
        CUDA_TRY(cudaEventCreateWithFlags(&st->sent[i], cudaEventDisableTiming));
    return ST_OK;
}

static void staging_close(struct gpu_staging *st)
{
    for (int i = 0; i < GPU_STAGE_SLOTS; i++)
        if (st->sent[i])
            cudaEventDestroy(st->sent[i]);
    if (st->memory)
        cudaFreeHost(st->memory);
}

static enum status describe(struct gpu_device *dev)
{
    struct cudaDeviceProp prop;

    CUDA_TRY(cudaGetDeviceProperties(&prop, dev->ordinal));
    dev->sms = prop.multiProcessorCount;
    dev->shared_most = prop.sharedMemPerBlockOptin;
    if (!gpu_probe_runs())
        return fail(ST_EDEVICE,
                    "GPU %d (%s, compute capability %d.%d): this build holds no kernels for it "
                    "(configure --with-cuda-arch=%d%d, or run.backend=ref)",
                    dev->ordinal, prop.name, prop.major, prop.minor, prop.major, prop.minor);
    snprintf(dev->name, sizeof dev->name, "%.40s, attention: %s%s", prop.name,
             gpu_attention_path(dev), dev->glu ? ", SwiGLU in its products" : "");
    return ST_OK;
}

static enum status open_parts(struct gpu_device *dev, const struct device_options *opt)
{
    TRY(choose(&dev->ordinal, opt));
    dev->any_order = opt->any_order;
    CUDA_TRY(cudaStreamCreateWithFlags(&dev->stream, cudaStreamNonBlocking));
    CUDA_TRY(cudaEventCreateWithFlags(&dev->mark, cudaEventDisableTiming));
    for (int i = 0; i < GPU_AHEAD_SLOTS; i++)
        CUDA_TRY(cudaEventCreateWithFlags(&dev->passed[i], cudaEventDisableTiming));
    CUDA_TRY(cudaMalloc(&dev->scratch, GPU_SCRATCH));
    dev->scratch_bytes = GPU_SCRATCH;
    TRY(staging_open(&dev->staging));
    TRY(gpu_matmul_open(&dev->matmul));
    TRY(gpu_items_open(&dev->items));
    TRY(gpu_glu_open(&dev->glu, dev));
    TRY(gpu_attention_open(dev));
    TRY(describe(dev));
    log_info("GPU %d: %s", dev->ordinal, dev->name);
    return ST_OK;
}

enum status gpu_open(struct device **dev, const struct device_options *opt)
{
    struct gpu_device *gpu = calloc(1, sizeof *gpu);
    enum status st;

    if (!gpu)
        return fail(ST_ENOMEM, "no host memory for a device");
    gpu->base = (struct device){.be = &gpu_backend, .threads = 1, .wide = DT_F32, .warms = 1};
    st = open_parts(gpu, opt);
    if (st != ST_OK) {
        gpu_close(&gpu->base);
        return st;
    }
    *dev = &gpu->base;
    return ST_OK;
}

void gpu_close(struct device *dev)
{
    struct gpu_device *gpu = gpu_of(dev);

    if (!gpu)
        return;
    gpu_graphs_drop(gpu);
    gpu_attention_close(gpu);
    gpu_items_close(gpu->items);
    gpu_glu_close(gpu->glu);
    gpu_matmul_close(gpu->matmul);
    staging_close(&gpu->staging);
    gpu_stamps_close(&gpu->stamps);
    cudaFree(gpu->scratch);
    if (gpu->mark)
        cudaEventDestroy(gpu->mark);
    for (int i = 0; i < GPU_AHEAD_SLOTS; i++)
        if (gpu->passed[i])
            cudaEventDestroy(gpu->passed[i]);
    if (gpu->stream)
        cudaStreamDestroy(gpu->stream);
    cudaGetLastError(); /* whatever closing met is no later call's failure */
    free(gpu);
}

/* Memory of the GPU; `what` names its use. */
static enum status take(void **p, size_t bytes, const char *what)
{
    size_t available = 0, total = 0;

    if (cudaMalloc(p, bytes ? bytes : 1) == cudaSuccess)
        return ST_OK;
    cudaGetLastError();
    CUDA_TRY(cudaMemGetInfo(&available, &total));
    return fail(ST_ENOMEM,
                "GPU %s: %.1f MiB asked for, %.1f of %.1f MiB free (smaller micro_batch, "
                "recompute, or more ranks)",
                what, (double)bytes / 1048576.0, (double)available / 1048576.0,
                (double)total / 1048576.0);
}

enum status gpu_alloc(struct device *dev, void **p, size_t bytes)
{
    (void)dev;
    return take(p, bytes, "memory");
}

void gpu_release(struct device *dev, void *p)
{
    if (gpu_comm_quiet(gpu_of(dev)) != ST_OK)
        log_warn("a collective was ended to free memory: %s", status_message());
    cudaFree(p);
}

/* Waits for what came before an event, and watches the communicators meanwhile. */
static enum status wait_event(struct gpu_device *dev, cudaEvent_t event, const char *what)
{
    struct host_poll poll = host_poll_start();
    cudaError_t err;

    while ((err = cudaEventQuery(event)) == cudaErrorNotReady)
        TRY(gpu_comm_poll(dev, &poll, what));
    return gpu_check(err, what);
}

/* Waits for an event of the compute stream, where the host is far ahead of the GPU; what the GPU
 * was given since then goes on. */
static enum status reach(struct gpu_device *dev, cudaEvent_t event, const char *what)
{
    if (dev->comms)
        return wait_event(dev, event, what);
    CUDA_TRY(cudaEventSynchronize(event));
    return ST_OK;
}

enum status gpu_put(struct gpu_device *dev, int n)
{
    int slot;

    if (dev->recording)
        return ST_OK;
    slot = gpu_ahead_put(&dev->ahead, n);
    if (slot >= 0)
        CUDA_TRY(cudaEventRecord(dev->passed[slot], dev->stream));
    while ((slot = gpu_ahead_far(&dev->ahead)) >= 0) {
        TRY(reach(dev, dev->passed[slot], "the GPU's work"));
        gpu_ahead_reached(&dev->ahead);
    }
    return ST_OK;
}

enum status gpu_upload(struct device *dev, void *dst, const void *src, size_t bytes)
{
    struct gpu_device *gpu = gpu_of(dev);
    struct gpu_staging *st = &gpu->staging;

    if (gpu_capturing(gpu))
        return fail(ST_EDEVICE, "an upload while a CUDA graph is recorded, which would read host "
                                "memory at each replay: set run.graph=off");
    for (size_t done = 0; done < bytes;) {
        size_t piece = bytes - done < GPU_STAGE_BYTES ? bytes - done : GPU_STAGE_BYTES;
        char *slot = st->memory + (size_t)st->next * GPU_STAGE_BYTES;

        TRY(reach(gpu, st->sent[st->next], "an upload"));
        memcpy(slot, (const char *)src + done, piece);
        CUDA_TRY(
            cudaMemcpyAsync((char *)dst + done, slot, piece, cudaMemcpyHostToDevice, gpu->stream));
        CUDA_TRY(cudaEventRecord(st->sent[st->next], gpu->stream));
        TRY(gpu_put(gpu, 2));
        st->next = (st->next + 1) % GPU_STAGE_SLOTS;
        done += piece;
    }
    return ST_OK;
}

enum status gpu_download(struct device *dev, void *dst, const void *src, size_t bytes)
{
    /* First wait in a way that notices a failed peer; the copy itself then finds an idle stream. */
    TRY(gpu_wait(gpu_of(dev)));
    CUDA_TRY(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, gpu_of(dev)->stream));
    return gpu_wait(gpu_of(dev));
}

enum status gpu_copy(struct device *dev, void *dst, const void *src, size_t bytes)
{
    CUDA_TRY(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, gpu_of(dev)->stream));
    return gpu_put(gpu_of(dev), 1);
}

enum status gpu_zero(struct device *dev, void *dst, size_t bytes)
{
    CUDA_TRY(cudaMemsetAsync(dst, 0, bytes, gpu_of(dev)->stream));
    return gpu_put(gpu_of(dev), 1);
}

enum status gpu_sync(struct device *dev)
{
    return gpu_wait(gpu_of(dev));
}

enum status gpu_info(struct device *dev, struct device_info *info)
{
    struct gpu_device *gpu = gpu_of(dev);

    snprintf(info->name, sizeof info->name, "%s", gpu->name);
    CUDA_TRY(cudaMemGetInfo(&info->memory_free, &info->memory_total));
    return ST_OK;
}

enum status gpu_scratch(struct gpu_device *dev, void **p, size_t bytes)
{
    void *larger = NULL;

    if (bytes > dev->scratch_bytes) {
        if (gpu_capturing(dev))
            return fail(ST_EDEVICE,
                        "scratch of %zu bytes wanted while a CUDA graph is recorded, %zu held: run "
                        "the step once before recording it",
                        bytes, dev->scratch_bytes);
        TRY(gpu_wait(dev));
        TRY(gpu_comm_quiet(dev));
        TRY(take(&larger, bytes, "scratch for one operation"));
        gpu_graphs_drop(dev);
        log_debug("GPU scratch grows from %zu to %zu bytes", dev->scratch_bytes, bytes);
        cudaFree(dev->scratch);
        dev->scratch = larger;
        dev->scratch_bytes = bytes;
    }
    *p = dev->scratch;
    return ST_OK;
}

enum status gpu_wait(struct gpu_device *dev)
{
    if (gpu_capturing(dev))
        return fail(ST_EDEVICE, "a wait for the GPU while a CUDA graph is recorded: run the step "
                                "once before recording it, or set run.graph=off");
    if (!dev->comms) {
        CUDA_TRY(cudaStreamSynchronize(dev->stream));
        return ST_OK;
    }
    CUDA_TRY(cudaEventRecord(dev->mark, dev->stream));
    return wait_event(dev, dev->mark, "the GPU's work");
}

int gpu_capturing(struct gpu_device *dev)
{
    return dev->recording;
}

enum status gpu_plan(int *accumulate, const struct sample_plan *plan)
{
    if (plan->exact || plan->nodes != 1 || plan->node[0].slot != 0)
        return fail(ST_ECONFIG,
                    "an exact sample plan of %d nodes: the gpu backend sums a "
                    "micro-batch as one block (parallel.layout_exact=off)",
                    (int)plan->nodes);
    *accumulate = plan->node[0].merges > 0;
    return ST_OK;
}
