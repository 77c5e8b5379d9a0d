#include "common/backend/comm.h"

#include "common/backend/trace.h"

#include <time.h>

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum status comm_create(struct comm **c, struct device *dev, struct host *group,
                        struct ledger *ledger)
{
    TRY(dev->be->comm->create(c, dev, group));
    (*c)->dev = dev;
    (*c)->ledger = ledger;
    return ST_OK;
}

void comm_destroy(struct comm *c)
{
    if (c)
        c->be->comm->destroy(c);
}

enum status comm_reserve(struct comm *c, size_t bytes)
{
    return c->be->comm->reserve(c, bytes);
}

/* Checks ----------------------------------------------------------------------------------- */

static enum status check_packed(const struct tensor *t, const char *what)
{
    if (t->rows < 0 || t->cols < 0 || !tensor_packed(t))
        return fail(ST_ESHAPE, "%s: a tensor [%lld, %lld] with stride %lld is not packed", what,
                    (long long)t->rows, (long long)t->cols, (long long)t->stride);
    return ST_OK;
}

/* full [p*rows, cols] against part [rows, cols] */
static enum status check_parts(const struct comm *c, const struct tensor *full,
                               const struct tensor *part, const char *what)
{
    TRY(check_packed(full, what));
    TRY(check_packed(part, what));
    if (full->dtype != part->dtype)
        return fail(ST_EDTYPE, "%s between %s and %s", what, dtype_name(full->dtype),
                    dtype_name(part->dtype));
    if (full->rows != part->rows * c->size || full->cols != part->cols)
        return fail(ST_ESHAPE, "%s among %d ranks between [%lld, %lld] and parts [%lld, %lld]",
                    what, c->size, (long long)full->rows, (long long)full->cols,
                    (long long)part->rows, (long long)part->cols);
    return ST_OK;
}

static enum status check_rank(const struct comm *c, int rank, const char *what)
{
    if (rank < 0 || rank >= c->size)
        return fail(ST_EINTERNAL, "%s: rank %d of a group of %d", what, rank, c->size);
    return ST_OK;
}

/* Counting --------------------------------------------------------------------------------- */

static int64_t bytes_of(const struct tensor *t)
{
    return tensor_count(t) * (int64_t)dtype_size(t->dtype);
}

static enum status started(struct comm *c, const char *name)
{
    if (c->size == 1)
        return ST_OK;
    trace_message(c, name);
    return ledger_begin(c->ledger, c, seconds());
}

static void counted(struct comm *c, int64_t elements, int64_t wire_bytes)
{
    ledger_add(c->ledger, elements, wire_bytes);
    trace_message_begun(c, elements, wire_bytes);
}

/* sent: how often a rank sends its (p-1)/p of the bytes. */
static void count(struct comm *c, int64_t elements, int64_t bytes, int sent)
{
    if (c->size > 1)
        counted(c, elements, bytes * sent * (c->size - 1) / c->size);
}

/* The collectives -------------------------------------------------------------------------- */

enum status comm_all_reduce_begin(struct comm *c, struct tensor *t, int n)
{
    int64_t elements = 0, bytes = 0;

    if (n < 1 || n > COMM_GROUP_MAX)
        return fail(ST_EINTERNAL, "all-reduce of %d tensors; 1 to %d go in one call", n,
                    COMM_GROUP_MAX);
    for (int i = 0; i < n; i++) {
        TRY(check_packed(&t[i], "all-reduce"));
        elements += tensor_count(&t[i]);
        bytes += bytes_of(&t[i]);
    }
    TRY(started(c, "all-reduce"));
    TRY(c->be->comm->all_reduce_begin(c, t, n));
    count(c, elements, bytes, 2);
    return ST_OK;
}

enum status comm_all_gather_begin(struct comm *c, struct tensor *out, const struct tensor *in)
{
    TRY(check_parts(c, out, in, "all-gather"));
    TRY(started(c, "all-gather"));
    TRY(c->be->comm->all_gather_begin(c, out, in));
    count(c, tensor_count(out), bytes_of(out), 1);
    return ST_OK;
}

enum status comm_reduce_scatter_begin(struct comm *c, struct tensor *out, const struct tensor *in)
{
    TRY(check_parts(c, in, out, "reduce-scatter"));
    TRY(started(c, "reduce-scatter"));
    TRY(c->be->comm->reduce_scatter_begin(c, out, in));
    count(c, tensor_count(in), bytes_of(in), 1);
    return ST_OK;
}

enum status comm_broadcast_begin(struct comm *c, struct tensor *t, int root)
{
    TRY(check_packed(t, "broadcast"));
    TRY(check_rank(c, root, "broadcast"));
    TRY(started(c, "broadcast"));
    TRY(c->be->comm->broadcast_begin(c, t, root));
    count(c, tensor_count(t), bytes_of(t), 1);
    return ST_OK;
}

enum status comm_send_begin(struct comm *c, const struct tensor *t, int to)
{
    TRY(check_packed(t, "send"));
    TRY(check_rank(c, to, "send"));
    FAIL_IF(to == c->rank, ST_EINTERNAL);
    TRY(started(c, "send"));
    TRY(c->be->comm->send_begin(c, t, to));
    counted(c, tensor_count(t), bytes_of(t));
    return ST_OK;
}

enum status comm_recv_begin(struct comm *c, struct tensor *t, int from)
{
    TRY(check_packed(t, "receive"));
    TRY(check_rank(c, from, "receive"));
    FAIL_IF(from == c->rank, ST_EINTERNAL);
    TRY(started(c, "receive"));
    TRY(c->be->comm->recv_begin(c, t, from));
    trace_message_begun(c, 0, 0); /* counted by who sends */
    return ST_OK;
}

enum status comm_start(struct comm *c)
{
    return c->be->comm->start(c);
}

enum status comm_wait(struct comm *c)
{
    double waited = c->ledger ? seconds() : 0;
    enum status st;

    if (c->size > 1)
        trace_wait(c);
    st = c->be->comm->wait(c);
    if (c->size > 1)
        trace_close(c->dev);

    if (c->ledger)
        ledger_end(c->ledger, c, waited, seconds());
    if (st == ST_ECOMM && c->ledger)
        status_prefix("%s: ", ledger_name(c->ledger->purpose));
    return st;
}

enum status comm_all_reduce(struct comm *c, struct tensor *t, int n)
{
    TRY(comm_all_reduce_begin(c, t, n));
    return comm_wait(c);
}

enum status comm_all_gather(struct comm *c, struct tensor *out, const struct tensor *in)
{
    TRY(comm_all_gather_begin(c, out, in));
    return comm_wait(c);
}

enum status comm_reduce_scatter(struct comm *c, struct tensor *out, const struct tensor *in)
{
    TRY(comm_reduce_scatter_begin(c, out, in));
    return comm_wait(c);
}
