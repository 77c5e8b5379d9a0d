#include "ref/ref.h"

#include "common/backend/device.h"

#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#ifdef _OPENMP
#include <omp.h>
#endif

static const size_t page = (size_t)1 << 21; /* a huge page */

static size_t memory_total(void)
{
    return (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
}

static size_t memory_free(void)
{
    return (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
}

/* Every page is written once, by all threads: the system hands out pages at a fraction of the
 * speed of memory. 0xff in all bytes is NaN in every floating type. */
static void poison(char *p, size_t bytes, int threads)
{
    int64_t pieces = (int64_t)((bytes + page - 1) / page);

#pragma omp parallel for num_threads(threads) if (pieces > 1)
    for (int64_t i = 0; i < pieces; i++) {
        size_t begin = (size_t)i * page, left = bytes - begin;

        memset(p + begin, 0xff, left < page ? left : page);
    }
}

enum status ref_host_alloc(void **p, size_t bytes, int threads)
{
    size_t align = bytes >= page ? page : 256, size = (bytes + align - 1) / align * align;

    *p = NULL;
    if (bytes > memory_total() || posix_memalign(p, align, size ? size : align) != 0) {
        *p = NULL;
        return fail(ST_ENOMEM,
                    "%.1f MiB of host memory asked for, %.1f MiB of %.1f MiB free: lower "
                    "micro_batch or use more ranks",
                    (double)bytes / 0x1p20, (double)memory_free() / 0x1p20,
                    (double)memory_total() / 0x1p20);
    }
    if (size >= page)
        (void)madvise(*p, size, MADV_HUGEPAGE); /* only advice: without it all is right, slower */
    poison(*p, size, threads);
    return ST_OK;
}

/* A buffer that is too small is replaced; old contents are not needed. */
static enum status grow(struct ref_device *d, char **buffer, size_t *size, size_t need,
                        size_t count)
{
    void *p;

    if (need <= *size)
        return ST_OK;
    need = (need + page - 1) / page * page;
    free(*buffer);
    *buffer = NULL;
    *size = 0;
    TRY(ref_host_alloc(&p, need * count, d->base.threads));
    *buffer = p;
    *size = need;
    d->grown++;
    return ST_OK;
}

enum status ref_scratch(struct device *dev, size_t shared, size_t thread)
{
    struct ref_device *d = (struct ref_device *)dev;

    TRY(grow(d, &d->shared, &d->shared_size, shared, 1));
    TRY(grow(d, &d->thread, &d->thread_size, thread, (size_t)dev->threads));
    return ST_OK;
}

void *ref_shared(struct device *dev)
{
    return ((struct ref_device *)dev)->shared;
}

void *ref_thread(struct device *dev)
{
    struct ref_device *d = (struct ref_device *)dev;
    size_t number = 0;

#ifdef _OPENMP
    number = (size_t)omp_get_thread_num();
#endif
    return d->thread + number * d->thread_size;
}

static void device_close_ref(struct device *dev)
{
    struct ref_device *d = (struct ref_device *)dev;

    if (!d)
        return;
    free(d->shared);
    free(d->thread);
    free(d->moment);
    free(d);
}

static enum status device_open_ref(struct device **dev, const struct device_options *opt)
{
    struct ref_device *d;
    enum status st;

    *dev = NULL;
    if (opt->threads < 1)
        return fail(ST_EDEVICE, "threads is %d, must be 1 or more", opt->threads);
    d = calloc(1, sizeof *d);
    if (!d)
        return fail(ST_ENOMEM, "%zu bytes for a device asked for, none free", sizeof *d);
    d->base.be = &ref_backend;
    d->base.threads = opt->threads;
    d->base.wide = REAL_DTYPE;
#ifndef _OPENMP
    d->base.threads = 1;
#endif
    /* Each call of OpenBLAS runs on the thread that makes it; ours go side by side. */
    openblas_set_num_threads(1);
    st = ref_scratch(&d->base, page, page);
    if (st != ST_OK) {
        device_close_ref(&d->base);
        return st;
    }
    *dev = &d->base;
    return ST_OK;
}

static enum status device_alloc_ref(struct device *dev, void **p, size_t bytes)
{
    TRY(ref_host_alloc(p, bytes, dev->threads));
    return ST_OK;
}

static void device_release_ref(struct device *dev, void *p)
{
    (void)dev;
    free(p);
}

static enum status device_copy_ref(struct device *dev, void *dst, const void *src, size_t bytes)
{
    (void)dev;
    if (bytes > 0)
        memcpy(dst, src, bytes);
    return ST_OK;
}

static enum status device_zero_ref(struct device *dev, void *dst, size_t bytes)
{
    int64_t pieces = (int64_t)((bytes + page - 1) / page);

#pragma omp parallel for num_threads(dev->threads) if (pieces > 1)
    for (int64_t i = 0; i < pieces; i++) {
        size_t begin = (size_t)i * page, left = bytes - begin;

        memset((char *)dst + begin, 0, left < page ? left : page);
    }
    return ST_OK;
}

static enum status device_sync_ref(struct device *dev)
{
    (void)dev; /* every operation is done when it returns */
    return ST_OK;
}

static enum status device_info_ref(struct device *dev, struct device_info *info)
{
    (void)snprintf(info->name, sizeof info->name, "CPU, OpenBLAS %s kernel, %d threads",
                   openblas_get_corename(), dev->threads);
    info->memory_total = memory_total();
    info->memory_free = memory_free();
    return ST_OK;
}

static enum status device_stamp_ref(struct device *dev, int64_t n, const char *name)
{
    struct ref_device *d = (struct ref_device *)dev;
    struct timespec now;

    (void)name;
    if (n >= d->moments) {
        int64_t room = 2 * n + 1024;
        double *more = realloc(d->moment, (size_t)room * sizeof *more);

        if (!more)
            return fail(ST_ENOMEM, "no memory for %lld moments of a profile", (long long)room);
        d->moment = more;
        d->moments = room;
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    d->moment[n] = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    return ST_OK;
}

static enum status device_stamps_ref(struct device *dev, double *seconds, int64_t n)
{
    const struct ref_device *d = (const struct ref_device *)dev;

    FAIL_IF(n > d->moments, ST_EINTERNAL);
    for (int64_t i = 0; i < n; i++)
        seconds[i] = d->moment[i] - d->moment[0];
    return ST_OK;
}

const struct device_ops ref_device_ops = {
    .open = device_open_ref,
    .close = device_close_ref,
    .alloc = device_alloc_ref,
    .release = device_release_ref,
    .upload = device_copy_ref,
    .download = device_copy_ref,
    .copy = device_copy_ref,
    .zero = device_zero_ref,
    .sync = device_sync_ref,
    .info = device_info_ref,
    .stamp = device_stamp_ref,
    .stamps = device_stamps_ref,
    .capture_begin = device_none_begin,
    .capture_end = device_none_end,
    .replay = device_none_replay,
    .capture_free = device_none_free,
};
