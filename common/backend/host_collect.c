/* The small collectives of host.h: every rank sends to every rank, from a scratch buffer that can
 * be left behind. */
#include "common/backend/host_mpi.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum status scratch(struct host *h, size_t bytes)
{
    if (bytes <= h->scratch_size)
        return ST_OK;
    free(h->scratch);
    h->scratch_size = 0;
    h->scratch = malloc(bytes);
    if (!h->scratch)
        return fail(ST_ENOMEM, "no host memory for %zu bytes that ranks exchange", bytes);
    h->scratch_size = bytes;
    return ST_OK;
}

/* Ends the exchange that h->set holds. */
static enum status finish(struct host *h, enum status st, const char *what)
{
    if (st == ST_OK)
        st = host_set_wait(&h->set, h->job, 1, h->job->timeout);
    if (st == ST_OK)
        return ST_OK;
    status_prefix("%s of the control plane: ", what);
    host_set_abandon(&h->set);
    host_keep(h->job, h->scratch);
    h->scratch = NULL;
    h->scratch_size = 0;
    return st;
}

static enum status post_gather(struct host *h, const void *in, size_t bytes)
{
    char *own = h->scratch + (size_t)h->size * bytes;

    memcpy(own, in, bytes);
    memcpy(h->scratch + (size_t)h->rank * bytes, in, bytes);
    for (int r = 0; r < h->size; r++)
        if (r != h->rank)
            TRY(host_set_receive(&h->set, h, h->scratch + (size_t)r * bytes, bytes, r));
    for (int r = 0; r < h->size; r++)
        if (r != h->rank)
            TRY(host_set_send(&h->set, h, own, bytes, r));
    return ST_OK;
}

/* Leaves every rank's bytes in h->scratch, rank after rank. */
static enum status gather(struct host *h, const void *in, size_t bytes, const char *what)
{
    TRY(host_usable(h));
    TRY(scratch(h, (size_t)(h->size + 1) * bytes));
    TRY(finish(h, post_gather(h, in, bytes), what));
    return ST_OK;
}

enum status host_gather(struct host *h, void *out, const void *in, size_t bytes)
{
    if (bytes == 0)
        return ST_OK;
    TRY(gather(h, in, bytes, "gather"));
    memcpy(out, h->scratch, (size_t)h->size * bytes);
    return ST_OK;
}

static enum status post_broadcast(struct host *h, const void *data, size_t bytes, int root)
{
    if (h->rank != root)
        return host_set_receive(&h->set, h, h->scratch, bytes, root);
    memcpy(h->scratch, data, bytes);
    for (int r = 0; r < h->size; r++)
        if (r != root)
            TRY(host_set_send(&h->set, h, h->scratch, bytes, r));
    return ST_OK;
}

enum status host_broadcast(struct host *h, void *data, size_t bytes, int root)
{
    FAIL_IF(root < 0 || root >= h->size, ST_EINTERNAL);
    if (bytes == 0)
        return ST_OK;
    TRY(host_usable(h));
    TRY(scratch(h, bytes));
    TRY(finish(h, post_broadcast(h, data, bytes, root), "broadcast"));
    memcpy(data, h->scratch, bytes);
    return ST_OK;
}

enum status host_sum_i64(struct host *h, int64_t *value, int n)
{
    const int64_t *all;

    FAIL_IF(n < 1, ST_EINTERNAL);
    TRY(gather(h, value, (size_t)n * sizeof *value, "sum"));
    all = (const int64_t *)(const void *)h->scratch;
    for (int i = 0; i < n; i++) {
        value[i] = 0;
        for (int r = 0; r < h->size; r++)
            value[i] += all[r * n + i];
    }
    return ST_OK;
}

enum status host_max_f64(struct host *h, double *value, int n)
{
    const double *all;

    FAIL_IF(n < 1, ST_EINTERNAL);
    TRY(gather(h, value, (size_t)n * sizeof *value, "maximum"));
    all = (const double *)(const void *)h->scratch;
    for (int i = 0; i < n; i++) {
        value[i] = all[i];
        for (int r = 1; r < h->size; r++)
            if (all[r * n + i] > value[i] || isnan(all[r * n + i]))
                value[i] = all[r * n + i];
    }
    return ST_OK;
}

enum status host_barrier(struct host *h)
{
    char here = 1;

    return gather(h, &here, 1, "barrier");
}
