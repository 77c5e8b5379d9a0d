/* Collectives of the reference backend: bits against a serial tree, poison between begin and wait,
 * several in flight. ranks: 1 2 3 4 8 */
#include "tests/mpi/comm_case.h"

#include <math.h>
#include <stdlib.h>

START_TEST(test_all_reduce)
{
    static const int64_t counts[] = {1, 2, 7, 256, 257, 4096, MANY};

    for (int dt = 0; dt < DT_COUNT; dt++)
        for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
            struct tensor t = case_tensor((enum dtype)dt, 1, counts[k]);

            case_fill(&t, test.rank, 0);
            ck_assert_int_eq(comm_all_reduce_begin(test.comm, &t, 1), ST_OK);
            case_check_poisoned(&t);
            ck_assert_int_eq(comm_wait(test.comm), ST_OK);
            case_check_sum(&t, 0);
            case_done(&t);
        }
}
END_TEST

/* Tensors of several types in one call; small and large. */
START_TEST(test_grouped)
{
    for (int64_t rows = 1; rows <= 3000; rows += 2999) {
        struct tensor t[4] = {case_tensor(DT_BF16, rows, 3), case_tensor(DT_F32, 1, rows + 1),
                              case_tensor(DT_F64, rows, 2), case_tensor(DT_I32, 5, 1)};

        for (int i = 0; i < 4; i++)
            case_fill(&t[i], test.rank, 1000 * i);
        ck_assert_int_eq(comm_all_reduce(test.comm, t, 4), ST_OK);
        for (int i = 0; i < 4; i++) {
            case_check_sum(&t[i], 1000 * i);
            case_done(&t[i]);
        }
    }
}
END_TEST

START_TEST(test_gather_scatter)
{
    for (int dt = 0; dt < DT_COUNT; dt++)
        for (int64_t rows = 1; rows < 6000; rows += 5000) {
            struct tensor part = case_tensor((enum dtype)dt, rows, 3);
            struct tensor full = case_tensor((enum dtype)dt, rows * test.size, 3);

            case_fill(&part, test.rank, 0);
            ck_assert_int_eq(comm_all_gather_begin(test.comm, &full, &part), ST_OK);
            case_check_poisoned(&full);
            case_check_numbers(&part, test.rank, 0);
            ck_assert_int_eq(comm_wait(test.comm), ST_OK);
            for (int r = 0; r < test.size; r++) {
                struct tensor rows_of_r = tensor_rows(&full, r * rows, rows, 1);

                case_check_numbers(&rows_of_r, r, 0);
            }
            case_fill(&full, test.rank, 0);
            ck_assert_int_eq(comm_reduce_scatter_begin(test.comm, &part, &full), ST_OK);
            case_check_poisoned(&part);
            ck_assert_int_eq(comm_wait(test.comm), ST_OK);
            case_check_sum(&part, test.rank * rows * 3);
            case_done(&part);
            case_done(&full);
        }
}
END_TEST

START_TEST(test_broadcast)
{
    for (int root = 0; root < test.size; root++) {
        struct tensor t = case_tensor(DT_BF16, 100, 7);

        case_fill(&t, test.rank, 0);
        ck_assert_int_eq(comm_broadcast_begin(test.comm, &t, root), ST_OK);
        case_check_poisoned(&t);
        ck_assert_int_eq(comm_wait(test.comm), ST_OK);
        case_check_numbers(&t, root, 0);
        case_done(&t);
    }
}
END_TEST

/* A ring in which all send first, to the right and to the left, with large messages that cannot
 * leave before they are received. */
START_TEST(test_ring)
{
    int right = (test.rank + 1) % test.size, left = (test.rank + test.size - 1) % test.size;
    struct tensor out[2] = {case_tensor(DT_F32, 1, MANY), case_tensor(DT_I32, 1, 3)};
    struct tensor in[2] = {case_tensor(DT_F32, 1, MANY), case_tensor(DT_I32, 1, 3)};

    if (test.size > 1) {
        case_fill(&out[0], test.rank, 0);
        case_fill(&out[1], test.rank, 7);
        ck_assert_int_eq(comm_send_begin(test.comm, &out[0], right), ST_OK);
        ck_assert_int_eq(comm_send_begin(test.comm, &out[1], left), ST_OK);
        ck_assert_int_eq(comm_recv_begin(test.comm, &in[0], left), ST_OK);
        ck_assert_int_eq(comm_recv_begin(test.comm, &in[1], right), ST_OK);
        case_check_numbers(&out[0], test.rank, 0);
        case_check_poisoned(&in[0]);
        case_check_poisoned(&in[1]);
        ck_assert_int_eq(comm_wait(test.comm), ST_OK);
        case_check_numbers(&in[0], left, 0);
        case_check_numbers(&in[1], right, 7);
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
    int right = (test.rank + 1) % test.size, left = (test.rank + test.size - 1) % test.size;
    struct tensor sum[3] = {case_tensor(DT_F32, 3, 5), case_tensor(DT_F32, 1, MANY),
                            case_tensor(DT_BF16, 9, 9)};
    struct tensor part = case_tensor(DT_F64, 2, 2), full = case_tensor(DT_F64, 2 * test.size, 2);
    struct tensor cast = case_tensor(DT_I32, 4, 4), out = case_tensor(DT_F32, 50, 50), in[2];

    case_fill(&cast, test.rank, 3);
    case_fill(&part, test.rank, 0);
    case_fill(&out, test.rank, 0);
    for (int i = 0; i < 3; i++)
        case_fill(&sum[i], test.rank, i);
    in[0] = case_tensor(DT_F32, 50, 50);
    in[1] = case_tensor(DT_F32, 50, 50);
    for (int i = 0; i < 2 && test.size > 1; i++) {
        ck_assert_int_eq(comm_send_begin(test.comm, &out, right), ST_OK);
        ck_assert_int_eq(comm_recv_begin(test.comm, &in[i], left), ST_OK);
        if (i == 0)
            ck_assert_int_eq(comm_all_reduce_begin(test.comm, &sum[1], 1), ST_OK);
    }
    if (test.size == 1)
        ck_assert_int_eq(comm_all_reduce_begin(test.comm, &sum[1], 1), ST_OK);
    ck_assert_int_eq(comm_all_reduce_begin(test.comm, &sum[0], 1), ST_OK);
    ck_assert_int_eq(comm_all_gather_begin(test.comm, &full, &part), ST_OK);
    ck_assert_int_eq(comm_broadcast_begin(test.comm, &cast, test.size - 1), ST_OK);
    ck_assert_int_eq(comm_all_reduce_begin(test.comm, &sum[2], 1), ST_OK);
    case_check_poisoned(&sum[0]);
    ck_assert_int_eq(comm_wait(test.comm), ST_OK);
    for (int i = 0; i < 3; i++)
        case_check_sum(&sum[i], i);
    case_check_numbers(&cast, test.size - 1, 3);
    for (int r = 0; r < test.size; r++) {
        struct tensor rows = tensor_rows(&full, 2 * r, 2, 1);

        case_check_numbers(&rows, r, 0);
    }
    for (int i = 0; i < 2; i++) {
        if (test.size > 1)
            case_check_numbers(&in[i], left, 0);
        free(in[i].data);
        case_done(&sum[i]);
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
    float x[5] = {-0.0f, test.rank == test.size - 1 ? NAN : 1.0f, test.rank == 0 ? INFINITY : -1.0f,
                  test.rank == 0 ? INFINITY : (test.rank == 1 ? -INFINITY : 0.0f), 0.0f};
    struct tensor t = tensor_view(x, DT_F32, 1, 5);

    ck_assert_int_eq(comm_all_reduce(test.comm, &t, 1), ST_OK);
    ck_assert(x[0] == 0.0f && signbit(x[0]));
    ck_assert(isnan(x[1]));
    ck_assert(isinf(x[2]) && x[2] > 0);
    ck_assert(test.size == 1 ? isinf(x[3]) : isnan(x[3]));
    ck_assert(x[4] == 0.0f && !signbit(x[4]));
}
END_TEST

START_TEST(test_empty)
{
    char nothing[4] = "abc";
    struct tensor t = tensor_view(nothing, DT_F32, 0, 5);

    ck_assert_int_eq(comm_all_reduce(test.comm, &t, 1), ST_OK);
    ck_assert_int_eq(comm_all_gather(test.comm, &t, &t), ST_OK);
    ck_assert_str_eq(nothing, "abc");
}
END_TEST

/* Messages cut into pieces, as those above 2^30 bytes are. */
START_TEST(test_pieces)
{
    struct tensor t = case_tensor(DT_F32, 1, MANY), one = case_tensor(DT_F32, 1, 5);

    ref_comm_set_chunk(test.comm, 1000);
    case_fill(&t, test.rank, 0);
    case_fill(&one, test.rank, 0);
    ck_assert_int_eq(comm_all_reduce_begin(test.comm, &t, 1), ST_OK);
    ck_assert_int_eq(comm_all_reduce_begin(test.comm, &one, 1), ST_OK);
    ck_assert_int_eq(comm_wait(test.comm), ST_OK);
    case_check_sum(&t, 0);
    case_check_sum(&one, 0);
    case_done(&t);
    case_done(&one);
}
END_TEST

/* The rows, columns and ranks of two groups at once: each among its own. */
START_TEST(test_groups)
{
    int wide = test.size / 2 > 0 ? test.size / 2 : 1;
    struct host *group[2];
    struct comm *c[2];
    float x[2] = {(float)test.rank, (float)test.rank}, want[2] = {0, 0};
    struct tensor t[2] = {tensor_view(&x[0], DT_F32, 1, 1), tensor_view(&x[1], DT_F32, 1, 1)};

    ck_assert_int_eq(host_split(&group[0], test.job, test.rank / wide, 0), ST_OK);
    ck_assert_int_eq(host_split(&group[1], test.job, test.rank % wide, -test.rank), ST_OK);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(comm_create(&c[i], test.device, group[i], &test.ledger), ST_OK);
        ck_assert_int_eq(c[i]->rank, host_rank(group[i]));
        ck_assert_int_eq(c[i]->size, host_size(group[i]));
        ck_assert_int_eq(comm_all_reduce_begin(c[i], &t[i], 1), ST_OK);
    }
    for (int r = 0; r < test.size; r++) {
        want[0] += r / wide == test.rank / wide ? (float)r : 0;
        want[1] += r % wide == test.rank % wide ? (float)r : 0;
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

START_TEST(test_memory)
{
    size_t bytes = MANY * 4 + 200 + 400 * (size_t)test.size;
    int64_t grown;

    ck_assert_int_eq(comm_reserve(test.comm, bytes), ST_OK);
    case_steps(test.comm, 3);
    ck_assert_int_eq(ref_comm_grown(test.comm), 0);
    case_drop();
    case_comm();
    case_steps(test.comm, 1);
    grown = ref_comm_grown(test.comm);
    ck_assert(test.size == 1 ? grown == 0 : grown > 0);
    case_steps(test.comm, 3);
    ck_assert_int_eq(ref_comm_grown(test.comm), grown);
}
END_TEST

int main(int argc, char **argv)
{
    TCase *tc = tcase_create("comm");

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
    return case_main(tc, argc, argv);
}
