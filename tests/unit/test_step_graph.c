/* When a step is recorded, replayed or given plainly: the calls of steps on the recording backend,
 * with slots that record. What they record computes nothing; that a graph gives the same bits is
 * for a GPU to show (tests/cli/gpu.sh). */
#include "common/backend/record.h"
#include "common/backend/trace.h"
#include "common/train/step.h"
#include "tests/unit/check_unit.h"
#include "tests/unit/tiny_model.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#undef fail
#define OK(expr) ck_assert_msg((expr) == ST_OK, "%s: %s", #expr, status_message())

/* A letter a call: u upload, ( and ) recording begins and ends, r replay, R one that does not hold
 * any more, x freed, w weights updated, p the passes of all micro-batches. */
static struct {
    char calls[512];
    int n, live, stale, recording;
} heard;

static void note(char c)
{
    ck_assert_int_lt(heard.n, (int)sizeof heard.calls - 1);
    if (c == 'p' && heard.n > 0 && heard.calls[heard.n - 1] == 'p')
        return;
    heard.calls[heard.n++] = c;
    heard.calls[heard.n] = '\0';
}

static enum status heard_upload(struct device *dev, void *dst, const void *src, size_t bytes)
{
    ck_assert(!heard.recording);
    note('u');
    return record_backend.device->upload(dev, dst, src, bytes);
}

static enum status heard_download(struct device *dev, void *dst, const void *src, size_t bytes)
{
    ck_assert(!heard.recording);
    return record_backend.device->download(dev, dst, src, bytes);
}

static enum status heard_begin(struct device *dev)
{
    (void)dev;
    note('(');
    heard.recording = 1;
    return ST_OK;
}

static enum status heard_end(struct device *dev, void **graph)
{
    (void)dev;
    note(')');
    heard.recording = 0;
    heard.live++;
    *graph = &heard;
    return ST_OK;
}

static enum status heard_replay(struct device *dev, void *graph, int *done)
{
    (void)dev;
    ck_assert_ptr_eq(graph, &heard);
    *done = !heard.stale;
    note(heard.stale ? 'R' : 'r');
    heard.stale = 0;
    return ST_OK;
}

static void heard_free(struct device *dev, void *graph)
{
    (void)dev;
    ck_assert_ptr_eq(graph, &heard);
    note('x');
    heard.live--;
}

static enum status heard_ce_grad(struct device *dev, struct tensor *loss, struct tensor *logits,
                                 const struct tensor *st, const struct tensor *targets,
                                 struct vocab_cut cut, double scale)
{
    note('p');
    return record_backend.math->ce_grad(dev, loss, logits, st, targets, cut, scale);
}

static enum status heard_adamw(struct device *dev, const struct adamw_item *item, int n,
                               const struct adamw_step *step, const struct tensor *norm_scale)
{
    ck_assert(!heard.recording);
    note('w');
    return record_backend.math->adamw(dev, item, n, step, norm_scale);
}

struct rig {
    struct config cfg;
    struct device_ops device;
    struct math_ops math;
    struct backend be;
    struct ledger ledger;
    struct step_place at;
    struct step step;
};

/* One of two replicas of two ranks each. */
static void open_rig(struct rig *r, int graph)
{
    static const char *const words[] = {"parallel.dp=2", "parallel.tp=2", "train.batch=8",
                                        "train.micro_batch=1", NULL};

    memset(r, 0, sizeof *r);
    memset(&heard, 0, sizeof heard);
    tiny_model_config(&r->cfg, words, 4);
    r->cfg.run.graph = graph;
    r->device = *record_backend.device;
    r->device.upload = heard_upload;
    r->device.download = heard_download;
    r->device.capture_begin = heard_begin;
    r->device.capture_end = heard_end;
    r->device.replay = heard_replay;
    r->device.capture_free = heard_free;
    r->math = *record_backend.math;
    r->math.ce_grad = heard_ce_grad;
    r->math.adamw = heard_adamw;
    r->be = (struct backend){
        .name = "heard", .device = &r->device, .math = &r->math, .comm = record_backend.comm};
    OK(record_open(&r->at.dev, DT_F32));
    r->at.dev->be = &r->be;
    r->at.ledger = &r->ledger;
    OK(record_comm(&r->at.tp, r->at.dev, 0, 2, &r->ledger));
    OK(record_comm(&r->at.dp, r->at.dev, 0, 2, &r->ledger));
    OK(step_open(&r->step, &r->cfg, &r->at, NULL, 1));
}

static void close_rig(struct rig *r)
{
    step_close(&r->step);
    ck_assert_int_eq(heard.live, 0);
    comm_destroy(r->at.tp);
    comm_destroy(r->at.dp);
    device_close(r->at.dev);
}

/* A step with `valid` targets; what was called, as above. */
static const char *step(struct rig *r, int64_t valid)
{
    struct step_result result;

    heard.n = 0;
    ledger_clear(&r->ledger);
    OK(step_train(&r->step, NULL, NULL, valid, 1, 0.0, &result));
    return heard.calls;
}

/* One plain step, one that is recorded and replayed, then replays. */
START_TEST(recorded_once)
{
    struct rig r;

    open_rig(&r, 1);
    ck_assert_str_eq(step(&r, 8), "uupw");
    ck_assert_str_eq(step(&r, 8), "uu(p)rw");
    for (int i = 0; i < 3; i++)
        ck_assert_str_eq(step(&r, 8), "uurw");
    heard.n = 0;
    close_rig(&r);
    ck_assert_str_eq(heard.calls, "x");
}
END_TEST

START_TEST(never_without_the_key)
{
    struct rig r;

    open_rig(&r, 0);
    for (int i = 0; i < 4; i++)
        ck_assert_str_eq(step(&r, 8), "uupw");
    close_rig(&r);
}
END_TEST

/* The number of targets is a part of what is recorded. A single step with another number, as at the
 * end of an epoch, is given plainly and leaves the graph alone; a second one takes its place. */
START_TEST(another_scale)
{
    struct rig r;

    open_rig(&r, 1);
    step(&r, 8);
    step(&r, 8);
    ck_assert_str_eq(step(&r, 7), "uupw");
    ck_assert_str_eq(step(&r, 8), "uurw");
    ck_assert_str_eq(step(&r, 7), "uupw");
    ck_assert_str_eq(step(&r, 7), "uux(p)rw");
    ck_assert_str_eq(step(&r, 7), "uurw");
    ck_assert_str_eq(step(&r, 8), "uupw");
    close_rig(&r);
}
END_TEST

/* Memory that the recording knew has moved: plainly, then recorded anew. */
START_TEST(holds_no_more)
{
    struct rig r;

    open_rig(&r, 1);
    step(&r, 8);
    step(&r, 8);
    heard.stale = 1;
    ck_assert_str_eq(step(&r, 8), "uuRxpw");
    ck_assert_str_eq(step(&r, 8), "uu(p)rw");
    ck_assert_str_eq(step(&r, 8), "uurw");
    close_rig(&r);
}
END_TEST

/* Steps of a profile have moments: plainly, whatever is recorded. Evaluations and probes too. */
START_TEST(plain_sequences)
{
    struct rig r;
    double sum;

    open_rig(&r, 1);
    step(&r, 8);
    OK(trace_start(&r.at.dev->trace, r.at.dev));
    ck_assert_str_eq(step(&r, 8), "uupw");
    trace_stop(r.at.dev->trace);
    r.at.dev->trace = NULL;
    ck_assert_str_eq(step(&r, 8), "uu(p)rw");
    heard.n = 0;
    OK(step_evaluate(&r.step, NULL, NULL, &sum));
    OK(step_probe(&r.step, NULL, NULL, 8, &sum));
    ck_assert_ptr_null(strpbrk(heard.calls, "(rR"));
    ck_assert_str_eq(step(&r, 8), "uurw");
    close_rig(&r);
}
END_TEST

/* What is sent is counted alike in each kind of step. */
START_TEST(counted_alike)
{
    struct ledger plain;
    struct rig r;

    open_rig(&r, 1);
    step(&r, 8);
    plain = r.ledger;
    ck_assert_int_gt(plain.row[LEDGER_DP].calls, 0);
    ck_assert_int_gt(plain.row[LEDGER_TP_FORWARD].calls, 0);
    for (int i = 0; i < 3; i++) {
        step(&r, 8);
        for (int p = 0; p < LEDGER_COUNT; p++) {
            ck_assert_int_eq(r.ledger.row[p].calls, plain.row[p].calls);
            ck_assert_int_eq(r.ledger.row[p].elements, plain.row[p].elements);
            ck_assert_int_eq(r.ledger.row[p].wire_bytes, plain.row[p].wire_bytes);
        }
    }
    close_rig(&r);
}
END_TEST

/* A failure while something is recorded ends the recording and leaves nothing of it. */
START_TEST(failure_while_recording)
{
    struct step_result result;
    struct rig r;

    open_rig(&r, 1);
    step(&r, 8);
    heard.n = 0;
    record_fail(r.at.dev, 20);
    ck_assert_int_eq(step_train(&r.step, NULL, NULL, 8, 2, 0.0, &result), ST_EDEVICE);
    ck_assert_ptr_nonnull(strstr(status_message(), "told to fail"));
    ck_assert_ptr_nonnull(strstr(heard.calls, ")x"));
    ck_assert_ptr_null(strpbrk(heard.calls, "rw"));
    ck_assert_int_eq(heard.live, 0);
    status_clear();
    close_rig(&r);
}
END_TEST

/* A backend that does its work at once says so. */
START_TEST(no_such_slot)
{
    void *graph = &heard;
    struct device *dev;
    int done = 1;

    OK(record_open(&dev, DT_F32));
    ck_assert_int_eq(device_capture_begin(dev), ST_ECONFIG);
    ck_assert_ptr_nonnull(strstr(status_message(), "run.graph=off"));
    ck_assert_int_eq(device_capture_end(dev, &graph), ST_ECONFIG);
    ck_assert_ptr_null(graph);
    ck_assert_int_eq(device_replay(dev, graph, &done), ST_ECONFIG);
    ck_assert_int_eq(done, 0);
    device_capture_free(dev, NULL);
    status_clear();
    device_close(dev);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("step graph");
    TCase *tc = tcase_create("all");

    tcase_add_test(tc, recorded_once);
    tcase_add_test(tc, never_without_the_key);
    tcase_add_test(tc, another_scale);
    tcase_add_test(tc, holds_no_more);
    tcase_add_test(tc, plain_sequences);
    tcase_add_test(tc, counted_alike);
    tcase_add_test(tc, failure_while_recording);
    tcase_add_test(tc, no_such_slot);
    suite_add_tcase(suite, tc);
    return check_unit(suite);
}
