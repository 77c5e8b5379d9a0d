/* What a rank's collectives take and how long its work waits for them, from a profile. */
#include "common/backend/device.h"
#include "common/backend/trace.h"
#include "common/cli/bench.h"

#include <string.h>

static void add_rows(double *under_way, double *exposed, const struct trace_sum *s,
                     enum ledger_purpose first, enum ledger_purpose last)
{
    *under_way = *exposed = 0.0;
    for (int p = (int)first; p <= (int)last; p++) {
        *under_way += s->row[p].under_way;
        *exposed += s->row[p].exposed;
    }
}

/* By purpose, as the ledger counts bytes; the norm of the gradients is none of theirs. */
static enum status add_up(struct bench_traffic *sum, const struct trace *t)
{
    struct trace_sum s;

    TRY(trace_sum(&s, t));
    add_rows(&sum->tp, &sum->tp_wait, &s, LEDGER_TP_FORWARD, LEDGER_HEAD);
    add_rows(&sum->dp, &sum->dp_wait, &s, LEDGER_DP, LEDGER_ZERO);
    add_rows(&sum->pp, &sum->pp_wait, &s, LEDGER_PP, LEDGER_PP);
    return ST_OK;
}

static enum status profiled(struct bench *b, struct bench_case *c,
                            enum status (*run)(struct bench_case *c), struct bench_traffic *sum)
{
    struct trace *t = NULL;
    enum status st;

    TRY(host_barrier(b->job));
    TRY(trace_start(&t, c->place.at.dev));
    st = run(c);
    if (st == ST_OK)
        st = device_sync(c->place.at.dev);
    if (st == ST_OK)
        st = add_up(sum, t);
    trace_stop(t);
    return st;
}

enum status bench_profile(struct bench *b, struct bench_case *c,
                          enum status (*run)(struct bench_case *c), struct bench_traffic *traffic)
{
    double worst[BENCH_TRAFFIC];

    TRY(host_agree(b->job, profiled(b, c, run, traffic)));
    memcpy(worst, traffic, sizeof worst);
    TRY(host_max_f64(b->job, worst, BENCH_TRAFFIC));
    memcpy(traffic, worst, sizeof worst);
    return ST_OK;
}

void bench_traffic_median(struct bench_traffic *median, const struct bench_traffic *of, int n)
{
    double out[BENCH_TRAFFIC], in[BENCH_PROFILES][BENCH_TRAFFIC];

    memcpy(in, of, (size_t)n * sizeof *in);
    for (int k = 0; k < BENCH_TRAFFIC; k++) {
        double values[BENCH_PROFILES];

        for (int i = 0; i < n; i++)
            values[i] = in[i][k];
        out[k] = bench_median(values, n);
    }
    memcpy(median, out, sizeof out);
}
