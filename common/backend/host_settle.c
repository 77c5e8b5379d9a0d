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
    if (found == ST_OK) {
        status_clear();
        for (int i = 0; i < n && found == ST_OK; i++) {
            found = (enum status)all[i].status;
            if (found != ST_OK && host_rank(job) == 0) {
                fail(found, "%s", all[i].message);
                if (i)
                    status_prefix("rank %d: ", i);
            }
        }
    }
    free(all);
    return found;
}
