#include "tests/mpi/comm_case.h"
#include "tests/mpi/check_job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct backend backend = {.name = "test", .comm = &ref_comm_ops};
static struct device device = {.be = &backend, .threads = 1};
struct comm_case test = {.device = &device};

void case_comm(void)
{
    host_set_timeout(test.job, 30);
    memset(&test.ledger, 0, sizeof test.ledger);
    ck_assert_int_eq(comm_create(&test.comm, &device, test.job, &test.ledger), ST_OK);
}

void case_drop(void)
{
    comm_destroy(test.comm);
    test.comm = NULL;
    status_clear();
}

/* Numbers whose sum depends on the order of additions; integers that overflow. */
double case_number(enum dtype dt, int r, int64_t i)
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

void case_fill(struct tensor *t, int r, int64_t first)
{
    for (int64_t i = 0; i < tensor_count(t); i++)
        dtype_store(t->data, t->dtype, i, case_number(t->dtype, r, first + i));
}

/* A tensor on the heap; free its data. Three guard bytes behind it are checked by done(). */
struct tensor case_tensor(enum dtype dt, int64_t rows, int64_t cols)
{
    size_t bytes = (size_t)(rows * cols) * dtype_size(dt);
    char *p = malloc(bytes + 3);

    memset(p, 0x5a, bytes + 3);
    return tensor_view(p, dt, rows, cols);
}

void case_done(struct tensor *t)
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
        return bf16_to_float(bf16_from_float((float)case_number(dt, lo, i)));
    return (float)case_number(dt, lo, i);
}

static double tree_f64(int lo, int hi, int64_t i)
{
    int mid = lo + (hi - lo) / 2;

    return hi - lo == 1 ? case_number(DT_F64, lo, i) : tree_f64(lo, mid, i) + tree_f64(mid, hi, i);
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
        d = tree_f64(0, test.size, first + i);
        return memcmp(p, &d, 8) == 0;
    case DT_I32:
        for (int r = 0; r < test.size; r++)
            whole += (uint32_t)(int32_t)case_number(DT_I32, r, first + i);
        return memcmp(p, &whole, 4) == 0;
    case DT_BF16:
        half = bf16_from_float(tree_f32(DT_BF16, 0, test.size, first + i));
        return memcmp(p, &half, 2) == 0;
    default:
        f = tree_f32(DT_F32, 0, test.size, first + i);
        return memcmp(p, &f, 4) == 0;
    }
}

void case_check_sum(const struct tensor *t, int64_t first)
{
    int64_t wrong = 0;

    for (int64_t i = 0; i < tensor_count(t); i++)
        wrong += !is_sum(t, i, first);
    ck_assert_msg(wrong == 0, "%lld of %lld sums of %s over %d ranks have other bits",
                  (long long)wrong, (long long)tensor_count(t), dtype_name(t->dtype), test.size);
}

/* Whether all of t are the numbers of rank r from first on. */
void case_check_numbers(const struct tensor *t, int r, int64_t first)
{
    struct tensor want = case_tensor(t->dtype, t->rows, t->cols);

    case_fill(&want, r, first);
    ck_assert_int_eq(memcmp(t->data, want.data, (size_t)tensor_count(t) * dtype_size(t->dtype)), 0);
    case_done(&want);
}

void case_check_poisoned(const struct tensor *t)
{
    for (int64_t i = 0; i < tensor_count(t) && test.size > 1; i++) {
        double x = dtype_load(t->data, t->dtype, i);

        ck_assert(t->dtype == DT_I32 ? x == (double)INT32_MIN : isnan(x));
    }
}

/* What a training step would do, twice the number of times that staging may have to grow. */
void case_steps(struct comm *c, int n)
{
    struct tensor sum[2] = {case_tensor(DT_F32, 1, MANY), case_tensor(DT_BF16, 1, 100)};
    struct tensor part = case_tensor(DT_F32, 10, 10),
                  full = case_tensor(DT_F32, 10 * test.size, 10);

    for (int i = 0; i < n; i++) {
        for (int k = 0; k < 2; k++)
            case_fill(&sum[k], test.rank, 0);
        case_fill(&full, test.rank, 0);
        ck_assert_int_eq(comm_all_reduce_begin(c, sum, 2), ST_OK);
        ck_assert_int_eq(comm_reduce_scatter_begin(c, &part, &full), ST_OK);
        ck_assert_int_eq(comm_wait(c), ST_OK);
        case_check_sum(&sum[0], 0);
        case_check_sum(&sum[1], 0);
        case_check_sum(&part, test.rank * 100);
    }
    for (int k = 0; k < 2; k++)
        case_done(&sum[k]);
    case_done(&part);
    case_done(&full);
}

int case_main(TCase *tests, int argc, char **argv)
{
    Suite *s = suite_create("comm");

    tcase_add_checked_fixture(tests, case_comm, case_drop);
    tcase_set_timeout(tests, 0);
    suite_add_tcase(s, tests);
    if (host_start(&test.job, &argc, &argv) != ST_OK)
        return EXIT_FAILURE;
    test.rank = host_rank(test.job);
    test.size = host_size(test.job);
    return check_job(test.job, s);
}
