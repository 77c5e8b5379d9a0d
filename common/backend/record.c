#include "common/backend/record_state.h"

#include <stdlib.h>
#include <string.h>

/* ---- device ---- */

enum status record_open(struct device **dev, enum dtype wide)
{
    struct record_device *r = calloc(1, sizeof *r);

    if (!r)
        return fail(ST_ENOMEM, "no memory for a recording device");
    r->base = (struct device){.be = &record_backend, .threads = 1, .wide = wide};
    *dev = &r->base;
    return ST_OK;
}

static enum status open_default(struct device **dev, const struct device_options *opt)
{
    (void)opt;
    return record_open(dev, DT_F32);
}

static void close_device(struct device *dev)
{
    free(dev);
}

static enum status alloc(struct device *dev, void **p, size_t bytes)
{
    (void)dev;
    (void)bytes;
    *p = (void *)(uintptr_t)4096; /* never touched */
    return ST_OK;
}

static void release(struct device *dev, void *p)
{
    (void)dev;
    (void)p;
}

static enum status upload(struct device *dev, void *dst, const void *src, size_t bytes)
{
    (void)dev;
    (void)dst;
    (void)src;
    (void)bytes;
    return ST_OK;
}

static enum status download(struct device *dev, void *dst, const void *src, size_t bytes)
{
    (void)dev;
    (void)src;
    memset(dst, 0, bytes);
    return ST_OK;
}

static enum status copy(struct device *dev, void *dst, const void *src, size_t bytes)
{
    (void)dst;
    (void)src;
    return record_moved(dev, 2.0 * (double)bytes);
}

static enum status zero(struct device *dev, void *dst, size_t bytes)
{
    (void)dst;
    return record_moved(dev, (double)bytes);
}

static enum status sync_device(struct device *dev)
{
    (void)dev;
    return ST_OK;
}

static enum status info(struct device *dev, struct device_info *out)
{
    (void)dev;
    *out = (struct device_info){.name = "recording"};
    return ST_OK;
}

static enum status stamp(struct device *dev, int64_t n, const char *name)
{
    (void)dev;
    (void)n;
    (void)name;
    return ST_OK;
}

static enum status stamps(struct device *dev, double *seconds, int64_t n)
{
    (void)dev;
    memset(seconds, 0, (size_t)n * sizeof *seconds); /* nothing takes time */
    return ST_OK;
}

static const struct device_ops device_table = {.open = open_default,
                                               .close = close_device,
                                               .alloc = alloc,
                                               .release = release,
                                               .upload = upload,
                                               .download = download,
                                               .copy = copy,
                                               .zero = zero,
                                               .sync = sync_device,
                                               .info = info,
                                               .stamp = stamp,
                                               .stamps = stamps,
                                               .capture_begin = device_none_begin,
                                               .capture_end = device_none_end,
                                               .replay = device_none_replay,
                                               .capture_free = device_none_free};

const struct backend record_backend = {
    .name = "record", .device = &device_table, .math = &record_math_ops, .comm = &record_comm_ops};

/* ---- what was recorded ---- */

void record_listen(struct device *dev, const struct record_listener *l)
{
    record_state(dev)->listener = l;
}

double record_flops(const struct device *dev)
{
    return ((const struct record_device *)dev)->flops;
}

int64_t record_calls(const struct device *dev)
{
    return ((const struct record_device *)dev)->calls;
}

void record_fail(struct device *dev, int64_t call)
{
    record_state(dev)->fail_at = call ? record_state(dev)->calls + call : 0;
}

size_t record_widened(const struct device *dev)
{
    return ((const struct record_device *)dev)->widened;
}
