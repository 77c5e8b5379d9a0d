/* Mistakes that the environment switches on in the program narrows-planted, and nowhere else.
 *
 * Each is one that public code has made. tests/cli/planted.sh switches them on one by one and
 * wants narrows validate to notice. In the product PLANTED() is the constant 0, and the compiler
 * drops what depends on it; narrows-planted is built with -DNARROWS_PLANTED.
 */
#ifndef COMMON_BACKEND_PLANTED_H
#define COMMON_BACKEND_PLANTED_H

#include "common/backend/device.h"

#include <stdlib.h>

enum planted_mistake {
    PLANTED_SHARD_NORM = 1, /* RMSNorm over a rank's own shard                                */
    PLANTED_DETACHED,       /* no gradient through the norm's statistic                       */
    PLANTED_OWN_SCALE,      /* online_local: rescaled after the sum, by the rank's own factor */
    PLANTED_NORM_COPIES,    /* grad norm: whole parameters counted once a rank                */
    PLANTED_RANK_MEANS,     /* loss: mean of the replicas' means                              */
    PLANTED_EVALUATION,     /* validation loss of N batches divided by N + 1                  */
    PLANTED_RESIDUAL,       /* the last block's residual dropped                              */
    PLANTED_FLOPS,          /* FLOPs without the up-projections                               */
    PLANTED_TIED_ORDER,     /* tied gradients joined on each replica, before their sum        */
    PLANTED_STAGE_NORM,     /* grad norm: of the rank's own pipeline stage                    */
    PLANTED_BACKEND,        /* a gradient of the backend, but not of its shadow, 1 % too large */
    PLANTED_END
};

#ifdef NARROWS_PLANTED
#define PLANTED(mistake) planted(mistake)
#else
#define PLANTED(mistake) 0
#endif

/* Nonzero when NARROWS_PLANTED in the environment is the number of the mistake. */
static inline int planted(enum planted_mistake mistake)
{
    const char *number = getenv("NARROWS_PLANTED");

    return number && strtol(number, NULL, 10) == (long)mistake;
}

/* t[i, j] = t[i, j] factor (by, when given: by[i, 0]) for j >= first. Packed tensors. */
static inline enum status planted_scale(struct device *dev, const struct tensor *t, int64_t first,
                                        double factor, const struct tensor *by)
{
    size_t bytes = (size_t)tensor_count(t) * dtype_size(t->dtype);
    size_t room = by ? (size_t)tensor_count(by) * dtype_size(by->dtype) : 0;
    char *host = malloc(bytes + room);
    enum status st = host ? ST_OK : fail(ST_ENOMEM, "no memory for a planted mistake");

    if (st == ST_OK)
        st = device_download(dev, host, t->data, bytes);
    if (st == ST_OK && by)
        st = device_download(dev, host + bytes, by->data, room);
    for (int64_t i = 0; st == ST_OK && i < tensor_count(t); i++) {
        double scale = by ? dtype_load(host + bytes, by->dtype, i / t->cols * by->cols) : factor;

        if (i % t->cols >= first)
            dtype_store(host, t->dtype, i, scale * dtype_load(host, t->dtype, i));
    }
    if (st == ST_OK)
        st = device_upload(dev, t->data, host, bytes);
    free(host);
    return st;
}

/* a = a - b. Packed tensors of one shape and type. */
static inline enum status planted_subtract(struct device *dev, const struct tensor *a,
                                           const struct tensor *b)
{
    size_t bytes = (size_t)tensor_count(a) * dtype_size(a->dtype);
    char *host = malloc(2 * bytes);
    enum status st = host ? ST_OK : fail(ST_ENOMEM, "no memory for a planted mistake");

    if (st == ST_OK)
        st = device_download(dev, host, a->data, bytes);
    if (st == ST_OK)
        st = device_download(dev, host + bytes, b->data, bytes);
    for (int64_t i = 0; st == ST_OK && i < tensor_count(a); i++)
        dtype_store(host, a->dtype, i,
                    dtype_load(host, a->dtype, i) - dtype_load(host + bytes, b->dtype, i));
    if (st == ST_OK)
        st = device_upload(dev, a->data, host, bytes);
    free(host);
    return st;
}

/* How many of n targets are not negative; at least 1, and 1 in a rehearsal (targets NULL). */
static inline int64_t planted_valid(const int32_t *targets, int64_t n)
{
    int64_t valid = 0;

    for (int64_t i = 0; targets && i < n; i++)
        valid += targets[i] >= 0;
    return valid > 0 ? valid : 1;
}

#endif
