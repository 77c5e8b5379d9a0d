/* Attention and positions that begin anew with a document: a packed row gives what its documents
 * give as sequences of their own, bit by bit, forwards and backwards. */
#include "tests/unit/check_unit.h"
#include "tests/unit/ref_case.h"

#include <stdlib.h>
#include <string.h>

enum { SEQ = 150, HEADS = 4, KV = 2, DIM = 8 };

/* Lengths of the documents of each row; some longer than a block of queries. */
static const int64_t documents[][6] = {{150}, {1, 149}, {70, 1, 1, 8, 70}, {64, 86}, {149, 1}};
enum { ROWS = sizeof documents / sizeof *documents };

static struct attention make(struct ref_case *c, struct device *dev, enum dtype dt, int64_t batch,
                             int64_t seq)
{
    int64_t rows = batch * seq;

    return (struct attention){.batch = batch,
                              .seq = seq,
                              .kv_rows = seq,
                              .heads = HEADS,
                              .kv_heads = KV,
                              .head_dim = DIM,
                              .q = ref_case_tensor(c, dt, rows, HEADS * DIM, 0),
                              .k = ref_case_tensor(c, dt, rows, KV * DIM, 0),
                              .v = ref_case_tensor(c, dt, rows, KV * DIM, 0),
                              .o = ref_case_tensor(c, dt, rows, HEADS * DIM, 0),
                              .lse = ref_case_tensor(c, dev->wide, rows, HEADS, 0)};
}

/* Rows [first, first + t->rows) of `from`. */
static void copy_rows(struct tensor *t, const struct tensor *from, int64_t first)
{
    for (int64_t i = 0; i < t->rows; i++)
        memcpy(tensor_row(t, i), tensor_row(from, first + i),
               (size_t)t->cols * dtype_size(t->dtype));
}

static void assert_rows(const struct tensor *t, const struct tensor *from, int64_t first,
                        const char *what)
{
    for (int64_t i = 0; i < t->rows; i++)
        ck_assert_msg(memcmp(tensor_row(t, i), tensor_row(from, first + i),
                             (size_t)t->cols * dtype_size(t->dtype)) == 0,
                      "%s: row %lld", what, (long long)(first + i));
}

static void run(struct device *dev, struct attention *at, struct attention *dat,
                const struct tensor *table)
{
    struct rope rope = {.seq = at->seq, .head_dim = DIM, .starts = at->starts};

    ck_assert_int_eq(op_rope(dev, &at->q, table, rope), ST_OK);
    ck_assert_int_eq(op_rope(dev, &at->k, table, rope), ST_OK);
    ck_assert_int_eq(op_attention_forward(dev, at), ST_OK);
    ck_assert_int_eq(op_attention_backward(dev, at, dat), ST_OK);
}

/* Packed rows: their inputs, what became of them, and the rotary table. */
struct packed {
    struct attention in, at, dat;
    struct tensor table;
};

/* One document as a sequence of its own against the packed rows that hold it from `first` on. */
static void check_document(struct ref_case *c, struct device *dev, const struct packed *p,
                           int64_t first, int64_t length)
{
    struct attention own = make(c, dev, p->at.q.dtype, 1, length);
    struct attention grad = make(c, dev, p->at.q.dtype, 1, length);

    copy_rows(&own.q, &p->in.q, first);
    copy_rows(&own.k, &p->in.k, first);
    copy_rows(&own.v, &p->in.v, first);
    copy_rows(&grad.o, &p->dat.o, first);
    run(dev, &own, &grad, &p->table);
    assert_rows(&own.q, &p->at.q, first, "rotated q");
    assert_rows(&own.k, &p->at.k, first, "rotated k");
    assert_rows(&own.o, &p->at.o, first, "o");
    assert_rows(&own.lse, &p->at.lse, first, "lse");
    assert_rows(&grad.q, &p->dat.q, first, "dq");
    assert_rows(&grad.k, &p->dat.k, first, "dk");
    assert_rows(&grad.v, &p->dat.v, first, "dv");
}

static void compare(struct ref_case *c, struct device *dev, enum dtype dt)
{
    struct packed p = {.in = make(c, dev, dt, ROWS, SEQ),
                       .at = make(c, dev, dt, ROWS, SEQ),
                       .dat = make(c, dev, dt, ROWS, SEQ),
                       .table = ref_case_tensor(c, dev->wide, SEQ, DIM, 0)};

    ref_case_fill(&p.in.q, 1, 1);
    ref_case_fill(&p.in.k, 2, 1);
    ref_case_fill(&p.in.v, 3, 1);
    ref_case_fill(&p.dat.o, 4, 1);
    ref_case_fill(&p.table, 5, 1);
    copy_rows(&p.at.q, &p.in.q, 0);
    copy_rows(&p.at.k, &p.in.k, 0);
    copy_rows(&p.at.v, &p.in.v, 0);
    p.at.starts = ref_case_tensor(c, DT_I32, ROWS * SEQ, 1, 0);
    for (int64_t b = 0; b < ROWS; b++)
        for (int64_t d = 0, first = 0; first < SEQ; first += documents[b][d++])
            for (int64_t i = 0; i < documents[b][d]; i++)
                ((int32_t *)p.at.starts.data)[b * SEQ + first + i] = (int32_t)first;
    run(dev, &p.at, &p.dat, &p.table);
    for (int64_t b = 0; b < ROWS; b++)
        for (int64_t d = 0, first = 0; first < SEQ; first += documents[b][d++])
            check_document(c, dev, &p, b * SEQ + first, documents[b][d]);
}

START_TEST(test_own_sequences)
{
    struct ref_case c;
    const struct backend *const backends[] = {&ref_backend, &ref64_backend};

    ref_case_begin(&c);
    for (int threads = 1; threads <= 3; threads += 2)
        for (int i = 0; i < 2; i++) {
            struct device *dev = ref_case_device(&c, backends[i], threads);

            compare(&c, dev, dev->wide);
            if (i == 0)
                compare(&c, dev, DT_BF16);
        }
    ref_case_end(&c);
}
END_TEST

START_TEST(test_refused)
{
    struct ref_case c;
    struct device *dev;
    struct attention at;

    ref_case_begin(&c);
    dev = ref_case_device(&c, &ref_backend, 1);
    at = make(&c, dev, dev->wide, 1, 8);
    at.starts = ref_case_tensor(&c, DT_I32, 7, 1, 0);
    ck_assert_int_eq(op_attention_forward(dev, &at), ST_ESHAPE);
    status_clear();
    at.starts = ref_case_tensor(&c, DT_I32, 8, 1, 0);
    at.seq = 6; /* a cache of keys: documents are for training */
    at.starts.rows = 6;
    at.q.rows = at.o.rows = at.lse.rows = 6;
    ck_assert_int_eq(op_attention_forward(dev, &at), ST_ESHAPE);
    ref_case_end(&c);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("documents_reset");
    TCase *c = tcase_create("documents_reset");

    tcase_add_test(c, test_own_sequences);
    tcase_add_test(c, test_refused);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return check_unit(suite());
}
