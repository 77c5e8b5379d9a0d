/* Collectives: what is counted, what is refused, and how ranks come together again when one of
 * them fails, does not come, or does something else. ranks: 1 2 3 4 8 */
#include "tests/mpi/comm_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check_row(enum ledger_purpose p, int64_t calls, int64_t elements, int64_t wire)
{
    const struct ledger_row *row = &test.ledger.row[p];

    if (test.size == 1)
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
    struct tensor both[2] = {a, b}, full = tensor_view(y, DT_F32, 4 * test.size, 6);

    ledger_for(&test.ledger, LEDGER_TP_FORWARD);
    ck_assert_int_eq(comm_all_reduce_begin(test.comm, both, 2), ST_OK);
    ck_assert_int_eq(ledger_for(&test.ledger, LEDGER_ZERO), LEDGER_TP_FORWARD);
    ck_assert_int_eq(comm_wait(test.comm), ST_OK);
    ck_assert_int_eq(comm_all_gather(test.comm, &full, &a), ST_OK);
    ck_assert_int_eq(comm_reduce_scatter(test.comm, &a, &full), ST_OK);
    ledger_for(&test.ledger, LEDGER_PP);
    if (test.size > 1 && test.rank == 0)
        ck_assert_int_eq(comm_send_begin(test.comm, &a, 1), ST_OK);
    if (test.size > 1 && test.rank == 1)
        ck_assert_int_eq(comm_recv_begin(test.comm, &a, 0), ST_OK);
    ck_assert_int_eq(comm_wait(test.comm), ST_OK);
    ledger_for(&test.ledger, LEDGER_SAVE);
    ck_assert_int_eq(comm_broadcast_begin(test.comm, &b, 0), ST_OK);
    ck_assert_int_eq(comm_wait(test.comm), ST_OK);
    check_row(LEDGER_TP_FORWARD, 1, 48, 2 * (24 * 4 + 24 * 2) * (test.size - 1) / test.size);
    check_row(LEDGER_ZERO, 2, 2 * 24 * test.size, 2 * 24 * 4 * (test.size - 1));
    check_row(LEDGER_PP, test.rank == 0, test.rank == 0 ? 24 : 0, test.rank == 0 ? 96 : 0);
    check_row(LEDGER_SAVE, 1, 24, 48 * (test.size - 1) / test.size);
    check_row(LEDGER_DP, 0, 0, 0);
    ck_assert_int_eq(test.ledger.spans, 0);
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

    check_refused(comm_all_reduce_begin(test.comm, &gap, 1), ST_ESHAPE, "stride 8");
    check_refused(comm_broadcast_begin(test.comm, &gap, 0), ST_ESHAPE, "packed");
    check_refused(comm_all_gather_begin(test.comm, &d, &t), ST_EDTYPE, "f64 and f32");
    d = tensor_view(x, DT_F32, 3, 8);
    check_refused(comm_reduce_scatter_begin(test.comm, &d, &t), ST_ESHAPE, "parts [3, 8]");
    for (int i = 0; i <= COMM_GROUP_MAX; i++)
        many[i] = t;
    check_refused(comm_all_reduce_begin(test.comm, many, COMM_GROUP_MAX + 1), ST_EINTERNAL, "9");
    check_refused(comm_all_reduce_begin(test.comm, many, 0), ST_EINTERNAL, "0");
    check_refused(comm_broadcast_begin(test.comm, &t, test.size), ST_EINTERNAL, "broadcast");
    check_refused(comm_send_begin(test.comm, &t, -1), ST_EINTERNAL, "send");
    check_refused(comm_send_begin(test.comm, &t, test.rank), ST_EINTERNAL, "rank");
    ck_assert_int_eq(comm_wait(test.comm), ST_OK);
}
END_TEST

/* Agrees, checks the status on all and the message on rank 0 alone. */
static void check_agreed(enum status st, enum status want, const char *text)
{
    host_set_timeout(test.job, 30);
    ck_assert_int_eq(host_agree(test.job, st), want);
    if (test.rank == 0)
        ck_assert_msg(strstr(status_message(), text) != NULL, "message: %s", status_message());
    else
        ck_assert_str_eq(status_message(), "");
    status_clear();
    ck_assert_int_eq(host_agree(test.job, ST_OK), ST_OK);
}

static enum status reduce_until(int failing, int at, struct tensor *t)
{
    for (int i = 0; i < 8; i++) {
        if (test.rank == failing && i == at)
            return fail(ST_ENOMEM, "made up by rank %d", test.rank);
        TRY(comm_all_reduce_begin(test.comm, t, 1));
        TRY(comm_all_reduce_begin(test.comm, t, 1));
        TRY(comm_wait(test.comm));
    }
    return ST_OK;
}

/* One rank fails in mid-sequence (not before every rank has begun, or a rank might still be making
 * its communicator). No deadline is set: only the flag ends the others' waits. */
START_TEST(test_failure)
{
    const int last = test.size - 1;

    for (int failing = 0; failing <= last; failing += last > 1 ? last : 1)
        for (int at = 1; at < 8; at += 6) {
            struct tensor t = case_tensor(DT_F32, 1, at == 1 ? MANY : 100);
            enum status st;

            host_set_timeout(test.job, 0);
            case_fill(&t, test.rank, 0);
            st = reduce_until(failing, at, &t);
            ck_assert_int_eq(st, test.rank == failing ? ST_ENOMEM : ST_EPEER);
            if (test.rank != failing) {
                ck_assert_int_eq(comm_wait(test.comm), ST_EPEER);
                ck_assert_int_eq(comm_all_reduce(test.comm, &t, 1), ST_EPEER);
            }
            check_agreed(st, ST_ENOMEM, "made up by rank");
            /* Staging may still be the target of messages; the tensor is not. */
            free(t.data);
            case_drop();
            case_comm();
        }
}
END_TEST

/* The last rank does not come to the third all-reduce. */
START_TEST(test_absent)
{
    struct tensor t = case_tensor(DT_F32, 30, 40);
    enum status st = ST_OK;
    char who[32];

    snprintf(who, sizeof who, "rank %d did not come", test.size - 1);
    ledger_for(&test.ledger, LEDGER_DP);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(comm_all_reduce(test.comm, &t, 1), ST_OK);
    host_set_timeout(test.job, 2);
    if (test.rank != test.size - 1)
        st = comm_all_reduce(test.comm, &t, 1);
    if (test.rank == test.size - 1) {
        while (test.size > 1 && !host_raised(test.job))
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
    if (test.size > 1)
        check_agreed(st, ST_ECOMM, "all-reduce");
    free(t.data);
}
END_TEST

/* Ranks with other shapes: not a hang, not a wrong sum. */
START_TEST(test_disagreement)
{
    struct tensor t = case_tensor(DT_F32, 1, test.rank == 0 ? 50 : 40);
    enum status st;

    case_fill(&t, test.rank, 0);
    st = comm_all_reduce(test.comm, &t, 1);
    ck_assert(test.size == 1 ? st == ST_OK : st != ST_OK);
    if (test.size > 1)
        check_agreed(st, ST_ECOMM, "disagree");
    free(t.data);
}
END_TEST

/* Left in flight: the tensors, the communicator and the next one come to no harm. */
START_TEST(test_unfinished)
{
    struct tensor t = case_tensor(DT_F32, 1, MANY);

    case_fill(&t, test.rank, 0);
    if (test.size > 1 && test.rank == 0)
        ck_assert_int_eq(comm_send_begin(test.comm, &t, 1), ST_OK);
    if (test.size > 1 && test.rank == 1)
        ck_assert_int_eq(comm_recv_begin(test.comm, &t, 0), ST_OK);
    case_drop();
    free(t.data);
    case_comm();
    case_steps(test.comm, 1);
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tc = tcase_create("comm failure");

    tcase_add_test(tc, test_counts);
    tcase_add_test(tc, test_refused);
    tcase_add_test(tc, test_failure);
    tcase_add_test(tc, test_absent);
    tcase_add_test(tc, test_disagreement);
    tcase_add_test(tc, test_unfinished);
    return case_main(tc, argc, argv);
}
