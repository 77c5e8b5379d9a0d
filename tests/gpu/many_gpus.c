/* Makes the runtime say that there are as many GPUs as NARROWS_ONE_GPU_RANKS names, all of them the
 * first one. A part of the stand-in for NCCL (nccl_one_gpu.cu). cuBLASLt and cuDNN bring their own
 * runtime, and see the one GPU. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdlib.h>

/* A function's name as text, behind the macros that some toolkits put before it. */
#define TEXT(name)  TEXT_(name)
#define TEXT_(name) #name

static int pretended(void)
{
    const char *text = getenv("NARROWS_ONE_GPU_RANKS");
    int n = text ? (int)strtol(text, NULL, 10) : 0;

    return n > 0 ? n : 1;
}

/* *function = the runtime's own one; fails where the runtime is not a shared library. */
static cudaError_t find(void *function, const char *name)
{
    *(void **)function = dlsym(RTLD_NEXT, name);
    return *(void **)function ? cudaSuccess : cudaErrorInitializationError;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t (*own)(int *);
    cudaError_t err = find(&own, TEXT(cudaGetDeviceCount));

    if (err == cudaSuccess)
        err = own(count);
    if (err == cudaSuccess && *count > 0)
        *count = pretended();
    return err;
}

cudaError_t cudaSetDevice(int device)
{
    cudaError_t (*own)(int);
    cudaError_t err = find(&own, TEXT(cudaSetDevice));

    if (device < 0 || device >= pretended())
        return cudaErrorInvalidDevice;
    return err == cudaSuccess ? own(0) : err;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    cudaError_t (*own)(struct cudaDeviceProp *, int);
    cudaError_t err = find(&own, TEXT(cudaGetDeviceProperties));

    if (device < 0 || device >= pretended())
        return cudaErrorInvalidDevice;
    return err == cudaSuccess ? own(properties, 0) : err;
}
