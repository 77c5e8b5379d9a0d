/* What a rank's collectives take and how long its work waits for them, from a profile. */
#include "common/backend/device.h"
#include "common/backend/trace_spans.h"
#include "common/cli/bench.h"

#include <stdlib.h>
#include <string.h>

/* Adds seconds of a collective of communicator c, or of a wait for it. */
static void count(struct bench_traffic *sum, const struct step_place *at, const struct comm *c,
                  int wait, double seconds)
{
    double *to;

    if (c == at->tp || c == at->second)
        to = wait ? &sum->tp_wait : &sum->tp;
    else if (c == at->dp)
        to = wait ? &sum->dp_wait : &sum->dp;
    else
        to = wait ? &sum->pp_wait : &sum->pp;
    *to += seconds;
}

static enum status add_up(struct bench_traffic *sum, const struct step_place *at,
                          const struct trace *t)
{
    double *moment, free_at[TRACE_TRACKS + 1] = {0};

    memset(sum, 0, sizeof *sum);
    TRY(trace_moments(&moment, t));
    for (int64_t i = 0; i < t->spans; i++) {
        const struct trace_span *s = &t->span[i];
        double seconds = moment[s->end] - trace_begin(s, moment, free_at);

        if (s->track > 0)
            count(sum, at, t->comm[s->track - 1], 0, seconds);
        else if (s->of > 0)
            count(sum, at, t->comm[s->of - 1], 1, seconds);
    }
    free(moment);
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
        st = add_up(sum, &c->place.at, t);
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
