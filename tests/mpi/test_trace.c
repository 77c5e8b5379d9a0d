/* A profile of training steps: a file that any JSON reader takes, a process for each rank, spans
 * of a track within each other, and as many collectives and bytes as the ledger counted. Gradients
 * in buckets are on their way to the other replicas while backward still goes on.
 * ranks: 1 2 4 */
#include "common/backend/trace.h"
#include "tests/mpi/check_job.h"
#include "tests/unit/temp_folder.h"
#include "tests/unit/tiny_run.h"

#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#undef fail
#define OK(expr)         TINY_OK(job, expr)
#define CHECK(cond, ...) TINY_CHECK(job, cond, __VA_ARGS__)

enum { RANKS = 4, DEEP = 16 };
#define SLACK 1e-3 /* microseconds: what rounding may add to a difference */

static struct host *job;
static int rank, size;

static const struct trial {
    int ranks;
    const char *word[6];
    struct tiny_layout layout;
    int early; /* buckets of gradients that begin while backward goes on, at least */
} trials[] = {
    {1, {"model.layer=full"}, {1, 1, 2}, 0},
    {2, {"parallel.recompute=block"}, {2, 1, 4}, 0},
    {2, {"parallel.zero=1"}, {1, 2, 2}, 0},
    {4, {"parallel.zero=1", "parallel.recompute=bottleneck"}, {2, 2, 2}, 0},
    {2, {"parallel.bucket=0"}, {1, 2, 2}, 1},
    {2, {"parallel.bucket=0", "parallel.zero=1"}, {1, 2, 2}, 4},
    {4, {"parallel.bucket=0", "parallel.zero=1", "parallel.pp=2"}, {1, 2, 2}, 2},
    {4, {"parallel.pp=2", "parallel.schedule=zb-h1"}, {2, 1, 2}, 0},
    {4, {"parallel.pp=4", "parallel.norm=sync"}, {1, 1, 1}, 0},
};

static void set_up(void)
{
    tiny_run_begin(job);
}

/* Profiles one step into path; rows: what the ledger counted on this rank. */
static void profile(const struct trial *t, const char *path, struct ledger *counted)
{
    struct trace *trace;
    struct tiny_run r;

    CHECK(tiny_run_open(&r, job, tiny_t8, t->word, t->layout), "a rank takes no part");
    tiny_run_train(&r, 1, TINY_ALL); /* not in it */
    ledger_clear(&r.ledger);
    OK(host_barrier(job));
    OK(trace_start(&trace, r.at.dev));
    trace_open(r.at.dev, (struct trace_span){.name = "step", .kind = "step"});
    tiny_run_train(&r, 2, TINY_ALL);
    trace_close(r.at.dev);
    OK(trace_write(trace, job, path));
    trace_stop(trace);
    CHECK(!r.at.dev->trace, "the profile goes on");
    *counted = r.ledger;
    tiny_run_train(&r, 3, TINY_ALL); /* nor this */
    tiny_run_close(&r);
}

/* One event. */
struct event {
    const char *name, *kind;
    double begin, end;
    int pid, tid;
    json_t *args;
};

static struct event event_of(json_t *e)
{
    double ts = json_number_value(json_object_get(e, "ts"));

    return (struct event){.name = json_string_value(json_object_get(e, "name")),
                          .kind = json_string_value(json_object_get(e, "cat")),
                          .begin = ts,
                          .end = ts + json_number_value(json_object_get(e, "dur")),
                          .pid = (int)json_integer_value(json_object_get(e, "pid")),
                          .tid = (int)json_integer_value(json_object_get(e, "tid")),
                          .args = json_object_get(e, "args")};
}

static int is_span(json_t *e)
{
    return !strcmp(json_string_value(json_object_get(e, "ph")), "X");
}

/* What lies within what, on the track of work of one rank. */
struct nest {
    struct event open[DEEP];
    double inside[DEEP]; /* time of the children so far */
    int depth, steps, instructions, operations, waits;
};

static void pop(struct nest *n, double now)
{
    while (n->depth > 0 && n->open[n->depth - 1].end <= now + SLACK) {
        n->depth--;
        CHECK(n->inside[n->depth] <= n->open[n->depth].end - n->open[n->depth].begin + 1000 * SLACK,
              "%s: its parts take %g us, it %g", n->open[n->depth].name, n->inside[n->depth],
              n->open[n->depth].end - n->open[n->depth].begin);
    }
}

static void push(struct nest *n, struct event e)
{
    pop(n, e.begin);
    CHECK(n->depth < DEEP - 1, "too deep");
    if (n->depth > 0) {
        CHECK(e.end <= n->open[n->depth - 1].end + SLACK, "%s ends after %s", e.name,
              n->open[n->depth - 1].name);
        n->inside[n->depth - 1] += e.end - e.begin;
    }
    if (!strcmp(e.kind, "step"))
        CHECK(n->depth == 0, "a step within %s", n->open[0].name);
    else
        CHECK(n->depth > 0, "%s stands outside the step", e.name);
    n->steps += !strcmp(e.kind, "step");
    n->instructions += !strcmp(e.kind, "instruction");
    n->operations += !strcmp(e.kind, "op");
    n->waits += !strcmp(e.kind, "wait");
    n->inside[n->depth] = 0.0;
    n->open[n->depth++] = e;
}

static void check_work(json_t *events, int pid)
{
    struct nest n = {.depth = 0};
    double last = 0.0;
    size_t i;
    json_t *e;

    json_array_foreach(events, i, e)
    {
        struct event v;

        if (!is_span(e))
            continue;
        v = event_of(e);
        if (v.pid != pid || v.tid != 0)
            continue;
        CHECK(v.begin >= last - SLACK && v.end >= v.begin && v.begin >= 0.0, "%s goes backwards",
              v.name);
        last = v.begin;
        push(&n, v);
    }
    pop(&n, INFINITY);
    CHECK(n.steps == 1 && n.instructions >= 3 && n.operations > 50, "%d steps, %d, %d", n.steps,
          n.instructions, n.operations);
    CHECK(size == 1 ? n.waits == 0 : n.waits > 0, "%d waits", n.waits);
}

/* Collectives by purpose against the ledger of that rank. */
static void check_messages(json_t *events, int pid, const struct ledger *l)
{
    struct ledger_row row[LEDGER_COUNT] = {{0}};
    double free_at[32] = {0};
    size_t i;
    json_t *e;

    json_array_foreach(events, i, e)
    {
        struct event v;
        const char *purpose;

        if (!is_span(e))
            continue;
        v = event_of(e);
        if (v.pid != pid || v.tid == 0)
            continue;
        CHECK(v.tid < 32 && v.begin >= free_at[v.tid] - SLACK, "%s begins before its turn", v.name);
        free_at[v.tid] = v.end;
        purpose = json_string_value(json_object_get(v.args, "purpose"));
        CHECK(purpose && json_integer_value(json_object_get(v.args, "ranks")) > 1, "%s", v.name);
        for (int p = 0; p < LEDGER_COUNT; p++)
            if (!strcmp(purpose, ledger_name((enum ledger_purpose)p))) {
                row[p].calls += strcmp(v.name, "receive") != 0;
                row[p].elements += json_integer_value(json_object_get(v.args, "elements"));
                row[p].wire_bytes += json_integer_value(json_object_get(v.args, "bytes"));
            }
    }
    for (int p = 0; p < LEDGER_COUNT; p++)
        CHECK(row[p].calls == l->row[p].calls && row[p].elements == l->row[p].elements &&
                  row[p].wire_bytes == l->row[p].wire_bytes,
              "%s: %lld calls of %lld bytes in the profile, %lld of %lld counted",
              ledger_name((enum ledger_purpose)p), (long long)row[p].calls,
              (long long)row[p].wire_bytes, (long long)l->row[p].calls,
              (long long)l->row[p].wire_bytes);
}

/* Sums over replicas that begin while the last micro-batch goes backward. On ref a second one of a
 * plain sum is shown behind the first, in which its track is busy. */
static int begun_early(json_t *events, int pid)
{
    struct event last = {.end = 0.0};
    int n = 0;
    size_t i;
    json_t *e;

    json_array_foreach(events, i, e)
    {
        struct event v = event_of(e);

        if (is_span(e) && v.pid == pid && !strcmp(v.name, "backward") && v.end > last.end)
            last = v;
    }
    json_array_foreach(events, i, e)
    {
        struct event v = event_of(e);
        const char *purpose = json_string_value(json_object_get(v.args, "purpose"));

        n += is_span(e) && v.pid == pid && v.tid != 0 && purpose && v.begin > last.begin &&
             v.begin < last.end &&
             (!strcmp(purpose, ledger_name(LEDGER_DP)) ||
              !strcmp(purpose, ledger_name(LEDGER_ZERO)));
    }
    return n;
}

START_TEST(a_step_is_a_tree_of_spans)
{
    const struct trial *t = &trials[_i];
    struct ledger counted, all[RANKS];
    json_error_t error;
    json_t *root, *events;
    char folder[TEMP_PATH] = "", path[TEMP_PATH];

    if (t->ranks != size)
        return;
    if (rank == 0)
        temp_folder_make(folder);
    OK(host_broadcast(job, folder, sizeof folder, 0));
    temp_folder_path(path, folder, "trace.json");
    profile(t, path, &counted);
    OK(host_gather(job, all, &counted, sizeof counted));
    if (rank > 0)
        return;
    root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    CHECK(root, "no JSON: line %d: %s", error.line, error.text);
    events = json_object_get(root, "traceEvents");
    CHECK(json_is_array(events), "no list of events");
    for (int r = 0; r < size; r++) {
        check_work(events, r);
        check_messages(events, r, &all[r]);
        CHECK(begun_early(events, r) >= t->early, "rank %d: %d of %d buckets begin early", r,
              begun_early(events, r), t->early);
    }
    json_decref(root);
    temp_folder_remove(folder);
}
END_TEST

/* A failure while spans are recorded is told when the file is to be written, and not before. */
static enum status no_stamp(struct device *dev, int64_t n, const char *name)
{
    (void)dev;
    (void)name;
    return n < 20 ? ST_OK : fail(ST_EDEVICE, "no moment %lld", (long long)n);
}

START_TEST(a_torn_profile_is_refused)
{
    struct device_ops device = *ref_backend.device;
    struct backend torn = {.name = "torn", .device = &device, .math = ref_backend.math};
    struct trace *trace;
    struct tiny_run r;

    if (size > 1)
        return;
    torn.comm = ref_backend.comm;
    device.stamp = no_stamp;
    CHECK(tiny_run_open(&r, job, tiny_t8, NULL, (struct tiny_layout){1, 1, 0}), "no part");
    r.at.dev->be = &torn;
    OK(trace_start(&trace, r.at.dev));
    tiny_run_train(&r, 1, TINY_ALL);
    CHECK(trace_write(trace, job, "/tmp/narrows-never") == ST_EDEVICE, "it was written");
    CHECK(strstr(status_message(), "not whole: no moment 20"), "%s", status_message());
    status_clear();
    trace_stop(trace);
    r.at.dev->be = &ref_backend;
    tiny_run_close(&r);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *s = suite_create("trace");
    TCase *tc = tcase_create("trace");

    if (host_start(&job, &argc, &argv) != ST_OK)
        return EXIT_FAILURE;
    rank = host_rank(job);
    size = host_size(job);
    tcase_set_timeout(tc, 300);
    tcase_add_checked_fixture(tc, set_up, NULL);
    tcase_add_loop_test(tc, a_step_is_a_tree_of_spans, 0, sizeof trials / sizeof *trials);
    tcase_add_test(tc, a_torn_profile_is_refused);
    suite_add_tcase(s, tc);
    return check_job(job, s);
}
