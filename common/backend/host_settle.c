/* Agreement about failures that a job survives. */
#include "common/backend/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE = 1024 };

struct outcome {
    int32_t status;
    char message[MESSAGE];
};

/* The failure of the lowest rank that has one; rank 0 tells it as its own. */
static enum status first_failure(const struct host *job, const struct outcome *all, int n)
{
    int i = 0;

    status_clear();
    while (i < n && all[i].status == ST_OK)
        i++;
    if (i == n)
        return ST_OK;
    if (host_rank(job) == 0) {
        fail((enum status)all[i].status, "%s", all[i].message);
        if (i)
            status_prefix("rank %d: ", i);
    }
    return (enum status)all[i].status;
}

enum status host_settle(struct host *job, enum status st)
{
    int n = host_size(job);
    struct outcome mine = {.status = (int32_t)st}, *all = calloc((size_t)n, sizeof *all);
    enum status found = ST_OK;

    if (!all)
        return fail(ST_ENOMEM, "no memory for the outcomes of %d ranks", n);
    if (st != ST_OK)
        snprintf(mine.message, sizeof mine.message, "%s", status_message());
    found = host_gather(job, all, &mine, sizeof mine);
    if (found == ST_OK)
        found = first_failure(job, all, n);
    free(all);
    return found;
}
