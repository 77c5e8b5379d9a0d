#include "common/backend/device.h"

enum status device_open(struct device **dev, const struct backend *be,
                        const struct device_options *opt)
{
    const char *missing = backend_missing(be);

    *dev = NULL;
    if (missing)
        return fail(ST_EINTERNAL, "backend %s lacks %s", be->name, missing);
    TRY(be->device->open(dev, opt));
    return ST_OK;
}

void device_close(struct device *dev)
{
    if (dev)
        dev->be->device->close(dev);
}

enum status device_alloc(struct device *dev, void **p, size_t bytes)
{
    TRY(dev->be->device->alloc(dev, p, bytes));
    return ST_OK;
}

void device_release(struct device *dev, void *p)
{
    if (p)
        dev->be->device->release(dev, p);
}

enum status device_upload(struct device *dev, void *dst, const void *src, size_t bytes)
{
    TRY(dev->be->device->upload(dev, dst, src, bytes));
    return ST_OK;
}

enum status device_download(struct device *dev, void *dst, const void *src, size_t bytes)
{
    TRY(dev->be->device->download(dev, dst, src, bytes));
    return ST_OK;
}

enum status device_copy(struct device *dev, void *dst, const void *src, size_t bytes)
{
    TRY(dev->be->device->copy(dev, dst, src, bytes));
    return ST_OK;
}

enum status device_zero(struct device *dev, void *dst, size_t bytes)
{
    TRY(dev->be->device->zero(dev, dst, bytes));
    return ST_OK;
}

enum status device_sync(struct device *dev)
{
    TRY(dev->be->device->sync(dev));
    return ST_OK;
}

enum status device_info(struct device *dev, struct device_info *info)
{
    TRY(dev->be->device->info(dev, info));
    return ST_OK;
}

enum status device_stamp(struct device *dev, int64_t n, const char *name)
{
    TRY(dev->be->device->stamp(dev, n, name));
    return ST_OK;
}

enum status device_stamps(struct device *dev, double *seconds, int64_t n)
{
    TRY(dev->be->device->stamps(dev, seconds, n));
    return ST_OK;
}

enum status device_capture_begin(struct device *dev)
{
    TRY(dev->be->device->capture_begin(dev));
    return ST_OK;
}

enum status device_capture_end(struct device *dev, void **graph)
{
    TRY(dev->be->device->capture_end(dev, graph));
    return ST_OK;
}

enum status device_replay(struct device *dev, void *graph, int *done)
{
    TRY(dev->be->device->replay(dev, graph, done));
    return ST_OK;
}

void device_capture_free(struct device *dev, void *graph)
{
    if (graph)
        dev->be->device->capture_free(dev, graph);
}

enum status device_none_begin(struct device *dev)
{
    return fail(ST_ECONFIG,
                "backend %s does its work at once and records none: set run.graph=off, or "
                "run.backend=gpu",
                dev->be->name);
}

enum status device_none_end(struct device *dev, void **graph)
{
    *graph = NULL;
    return device_none_begin(dev);
}

enum status device_none_replay(struct device *dev, void *graph, int *done)
{
    (void)graph;
    *done = 0;
    return device_none_begin(dev);
}

void device_none_free(struct device *dev, void *graph)
{
    (void)dev;
    (void)graph;
}
