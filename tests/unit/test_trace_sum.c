/* What messages cost, from spans whose moments are given: under way, exposed, by purpose. */
#include "common/backend/record.h"
#include "common/backend/trace.h"
#include "tests/unit/check_unit.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#undef fail
#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

static double moment[64]; /* seconds of the moments, as the device will tell them */

static enum status told(struct device *dev, double *seconds, int64_t n)
{
    (void)dev;
    memcpy(seconds, moment, (size_t)n * sizeof *seconds);
    return ST_OK;
}

/* A profile on a device that tells `moment`, and two communicators of two ranks. */
struct rig {
    struct device_ops device;
    struct backend be;
    struct device *dev;
    struct ledger ledger;
    struct comm *tp, *pp;
    struct trace *trace;
};

static void open_rig(struct rig *r)
{
    memset(r, 0, sizeof *r);
    r->device = *record_backend.device;
    r->device.stamps = told;
    r->be = (struct backend){.name = "told",
                             .device = &r->device,
                             .math = record_backend.math,
                             .comm = record_backend.comm};
    OK(record_open(&r->dev, DT_F32));
    r->dev->be = &r->be;
    OK(record_comm(&r->tp, r->dev, 0, 2, &r->ledger));
    OK(record_comm(&r->pp, r->dev, 0, 2, &r->ledger));
    OK(trace_start(&r->trace, r->dev));
}

static void close_rig(struct rig *r)
{
    trace_stop(r->trace);
    comm_destroy(r->tp);
    comm_destroy(r->pp);
    device_close(r->dev);
}

/* The next moment of the profile is at `seconds`. */
static void at(const struct rig *r, int ahead, double seconds)
{
    moment[r->trace->moments + ahead] = seconds;
}

/* A message of a purpose whose begin the work reached at `begin` and that was done at `end`. */
static void message(struct rig *r, struct comm *c, enum ledger_purpose p, double begin, double end)
{
    float x = 0.0F;
    struct tensor t = tensor_view(&x, DT_F32, 1, 1);

    at(r, 0, begin);
    at(r, 1, end);
    ledger_for(&r->ledger, p);
    OK(comm_all_reduce_begin(c, &t, 1));
}

static void wait_for(struct rig *r, struct comm *c, double begin, double end)
{
    at(r, 0, begin);
    at(r, 1, end);
    OK(comm_wait(c));
}

static void check_row(const struct trace_sum *s, enum ledger_purpose p, int64_t messages,
                      double under_way, double exposed)
{
    const struct trace_row *row = &s->row[p];

    ck_assert_int_eq(row->messages, messages);
    ck_assert_msg(fabs(row->under_way - under_way) < 1e-12, "%s: %g under way, not %g",
                  ledger_name(p), row->under_way, under_way);
    ck_assert_msg(fabs(row->exposed - exposed) < 1e-12, "%s: %g exposed, not %g", ledger_name(p),
                  row->exposed, exposed);
}

/* One message is hidden but for its end; another is waited for at once; a step has its time. */
START_TEST(hidden_and_exposed)
{
    struct trace_sum s;
    struct rig r;

    open_rig(&r);
    at(&r, 0, 1.0);
    trace_open(r.dev, (struct trace_span){.name = "step", .kind = "step"});
    message(&r, r.tp, LEDGER_TP_BACKWARD, 2.0, 5.0);
    wait_for(&r, r.tp, 4.5, 5.0);
    message(&r, r.tp, LEDGER_TP_FORWARD, 6.0, 8.0);
    wait_for(&r, r.tp, 6.0, 8.0);
    at(&r, 0, 11.0);
    trace_close(r.dev);
    OK(trace_sum(&s, r.trace));
    check_row(&s, LEDGER_TP_BACKWARD, 1, 3.0, 0.5);
    check_row(&s, LEDGER_TP_FORWARD, 1, 2.0, 2.0);
    check_row(&s, LEDGER_PP, 0, 0.0, 0.0);
    ck_assert(s.seconds == 10.0);
    close_rig(&r);
}
END_TEST

/* A second message of a communicator begins when the first has ended; a wait for messages of two
 * purposes counts by half; that of another communicator is its own. */
START_TEST(one_after_another)
{
    struct trace_sum s;
    struct rig r;

    open_rig(&r);
    message(&r, r.tp, LEDGER_TP_FORWARD, 1.0, 3.0);
    message(&r, r.tp, LEDGER_NORM_FORWARD, 1.5, 4.0); /* 3.0 to 4.0 */
    message(&r, r.pp, LEDGER_PP, 2.0, 9.0);           /* beside them */
    wait_for(&r, r.tp, 2.0, 4.0);
    wait_for(&r, r.pp, 5.0, 9.0);
    wait_for(&r, r.pp, 9.0, 9.5); /* for nothing */
    OK(trace_sum(&s, r.trace));
    check_row(&s, LEDGER_TP_FORWARD, 1, 2.0, 1.0);
    check_row(&s, LEDGER_NORM_FORWARD, 1, 1.0, 1.0);
    check_row(&s, LEDGER_PP, 1, 7.0, 4.0);
    ck_assert(s.seconds == 0.0);
    close_rig(&r);
}
END_TEST

/* Nothing is told of a profile that is not whole. */
START_TEST(a_torn_profile_is_refused)
{
    struct trace_sum s;
    struct rig r;

    open_rig(&r);
    for (int i = 0; i <= TRACE_DEPTH; i++)
        trace_open(r.dev, (struct trace_span){.name = "deep", .kind = "op"});
    ck_assert_int_eq(trace_sum(&s, r.trace), ST_EINTERNAL);
    ck_assert_ptr_nonnull(strstr(status_message(), "not whole"));
    close_rig(&r);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("trace_sum");
    TCase *tc = tcase_create("trace_sum");

    tcase_add_test(tc, hidden_and_exposed);
    tcase_add_test(tc, one_after_another);
    tcase_add_test(tc, a_torn_profile_is_refused);
    suite_add_tcase(s, tc);
    return check_unit(s);
}
