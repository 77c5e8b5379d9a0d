/* The control plane: small collectives, groups, agreement, the failure flag, deadlines.
 * ranks: 1 2 3 4 8
 *
 * Started as "test_host gone" it is no test but a job whose last rank never comes to host_agree, as
 * "test_host died N" one whose last rank dies from signal N; tests/cli/launch.sh looks at how such
 * jobs end. */
#include "common/backend/host.h"
#include "tests/mpi/check_job.h"

#include <check.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef fail /* an old name of check.h; here common/base/status.h's is meant */

static struct host *job;
static int rank, size;

static void set_up(void)
{
    host_set_timeout(job, 20);
    status_clear();
}

/* Agrees on st; checks the status on all ranks, the message on rank 0 and its absence elsewhere. */
static void check_agreed(enum status st, enum status want, const char *message)
{
    ck_assert_int_eq(host_agree(job, st), want);
    ck_assert_str_eq(status_message(), rank == 0 ? message : "");
    ck_assert_int_eq(host_raised(job), 0);
    status_clear();
    /* Nobody raises again before all have looked. */
    ck_assert_int_eq(host_agree(job, ST_OK), ST_OK);
}

START_TEST(test_places)
{
    int64_t here[2] = {rank, 1}, want = (int64_t)size * (size - 1) / 2;

    ck_assert(rank >= 0 && rank < size);
    ck_assert_int_eq(host_local_rank(job), rank); /* all ranks run on this machine */
    ck_assert_int_eq(host_local_size(job), size);
    ck_assert_int_eq(host_sum_i64(job, here, 2), ST_OK);
    ck_assert_int_eq(here[0], want);
    ck_assert_int_eq(here[1], size);
}
END_TEST

/* From one byte to what does not fit into the network's own buffers. */
START_TEST(test_gather)
{
    static const size_t bytes[] = {1, 13, 4096, 1 << 20};

    for (size_t k = 0; k < sizeof bytes / sizeof bytes[0]; k++) {
        size_t n = bytes[k];
        char *in = malloc(n), *out = malloc(n * (size_t)size + 1);

        memset(in, 'a' + rank, n);
        out[n * (size_t)size] = '!';
        ck_assert_int_eq(host_gather(job, out, in, n), ST_OK);
        for (int r = 0; r < size; r++)
            ck_assert(out[(size_t)r * n] == 'a' + r && out[(size_t)(r + 1) * n - 1] == 'a' + r);
        ck_assert(out[n * (size_t)size] == '!');
        free(in);
        free(out);
    }
    ck_assert_int_eq(host_gather(job, NULL, NULL, 0), ST_OK);
}
END_TEST

START_TEST(test_broadcast)
{
    for (int root = 0; root < size; root++) {
        char text[16];

        snprintf(text, sizeof text, "rank %d", rank);
        ck_assert_int_eq(host_broadcast(job, text, sizeof text, root), ST_OK);
        ck_assert(text[5] == '0' + root);
    }
    ck_assert_int_eq(host_broadcast(job, NULL, 1, size), ST_EINTERNAL);
    ck_assert_int_eq(host_broadcast(job, NULL, 1, -1), ST_EINTERNAL);
}
END_TEST

START_TEST(test_maximum)
{
    double x[4] = {rank, -rank, rank == size - 1 ? NAN : 1, rank == 0 ? INFINITY : 0};

    ck_assert_int_eq(host_max_f64(job, x, 4), ST_OK);
    ck_assert(x[0] == size - 1 && x[1] == 0 && isnan(x[2]) && isinf(x[3]));
}
END_TEST

/* A rank passes a barrier only when all have come: each in turn comes late, and a file
 * tells whether it had come by then. */
START_TEST(test_barrier)
{
    char name[64];
    int pid = (int)getpid(); /* of rank 0 then */
    FILE *f;

    ck_assert_int_eq(host_broadcast(job, &pid, sizeof pid, 0), ST_OK);
    for (int late = 0; late < size; late++) {
        snprintf(name, sizeof name, "/tmp/narrows-barrier-%d-%d", pid, late);
        if (rank == late) {
            usleep(20000);
            f = fopen(name, "w");
            ck_assert_ptr_nonnull(f);
            fclose(f);
        }
        ck_assert_int_eq(host_barrier(job), ST_OK);
        ck_assert_int_eq(access(name, F_OK), 0);
        ck_assert_int_eq(host_barrier(job), ST_OK);
        if (rank == late)
            unlink(name);
    }
}
END_TEST

/* Groups of groups, reversed orders, no group at all; each talks among its own. */
START_TEST(test_split)
{
    struct host *half, *pair, *all;
    int64_t sum = rank, ranks[8] = {0}, me = rank;
    int first = rank < (size + 1) / 2;

    ck_assert_int_eq(host_split(&half, job, first, -rank), ST_OK);
    ck_assert_int_eq(host_size(half), first ? (size + 1) / 2 : size / 2);
    ck_assert_int_eq(host_split(&all, job, 7, 0), ST_OK);
    ck_assert_int_eq(host_rank(all), rank);
    ck_assert_int_eq(host_gather(half, ranks, &me, sizeof me), ST_OK);
    for (int r = 1; r < host_size(half); r++)
        ck_assert_int_eq(ranks[r], ranks[r - 1] - 1);
    ck_assert_int_eq(ranks[host_rank(half)], rank);
    ck_assert_int_eq(host_split(&pair, half, host_rank(half) < 2 ? 0 : -1, 0), ST_OK);
    if (host_rank(half) < 2) {
        ck_assert_int_eq(host_size(pair), host_size(half) < 2 ? host_size(half) : 2);
        ck_assert_int_eq(host_sum_i64(pair, &sum, 1), ST_OK);
        ck_assert_int_eq(sum, ranks[0] + (host_size(half) > 1 ? ranks[1] : 0));
    } else {
        ck_assert_ptr_null(pair);
    }
    ck_assert_int_eq(host_barrier(all), ST_OK);
    host_free(pair);
    host_free(half);
    host_free(all);
    host_free(NULL);
}
END_TEST

START_TEST(test_agreement)
{
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(host_agree(job, ST_OK), ST_OK);
    ck_assert_str_eq(status_message(), "");
}
END_TEST

/* The lowest rank with a cause of its own speaks; "another rank failed" is none. */
START_TEST(test_one_message)
{
    for (int r = 0; r < size; r++) {
        char want[64];
        enum status st = ST_OK;

        if (r > 0)
            snprintf(want, sizeof want, "rank %d: disk %d full", r, r);
        else
            strcpy(want, "disk 0 full");
        if (rank == r)
            st = fail(ST_EIO, "disk %d full", r);
        else if (rank > r)
            st = fail(ST_ENOMEM, "no memory on %d", rank);
        else if (rank == 0)
            st = fail(ST_EPEER, "another one failed");
        check_agreed(st, ST_EIO, want);
    }
    check_agreed(rank == 0 ? fail(ST_EPEER, "lost") : ST_OK, ST_EPEER, "lost");
}
END_TEST

/* A message without a text, and one with more text than fits anywhere. */
START_TEST(test_texts)
{
    char big[5000];
    enum status st;

    memset(big, 'x', sizeof big);
    big[sizeof big - 1] = '\0';
    st = rank == size - 1 ? fail(ST_EIO, "%s", big) : ST_OK;
    for (int i = 0; i < 200 && st != ST_OK; i++)
        status_trace(st, "some/file.c", i, "call(of, a, function)");
    ck_assert_int_eq(host_agree(job, st), ST_EIO);
    if (rank == 0)
        ck_assert(strlen(status_message()) > 2000 && strlen(status_backtrace()) > 3000);
    status_clear();
    if (size > 1)
        check_agreed(rank == 1 ? ST_EFORMAT : ST_OK, ST_EFORMAT, "rank 1: file content not valid");
}
END_TEST

static enum status deep(void)
{
    return fail(ST_EFORMAT, "bad byte");
}

static enum status middle(void)
{
    TRY(deep());
    return ST_OK;
}

START_TEST(test_trace)
{
    enum status st = rank == size - 1 ? middle() : ST_OK;
    const char *line;

    ck_assert_int_eq(host_agree(job, st), ST_EFORMAT);
    line = strstr(status_backtrace(), "test_host.c:");
    if (rank != 0) {
        ck_assert_str_eq(status_backtrace(), "");
    } else {
        ck_assert_ptr_nonnull(line);
        ck_assert_ptr_nonnull(strstr(line, ": deep(): file content not valid\n"));
        ck_assert(size == 1 || strstr(status_backtrace(), "[rank ") == status_backtrace());
    }
}
END_TEST

/* One raises; the others wait in a barrier that never fills, without a deadline. Old groups are
 * then of no use, the job and new groups are. */
START_TEST(test_flag)
{
    for (int bad = 0; bad < size; bad++) {
        struct host *group, *again;
        enum status st;

        host_set_timeout(job, 0);
        ck_assert_int_eq(host_split(&group, job, 0, 0), ST_OK);
        /* Everybody has the group before the flag can come. */
        ck_assert_int_eq(host_agree(job, ST_OK), ST_OK);
        if (rank == bad) {
            st = fail(ST_EDEVICE, "device fell over");
            host_raise(job, st);
            host_raise(job, ST_EIO);
        } else {
            st = host_barrier(bad % 2 ? group : job);
            ck_assert_int_eq(st, ST_EPEER);
            ck_assert_ptr_nonnull(strstr(status_message(), "device reported an error"));
            ck_assert_int_eq(host_barrier(group), ST_EPEER);
        }
        ck_assert_int_ne(host_raised(job), 0);
        ck_assert_int_eq(host_agree(job, st), ST_EDEVICE);
        status_clear();
        ck_assert_int_eq(host_barrier(group), ST_EPEER);
        ck_assert_int_eq(host_barrier(job), ST_OK);
        ck_assert_int_eq(host_split(&again, job, 0, 0), ST_OK);
        ck_assert_int_eq(host_barrier(again), ST_OK);
        host_free(group);
        host_free(again);
        status_clear();
    }
}
END_TEST

/* host_poll ends a wait for something else, and so does the deadline. */
START_TEST(test_poll)
{
    struct host_poll poll = host_poll_start();
    enum status st;

    host_set_timeout(job, 0.1);
    while ((st = host_poll(&poll, job, "the paint")) == ST_OK)
        ;
    ck_assert_int_eq(st, ST_ECOMM);
    ck_assert_ptr_nonnull(strstr(status_message(), "the paint: no answer within 0.1 s"));
    status_clear();
    host_set_timeout(job, 20);
    ck_assert_int_eq(host_agree(job, ST_OK), ST_OK);
    poll = host_poll_start();
    st = ST_OK;
    if (rank == size - 1)
        st = ST_EIO;
    while (rank != size - 1 && st == ST_OK)
        st = host_poll(&poll, job, "the paint");
    ck_assert_int_eq(st, rank == size - 1 ? ST_EIO : ST_EPEER);
    ck_assert_int_eq(host_agree(job, st), ST_EIO);
}
END_TEST

/* Rank 0 does not come to a gather: the others say so. */
START_TEST(test_deadline)
{
    char in[8] = "here", out[64];
    enum status st = ST_OK;

    ck_assert_int_eq(host_barrier(job), ST_OK);
    host_set_timeout(job, 1);
    if (rank > 0) {
        st = host_gather(job, out, in, sizeof in);
        ck_assert(st == ST_ECOMM || st == ST_EPEER);
        if (st == ST_ECOMM)
            ck_assert_ptr_nonnull(strstr(status_message(), "gather of the control plane: rank 0"));
    }
    while (rank == 0 && size > 1 && !host_raised(job))
        usleep(1000);
    host_set_timeout(job, 60);
    ck_assert_int_eq(host_agree(job, st), size > 1 ? ST_ECOMM : ST_OK);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("host");
    TCase *tc = tcase_create("host");

    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_set_timeout(tc, 0);
    tcase_add_test(tc, test_places);
    tcase_add_test(tc, test_gather);
    tcase_add_test(tc, test_broadcast);
    tcase_add_test(tc, test_maximum);
    tcase_add_test(tc, test_barrier);
    tcase_add_test(tc, test_split);
    tcase_add_test(tc, test_agreement);
    tcase_add_test(tc, test_one_message);
    tcase_add_test(tc, test_texts);
    tcase_add_test(tc, test_trace);
    tcase_add_test(tc, test_flag);
    tcase_add_test(tc, test_poll);
    tcase_add_test(tc, test_deadline);
    suite_add_tcase(s, tc);
    return s;
}

/* The others give the last rank up after a second, say so once, and end the job. */
static void lose_a_rank(void)
{
    enum status st;

    host_set_timeout(job, 1);
    if (rank == size - 1)
        for (;;)
            pause();
    st = host_agree(job, ST_OK);
    if (*status_message())
        fprintf(stderr, "message: %s\n", status_message());
    host_end(job, st);
    printf("host_end returned\n");
}

/* The others wait for a message of the last rank, without a deadline. */
static void die(int sig)
{
    if (rank == size - 1)
        raise(sig);
    host_barrier(job);
    printf("host_barrier returned\n");
}

int main(int argc, char **argv)
{
    if (host_start(&job, &argc, &argv) != ST_OK)
        return 1;
    rank = host_rank(job);
    size = host_size(job);
    if (argc > 1 && !strcmp(argv[1], "gone"))
        lose_a_rank();
    if (argc > 2 && !strcmp(argv[1], "died"))
        die(atoi(argv[2]));
    return check_job(job, suite());
}
