/* Collectives of the reference backend: bits against a serial tree, poison between begin and wait,
 * counts, failures. ranks: 1 2 3 4 8 */
#include "common/backend/comm.h"
#include "common/backend/host.h"
#include "ref/comm.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef fail /* an old name of check.h; here common/base/status.h's is meant */

enum { MANY = 70001 }; /* elements: more than any small-message path takes */

static const struct backend backend = {.name = "test", .comm = &ref_comm_ops};
static struct device device = {.be = &backend, .threads = 1};
static struct host *job;
static struct comm *comm;
static struct ledger ledger;
static int rank, size;

static void make_comm(void)
{
    host_set_timeout(job, 60);
    memset(&ledger, 0, sizeof ledger);
    ck_assert_int_eq(comm_create(&comm, &device, job, &ledger), ST_OK);
}

static void drop_comm(void)
{
    comm_destroy(comm);
    comm = NULL;
    status_clear();
}

/* Numbers whose sum depends on the order of additions; integers that overflow. */
static double number(enum dtype dt, int r, int64_t i)
{
    uint32_t h = (uint32_t)i * 2654435761u + (uint32_t)r * 2246822519u + 12345u;
    double x;

    h = (h ^ (h >> 15)) * 2246822519u;
    h ^= h >> 13;
    if (dt == DT_I32)
        return (double)(int32_t)h;
    x = ((double)(h & 0xfffff) - 524288.0) / 1048576.0;
    return ldexp(x, (int)(h >> 20) % 24 - 12);
}

static void fill(struct tensor *t, int r, int64_t first)
{
    for (int64_t i = 0; i < tensor_count(t); i++)
        dtype_store(t->data, t->dtype, i, number(t->dtype, r, first + i));
}

/* A tensor on the heap; free its data. Three guard bytes behind it are checked by done(). */
static struct tensor make(enum dtype dt, int64_t rows, int64_t cols)
{
    size_t bytes = (size_t)(rows * cols) * dtype_size(dt);
    char *p = malloc(bytes + 3);

    memset(p, 0x5a, bytes + 3);
    return tensor_view(p, dt, rows, cols);
}

static void done(struct tensor *t)
{
    const char *end = (const char *)t->data + (size_t)tensor_count(t) * dtype_size(t->dtype);

    ck_assert(end[0] == 0x5a && end[1] == 0x5a && end[2] == 0x5a);
    free(t->data);
}

static float tree_f32(enum dtype dt, int lo, int hi, int64_t i)
{
    int mid = lo + (hi - lo) / 2;

    if (hi - lo > 1) {
        volatile float a = tree_f32(dt, lo, mid, i), b = tree_f32(dt, mid, hi, i);

        return a + b;
    }
    if (dt == DT_BF16)
        return bf16_to_float(bf16_from_float((float)number(dt, lo, i)));
    return (float)number(dt, lo, i);
}

static double tree_f64(int lo, int hi, int64_t i)
{
    int mid = lo + (hi - lo) / 2;

    return hi - lo == 1 ? number(DT_F64, lo, i) : tree_f64(lo, mid, i) + tree_f64(mid, hi, i);
}

/* Whether element i of t has the bits of the sum over all ranks of number(.., first + i). */
static int is_sum(const struct tensor *t, int64_t i, int64_t first)
{
    const char *p = (const char *)t->data + (size_t)i * dtype_size(t->dtype);
    uint32_t whole = 0;
    uint16_t half;
    double d;
    float f;

    switch (t->dtype) {
    case DT_F64:
        d = tree_f64(0, size, first + i);
        return memcmp(p, &d, 8) == 0;
    case DT_I32:
        for (int r = 0; r < size; r++)
            whole += (uint32_t)(int32_t)number(DT_I32, r, first + i);
        return memcmp(p, &whole, 4) == 0;
    case DT_BF16:
        half = bf16_from_float(tree_f32(DT_BF16, 0, size, first + i));
        return memcmp(p, &half, 2) == 0;
    default:
        f = tree_f32(DT_F32, 0, size, first + i);
        return memcmp(p, &f, 4) == 0;
    }
}

static void check_sum(const struct tensor *t, int64_t first)
{
    int64_t wrong = 0;

    for (int64_t i = 0; i < tensor_count(t); i++)
        wrong += !is_sum(t, i, first);
    ck_assert_msg(wrong == 0, "%lld of %lld sums of %s over %d ranks have other bits",
                  (long long)wrong, (long long)tensor_count(t), dtype_name(t->dtype), size);
}

/* Whether all of t are the numbers of rank r from first on. */
static void check_numbers(const struct tensor *t, int r, int64_t first)
{
    struct tensor want = make(t->dtype, t->rows, t->cols);

    fill(&want, r, first);
    ck_assert_int_eq(memcmp(t->data, want.data, (size_t)tensor_count(t) * dtype_size(t->dtype)), 0);
    done(&want);
}

static void check_poisoned(const struct tensor *t)
{
    for (int64_t i = 0; i < tensor_count(t) && size > 1; i++) {
        double x = dtype_load(t->data, t->dtype, i);

        ck_assert(t->dtype == DT_I32 ? x == (double)INT32_MIN : isnan(x));
    }
}

START_TEST(test_all_reduce)
{
    static const int64_t counts[] = {1, 2, 7, 256, 257, 4096, MANY};

    for (int dt = 0; dt < DT_COUNT; dt++)
        for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
            struct tensor t = make((enum dtype)dt, 1, counts[k]);

            fill(&t, rank, 0);
            ck_assert_int_eq(comm_all_reduce_begin(comm, &t, 1), ST_OK);
            check_poisoned(&t);
            ck_assert_int_eq(comm_wait(comm), ST_OK);
            check_sum(&t, 0);
            done(&t);
        }
}
END_TEST

/* Tensors of several types in one call; small and large. */
START_TEST(test_grouped)
{
    for (int64_t rows = 1; rows <= 3000; rows += 2999) {
        struct tensor t[4] = {make(DT_BF16, rows, 3), make(DT_F32, 1, rows + 1),
                              make(DT_F64, rows, 2), make(DT_I32, 5, 1)};

        for (int i = 0; i < 4; i++)
            fill(&t[i], rank, 1000 * i);
        ck_assert_int_eq(comm_all_reduce(comm, t, 4), ST_OK);
        for (int i = 0; i < 4; i++) {
            check_sum(&t[i], 1000 * i);
            done(&t[i]);
        }
    }
}
END_TEST

START_TEST(test_gather_scatter)
{
    for (int dt = 0; dt < DT_COUNT; dt++)
        for (int64_t rows = 1; rows < 6000; rows += 5000) {
            struct tensor part = make((enum dtype)dt, rows, 3);
            struct tensor full = make((enum dtype)dt, rows * size, 3);

            fill(&part, rank, 0);
            ck_assert_int_eq(comm_all_gather_begin(comm, &full, &part), ST_OK);
            check_poisoned(&full);
            check_numbers(&part, rank, 0);
            ck_assert_int_eq(comm_wait(comm), ST_OK);
            for (int r = 0; r < size; r++) {
                struct tensor rows_of_r = tensor_rows(&full, r * rows, rows, 1);

                check_numbers(&rows_of_r, r, 0);
            }
            fill(&full, rank, 0);
            ck_assert_int_eq(comm_reduce_scatter_begin(comm, &part, &full), ST_OK);
            check_poisoned(&part);
            ck_assert_int_eq(comm_wait(comm), ST_OK);
            check_sum(&part, rank * rows * 3);
            done(&part);
            done(&full);
        }
}
END_TEST

START_TEST(test_broadcast)
{
    for (int root = 0; root < size; root++) {
        struct tensor t = make(DT_BF16, 100, 7);

        fill(&t, rank, 0);
        ck_assert_int_eq(comm_broadcast_begin(comm, &t, root), ST_OK);
        check_poisoned(&t);
        ck_assert_int_eq(comm_wait(comm), ST_OK);
        check_numbers(&t, root, 0);
        done(&t);
    }
}
END_TEST

/* A ring in which all send first, to the right and to the left, with large messages that cannot
 * leave before they are received. */
START_TEST(test_ring)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    struct tensor out[2] = {make(DT_F32, 1, MANY), make(DT_I32, 1, 3)};
    struct tensor in[2] = {make(DT_F32, 1, MANY), make(DT_I32, 1, 3)};

    if (size > 1) {
        fill(&out[0], rank, 0);
        fill(&out[1], rank, 7);
        ck_assert_int_eq(comm_send_begin(comm, &out[0], right), ST_OK);
        ck_assert_int_eq(comm_send_begin(comm, &out[1], left), ST_OK);
        ck_assert_int_eq(comm_recv_begin(comm, &in[0], left), ST_OK);
        ck_assert_int_eq(comm_recv_begin(comm, &in[1], right), ST_OK);
        check_numbers(&out[0], rank, 0);
        check_poisoned(&in[0]);
        check_poisoned(&in[1]);
        ck_assert_int_eq(comm_wait(comm), ST_OK);
        check_numbers(&in[0], left, 0);
        check_numbers(&in[1], right, 7);
    }
    for (int i = 0; i < 2; i++) {
        free(out[i].data);
        free(in[i].data);
    }
}
END_TEST

/* A dozen of all kinds between two waits, sends and receives before and behind collectives. */
START_TEST(test_in_flight)
{
    int right = (rank + 1) % size, left = (rank + size - 1) % size;
    struct tensor sum[3] = {make(DT_F32, 3, 5), make(DT_F32, 1, MANY), make(DT_BF16, 9, 9)};
    struct tensor part = make(DT_F64, 2, 2), full = make(DT_F64, 2 * size, 2);
    struct tensor cast = make(DT_I32, 4, 4), out = make(DT_F32, 50, 50), in[2];

    fill(&cast, rank, 3);
    fill(&part, rank, 0);
    fill(&out, rank, 0);
    for (int i = 0; i < 3; i++)
        fill(&sum[i], rank, i);
    in[0] = make(DT_F32, 50, 50);
    in[1] = make(DT_F32, 50, 50);
    for (int i = 0; i < 2 && size > 1; i++) {
        ck_assert_int_eq(comm_send_begin(comm, &out, right), ST_OK);
        ck_assert_int_eq(comm_recv_begin(comm, &in[i], left), ST_OK);
        if (i == 0)
            ck_assert_int_eq(comm_all_reduce_begin(comm, &sum[1], 1), ST_OK);
    }
    if (size == 1)
        ck_assert_int_eq(comm_all_reduce_begin(comm, &sum[1], 1), ST_OK);
    ck_assert_int_eq(comm_all_reduce_begin(comm, &sum[0], 1), ST_OK);
    ck_assert_int_eq(comm_all_gather_begin(comm, &full, &part), ST_OK);
    ck_assert_int_eq(comm_broadcast_begin(comm, &cast, size - 1), ST_OK);
    ck_assert_int_eq(comm_all_reduce_begin(comm, &sum[2], 1), ST_OK);
    check_poisoned(&sum[0]);
    ck_assert_int_eq(comm_wait(comm), ST_OK);
    for (int i = 0; i < 3; i++)
        check_sum(&sum[i], i);
    check_numbers(&cast, size - 1, 3);
    for (int r = 0; r < size; r++) {
        struct tensor rows = tensor_rows(&full, 2 * r, 2, 1);

        check_numbers(&rows, r, 0);
    }
    for (int i = 0; i < 2; i++) {
        if (size > 1)
            check_numbers(&in[i], left, 0);
        free(in[i].data);
        done(&sum[i]);
    }
    free(sum[2].data);
    free(part.data);
    free(full.data);
    free(cast.data);
    free(out.data);
}
END_TEST

/* -0, infinities and NaN go through as additions in the order of the tree. */
START_TEST(test_special_values)
{
    float x[5] = {-0.0f, rank == size - 1 ? NAN : 1.0f, rank == 0 ? INFINITY : -1.0f,
                  rank == 0 ? INFINITY : (rank == 1 ? -INFINITY : 0.0f), 0.0f};
    struct tensor t = tensor_view(x, DT_F32, 1, 5);

    ck_assert_int_eq(comm_all_reduce(comm, &t, 1), ST_OK);
    ck_assert(x[0] == 0.0f && signbit(x[0]));
    ck_assert(isnan(x[1]));
    ck_assert(isinf(x[2]) && x[2] > 0);
    ck_assert(size == 1 ? isinf(x[3]) : isnan(x[3]));
    ck_assert(x[4] == 0.0f && !signbit(x[4]));
}
END_TEST

START_TEST(test_empty)
{
    char nothing[4] = "abc";
    struct tensor t = tensor_view(nothing, DT_F32, 0, 5);

    ck_assert_int_eq(comm_all_reduce(comm, &t, 1), ST_OK);
    ck_assert_int_eq(comm_all_gather(comm, &t, &t), ST_OK);
    ck_assert_str_eq(nothing, "abc");
}
END_TEST

/* Messages cut into pieces, as those above 2^30 bytes are. */
START_TEST(test_pieces)
{
    struct tensor t = make(DT_F32, 1, MANY), one = make(DT_F32, 1, 5);

    ref_comm_set_chunk(comm, 1000);
    fill(&t, rank, 0);
    fill(&one, rank, 0);
    ck_assert_int_eq(comm_all_reduce_begin(comm, &t, 1), ST_OK);
    ck_assert_int_eq(comm_all_reduce_begin(comm, &one, 1), ST_OK);
    ck_assert_int_eq(comm_wait(comm), ST_OK);
    check_sum(&t, 0);
    check_sum(&one, 0);
    done(&t);
    done(&one);
}
END_TEST

/* The rows, columns and ranks of two groups at once: each among its own. */
START_TEST(test_groups)
{
    int wide = size / 2 > 0 ? size / 2 : 1;
    struct host *group[2];
    struct comm *c[2];
    float x[2] = {(float)rank, (float)rank}, want[2] = {0, 0};
    struct tensor t[2] = {tensor_view(&x[0], DT_F32, 1, 1), tensor_view(&x[1], DT_F32, 1, 1)};

    ck_assert_int_eq(host_split(&group[0], job, rank / wide, 0), ST_OK);
    ck_assert_int_eq(host_split(&group[1], job, rank % wide, -rank), ST_OK);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(comm_create(&c[i], &device, group[i], &ledger), ST_OK);
        ck_assert_int_eq(c[i]->rank, host_rank(group[i]));
        ck_assert_int_eq(c[i]->size, host_size(group[i]));
        ck_assert_int_eq(comm_all_reduce_begin(c[i], &t[i], 1), ST_OK);
    }
    for (int r = 0; r < size; r++) {
        want[0] += r / wide == rank / wide ? (float)r : 0;
        want[1] += r % wide == rank % wide ? (float)r : 0;
    }
    ck_assert_int_eq(comm_wait(c[1]), ST_OK);
    ck_assert_int_eq(comm_wait(c[0]), ST_OK);
    ck_assert(x[0] == want[0] && x[1] == want[1]);
    for (int i = 0; i < 2; i++) {
        comm_destroy(c[i]);
        host_free(group[i]);
    }
}
END_TEST

/* What a training step would do, twice the number of times that staging may have to grow. */
static void steps(struct comm *c, int n)
{
    struct tensor sum[2] = {make(DT_F32, 1, MANY), make(DT_BF16, 1, 100)};
    struct tensor part = make(DT_F32, 10, 10), full = make(DT_F32, 10 * size, 10);

    for (int i = 0; i < n; i++) {
        for (int k = 0; k < 2; k++)
            fill(&sum[k], rank, 0);
        fill(&full, rank, 0);
        ck_assert_int_eq(comm_all_reduce_begin(c, sum, 2), ST_OK);
        ck_assert_int_eq(comm_reduce_scatter_begin(c, &part, &full), ST_OK);
        ck_assert_int_eq(comm_wait(c), ST_OK);
        check_sum(&sum[0], 0);
        check_sum(&sum[1], 0);
        check_sum(&part, rank * 100);
    }
    for (int k = 0; k < 2; k++)
        done(&sum[k]);
    done(&part);
    done(&full);
}

START_TEST(test_memory)
{
    size_t bytes = MANY * 4 + 200 + 400 * (size_t)size;
    int64_t grown;

    ck_assert_int_eq(comm_reserve(comm, bytes), ST_OK);
    steps(comm, 3);
    ck_assert_int_eq(ref_comm_grown(comm), 0);
    drop_comm();
    make_comm();
    steps(comm, 1);
    grown = ref_comm_grown(comm);
    ck_assert(size == 1 ? grown == 0 : grown > 0);
    steps(comm, 3);
    ck_assert_int_eq(ref_comm_grown(comm), grown);
}
END_TEST

static void check_row(enum ledger_purpose p, int64_t calls, int64_t elements, int64_t wire)
{
    const struct ledger_row *row = &ledger.row[p];

    if (size == 1)
        calls = elements = wire = 0;
    ck_assert_int_eq(row->calls, calls);
    ck_assert_int_eq(row->elements, elements);
    ck_assert_int_eq(row->wire_bytes, wire);
    ck_assert(row->exposed >= 0 && row->seconds >= row->exposed);
    ck_assert(calls == 0 || row->seconds > 0);
}

START_TEST(test_counts)
{
    float x[24] = {0}, y[24 * 8];
    uint16_t h[24] = {0};
    struct tensor a = tensor_view(x, DT_F32, 4, 6), b = tensor_view(h, DT_BF16, 24, 1);
    struct tensor both[2] = {a, b}, full = tensor_view(y, DT_F32, 4 * size, 6);

    ledger_for(&ledger, LEDGER_TP_FORWARD);
    ck_assert_int_eq(comm_all_reduce_begin(comm, both, 2), ST_OK);
    ck_assert_int_eq(ledger_for(&ledger, LEDGER_ZERO), LEDGER_TP_FORWARD);
    ck_assert_int_eq(comm_wait(comm), ST_OK);
    ck_assert_int_eq(comm_all_gather(comm, &full, &a), ST_OK);
    ck_assert_int_eq(comm_reduce_scatter(comm, &a, &full), ST_OK);
    ledger_for(&ledger, LEDGER_PP);
    if (size > 1 && rank == 0)
        ck_assert_int_eq(comm_send_begin(comm, &a, 1), ST_OK);
    if (size > 1 && rank == 1)
        ck_assert_int_eq(comm_recv_begin(comm, &a, 0), ST_OK);
    ck_assert_int_eq(comm_wait(comm), ST_OK);
    ledger_for(&ledger, LEDGER_SAVE);
    ck_assert_int_eq(comm_broadcast_begin(comm, &b, 0), ST_OK);
    ck_assert_int_eq(comm_wait(comm), ST_OK);
    check_row(LEDGER_TP_FORWARD, 1, 48, 2 * (24 * 4 + 24 * 2) * (size - 1) / size);
    check_row(LEDGER_ZERO, 2, 2 * 24 * size, 2 * 24 * 4 * (size - 1));
    check_row(LEDGER_PP, rank == 0, rank == 0 ? 24 : 0, rank == 0 ? 96 : 0);
    check_row(LEDGER_SAVE, 1, 24, 48 * (size - 1) / size);
    check_row(LEDGER_DP, 0, 0, 0);
    ck_assert_int_eq(ledger.spans, 0);
}
END_TEST

static void check_refused(enum status st, enum status want, const char *text)
{
    ck_assert_int_eq(st, want);
    ck_assert_msg(strstr(status_message(), text) != NULL, "message: %s", status_message());
    status_clear();
}

/* Mistakes of the caller, found before anything is sent. */
START_TEST(test_refused)
{
    float x[64];
    struct tensor t = tensor_view(x, DT_F32, 8, 8), gap = tensor_cols(&t, 0, 4, 1);
    struct tensor d = tensor_view(x, DT_F64, 8, 4), many[COMM_GROUP_MAX + 1];

    check_refused(comm_all_reduce_begin(comm, &gap, 1), ST_ESHAPE, "stride 8");
    check_refused(comm_broadcast_begin(comm, &gap, 0), ST_ESHAPE, "packed");
    check_refused(comm_all_gather_begin(comm, &d, &t), ST_EDTYPE, "f64 and f32");
    d = tensor_view(x, DT_F32, 3, 8);
    check_refused(comm_reduce_scatter_begin(comm, &d, &t), ST_ESHAPE, "parts [3, 8]");
    for (int i = 0; i <= COMM_GROUP_MAX; i++)
        many[i] = t;
    check_refused(comm_all_reduce_begin(comm, many, COMM_GROUP_MAX + 1), ST_EINTERNAL, "9");
    check_refused(comm_all_reduce_begin(comm, many, 0), ST_EINTERNAL, "0");
    check_refused(comm_broadcast_begin(comm, &t, size), ST_EINTERNAL, "broadcast");
    check_refused(comm_send_begin(comm, &t, -1), ST_EINTERNAL, "send");
    check_refused(comm_send_begin(comm, &t, rank), ST_EINTERNAL, "rank");
    ck_assert_int_eq(comm_wait(comm), ST_OK);
}
END_TEST

/* Agrees, checks the status on all and the message on rank 0 alone. */
static void check_agreed(enum status st, enum status want, const char *text)
{
    host_set_timeout(job, 60);
    ck_assert_int_eq(host_agree(job, st), want);
    if (rank == 0)
        ck_assert_msg(strstr(status_message(), text) != NULL, "message: %s", status_message());
    else
        ck_assert_str_eq(status_message(), "");
    status_clear();
    ck_assert_int_eq(host_agree(job, ST_OK), ST_OK);
}

static enum status reduce_until(int failing, int at, struct tensor *t)
{
    for (int i = 0; i < 8; i++) {
        if (rank == failing && i == at)
            return fail(ST_ENOMEM, "made up by rank %d", rank);
        TRY(comm_all_reduce_begin(comm, t, 1));
        TRY(comm_all_reduce_begin(comm, t, 1));
        TRY(comm_wait(comm));
    }
    return ST_OK;
}

/* One rank fails in mid-sequence (not before every rank has begun, or a rank might still be making
 * its communicator). No deadline is set: only the flag ends the others' waits. */
START_TEST(test_failure)
{
    for (int failing = 0; failing<size; failing += size> 2 ? size - 1 : 1)
        for (int at = 1; at < 8; at += 6) {
            struct tensor t = make(DT_F32, 1, at == 1 ? MANY : 100);
            enum status st;

            host_set_timeout(job, 0);
            fill(&t, rank, 0);
            st = reduce_until(failing, at, &t);
            ck_assert_int_eq(st, rank == failing ? ST_ENOMEM : ST_EPEER);
            if (rank != failing) {
                ck_assert_int_eq(comm_wait(comm), ST_EPEER);
                ck_assert_int_eq(comm_all_reduce(comm, &t, 1), ST_EPEER);
            }
            check_agreed(st, ST_ENOMEM, "made up by rank");
            /* Staging may still be the target of messages; the tensor is not. */
            free(t.data);
            drop_comm();
            make_comm();
        }
}
END_TEST

/* The last rank does not come to the third all-reduce. */
START_TEST(test_absent)
{
    struct tensor t = make(DT_F32, 30, 40);
    enum status st = ST_OK;
    char who[32];

    snprintf(who, sizeof who, "rank %d did not come", size - 1);
    ledger_for(&ledger, LEDGER_DP);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(comm_all_reduce(comm, &t, 1), ST_OK);
    host_set_timeout(job, 2);
    if (rank != size - 1)
        st = comm_all_reduce(comm, &t, 1);
    if (rank == size - 1) {
        while (size > 1 && !host_raised(job))
            usleep(1000);
        ck_assert_int_eq(st, ST_OK);
    } else {
        ck_assert(st == ST_ECOMM || st == ST_EPEER);
    }
    if (st == ST_ECOMM) {
        ck_assert_msg(strstr(status_message(), who) != NULL, "message: %s", status_message());
        ck_assert_msg(strstr(status_message(), "dp gradients: all-reduce of f32 [30, 40] among"),
                      "message: %s", status_message());
    }
    if (size > 1)
        check_agreed(st, ST_ECOMM, "all-reduce");
    free(t.data);
}
END_TEST

/* Ranks with other shapes: not a hang, not a wrong sum. */
START_TEST(test_disagreement)
{
    struct tensor t = make(DT_F32, 1, rank == 0 ? 50 : 40);
    enum status st;

    fill(&t, rank, 0);
    st = comm_all_reduce(comm, &t, 1);
    ck_assert(size == 1 ? st == ST_OK : st != ST_OK);
    if (size > 1)
        check_agreed(st, ST_ECOMM, "disagree");
    free(t.data);
}
END_TEST

/* Left in flight: the tensors, the communicator and the next one come to no harm. */
START_TEST(test_unfinished)
{
    struct tensor t = make(DT_F32, 1, MANY);

    fill(&t, rank, 0);
    if (size > 1 && rank == 0)
        ck_assert_int_eq(comm_send_begin(comm, &t, 1), ST_OK);
    if (size > 1 && rank == 1)
        ck_assert_int_eq(comm_recv_begin(comm, &t, 0), ST_OK);
    drop_comm();
    free(t.data);
    make_comm();
    steps(comm, 1);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("comm");
    TCase *tc = tcase_create("comm");

    tcase_add_checked_fixture(tc, make_comm, drop_comm);
    tcase_set_timeout(tc, 0);
    tcase_add_test(tc, test_all_reduce);
    tcase_add_test(tc, test_grouped);
    tcase_add_test(tc, test_gather_scatter);
    tcase_add_test(tc, test_broadcast);
    tcase_add_test(tc, test_ring);
    tcase_add_test(tc, test_in_flight);
    tcase_add_test(tc, test_special_values);
    tcase_add_test(tc, test_empty);
    tcase_add_test(tc, test_pieces);
    tcase_add_test(tc, test_groups);
    tcase_add_test(tc, test_memory);
    tcase_add_test(tc, test_counts);
    tcase_add_test(tc, test_refused);
    tcase_add_test(tc, test_failure);
    tcase_add_test(tc, test_absent);
    tcase_add_test(tc, test_disagreement);
    tcase_add_test(tc, test_unfinished);
    suite_add_tcase(s, tc);
    return s;
}

int main(int argc, char **argv)
{
    SRunner *runner = srunner_create(suite());
    int failed;

    if (host_start(&job, &argc, &argv) != ST_OK)
        return 1;
    rank = host_rank(job);
    size = host_size(job);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    host_set_timeout(job, 60);
    host_end(job, failed ? ST_EMISMATCH : ST_OK);
    return failed > 0;
}
