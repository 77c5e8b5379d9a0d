/* What messages cost, by purpose: how long they were under way, and how long the work waited. */
#include "common/backend/device.h"
#include "common/backend/trace_spans.h"

#include "common/base/log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum status trace_moments(double **at, const struct trace *t)
{
    enum status st;

    *at = NULL;
    if (t->failed != ST_OK)
        return fail(t->failed, "the profile is not whole: %s", t->message);
    *at = malloc((size_t)t->moments * sizeof **at);
    if (!*at)
        return fail(ST_ENOMEM, "no memory for %lld moments of a profile", (long long)t->moments);
    st = device_stamps(t->dev, *at, t->moments);
    if (st == ST_OK)
        return ST_OK;
    free(*at);
    *at = NULL;
    return st;
}

double trace_begin(const struct trace_span *s, const double *at, double *free_at)
{
    double begin = at[s->begin], end = at[s->end];

    if (s->track == 0)
        return begin;
    begin = fmin(fmax(begin, free_at[s->track]), end);
    free_at[s->track] = end;
    return begin;
}

static int purpose_of(const struct trace_span *s)
{
    int p = 0;

    while (p < LEDGER_COUNT && s->purpose != ledger_name((enum ledger_purpose)p))
        p++;
    return p;
}

/* A wait counts for what is under way on its communicator, in equal parts when that has several
 * purposes. */
static void add_wait(struct trace_sum *sum, unsigned *flying, double seconds)
{
    int purposes = __builtin_popcount(*flying);

    for (int p = 0; p < LEDGER_COUNT; p++)
        if (*flying >> p & 1)
            sum->row[p].exposed += seconds / purposes;
    *flying = 0;
}

enum status trace_sum(struct trace_sum *sum, const struct trace *t)
{
    double *at = NULL, free_at[TRACE_TRACKS + 1] = {0};
    unsigned flying[TRACE_TRACKS + 1] = {0}; /* purposes, a bit each, of a track */

    memset(sum, 0, sizeof *sum);
    TRY(trace_moments(&at, t));
    for (int64_t i = 0; at && i < t->spans; i++) {
        const struct trace_span *s = &t->span[i];
        double begin = trace_begin(s, at, free_at), seconds = at[s->end] - begin;
        int p = s->track ? purpose_of(s) : LEDGER_COUNT;

        if (!strcmp(s->kind, "step"))
            sum->seconds += seconds;
        if (s->of)
            add_wait(sum, &flying[s->of], seconds);
        if (p == LEDGER_COUNT)
            continue;
        sum->row[p].messages++;
        sum->row[p].under_way += seconds;
        flying[s->track] |= 1U << p;
    }
    free(at);
    return ST_OK;
}

/* ---- of all ranks ---- */

/* Means over ranks, and the most that any of them has exposed. */
static void join(struct trace_sum *mean, double most[LEDGER_COUNT], const struct trace_sum *all,
                 int ranks)
{
    memset(mean, 0, sizeof *mean);
    for (int r = 0; r < ranks; r++) {
        mean->seconds += all[r].seconds / ranks;
        for (int p = 0; p < LEDGER_COUNT; p++) {
            mean->row[p].messages += all[r].row[p].messages;
            mean->row[p].under_way += all[r].row[p].under_way / ranks;
            mean->row[p].exposed += all[r].row[p].exposed / ranks;
            most[p] = fmax(most[p], all[r].row[p].exposed);
        }
    }
}

static void print_joined(const struct trace_sum *mean, const double *most, int64_t steps, int ranks)
{
    double per = 1e3 / (double)steps, exposed = 0.0;

    log_info("%-14s %9s %12s %12s %9s %12s", "a step", "messages", "ms under way", "ms exposed",
             "of time", "most exposed");
    for (int p = 0; p < LEDGER_COUNT; p++) {
        const struct trace_row *row = &mean->row[p];

        exposed += row->exposed;
        if (row->messages)
            log_info("%-14s %9.1f %12.3f %12.3f %8.1f%% %12.3f",
                     ledger_name((enum ledger_purpose)p),
                     (double)row->messages / (double)steps / ranks, per * row->under_way,
                     per * row->exposed, 100.0 * row->exposed / mean->seconds, per * most[p]);
    }
    log_info("%-14s %9s %12s %12.3f %8.1f%% of %.3f ms; means over ranks", "all", "", "",
             per * exposed, 100.0 * exposed / mean->seconds, per * mean->seconds);
}

enum status trace_print(const struct trace *t, struct host *job, int64_t steps)
{
    int ranks = host_size(job);
    struct trace_sum own, mean, *all = malloc((size_t)ranks * sizeof *all);
    double most[LEDGER_COUNT] = {0};
    enum status st =
        all ? trace_sum(&own, t) : fail(ST_ENOMEM, "no memory for the sums of %d ranks", ranks);

    st = host_agree(job, st);
    if (st == ST_OK)
        st = host_gather(job, all, &own, sizeof own);
    if (st == ST_OK && all) {
        join(&mean, most, all, ranks);
        print_joined(&mean, most, steps, ranks);
    }
    free(all);
    return st;
}
