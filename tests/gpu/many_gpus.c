/* Makes CUDA say that there are as many GPUs as NARROWS_ONE_GPU_RANKS names, all of them the first
 * one. A part of the stand-in for NCCL (nccl_one_gpu.cu).
 *
 * Here is every function that narrows calls and that takes or gives a GPU's number. cuBLASLt and
 * cuDNN have a runtime of their own linked in, out of reach, that finds the one GPU by its current
 * context; the only number that they are given is that of cuDNN's description of a device. Nobody
 * gives a number to the driver, so what cudaGetDevice answers may be pretended as well.
 */
#ifdef HAVE_CUDNN
#include <cudnn.h>
#endif
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>

/* A function's name as text, behind the macros that some toolkits put before it. */
#define TEXT(name)  TEXT_(name)
#define TEXT_(name) #name

/* The GPU that this thread has chosen. */
static __thread int current;

static int pretended(void)
{
    const char *text = getenv("NARROWS_ONE_GPU_RANKS");
    int n = text ? (int)strtol(text, NULL, 10) : 0;

    return n > 0 ? n : 1;
}

/* The GPU that is meant; for one that there is not, one that the runtime refuses. */
static int meant(int device)
{
    return device >= 0 && device < pretended() ? 0 : INT_MAX;
}

/* *function = the library's own one; fails where the runtime is not a shared library. */
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

    if (err == cudaSuccess)
        err = own(meant(device));
    if (err == cudaSuccess)
        current = device;
    return err;
}

cudaError_t cudaGetDevice(int *device)
{
    cudaError_t (*own)(int *);
    cudaError_t err = find(&own, TEXT(cudaGetDevice));

    if (err == cudaSuccess)
        err = own(device);
    if (err == cudaSuccess)
        *device = current;
    return err;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    cudaError_t (*own)(struct cudaDeviceProp *, int);
    cudaError_t err = find(&own, TEXT(cudaGetDeviceProperties));

    return err == cudaSuccess ? own(properties, meant(device)) : err;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    cudaError_t (*own)(int *, enum cudaDeviceAttr, int);
    cudaError_t err = find(&own, TEXT(cudaDeviceGetAttribute));

    return err == cudaSuccess ? own(value, attribute, meant(device)) : err;
}

#ifdef HAVE_CUDNN
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *values)
{
    cudnnStatus_t (*own)(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
                         cudnnBackendAttributeType_t, int64_t, const void *);
    int32_t device;

    if (find(&own, TEXT(cudnnBackendSetAttribute)) != cudaSuccess)
        return CUDNN_STATUS_NOT_INITIALIZED;
    if (name != CUDNN_ATTR_DEVICEPROP_DEVICE_ID || type != CUDNN_TYPE_INT32 || count != 1)
        return own(descriptor, name, type, count, values);
    device = meant(*(const int32_t *)values);
    return own(descriptor, name, type, count, &device);
}
#endif
