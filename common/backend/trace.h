/* A profile: what a rank does in some steps, as spans between moments of its device.
 *
 * While dev->trace is set, the wrappers op_x and comm_x, the step and the trainer open and close
 * spans; a moment is taken on the device (struct device_ops, stamp), so that on a GPU a span is
 * when the work was done and not when it was asked for. Spans of one track lie within each other:
 * track 0 is the rank's own work, each communicator has a track of its own.
 */
#ifndef COMMON_BACKEND_TRACE_H
#define COMMON_BACKEND_TRACE_H

#include "common/backend/comm.h"
#include "common/backend/host.h"

enum { TRACE_DEPTH = 16, TRACE_TRACKS = 16, TRACE_ARGS = 3 };

struct trace_span {
    const char *name, *kind;     /* "gemm", "op"; static texts */
    int64_t begin, end;          /* numbers of moments */
    int track;                   /* 0, or 1 + place in struct trace, comm */
    int of;                      /* a wait: the track of what it waits for; else 0 */
    const char *key[TRACE_ARGS]; /* "bytes" ...; NULL: no more */
    int64_t value[TRACE_ARGS];
    const char *purpose; /* of a collective; else NULL */
};

struct trace {
    struct device *dev;
    struct trace_span *span;
    int64_t spans, room, moments;
    int64_t open[TRACE_DEPTH]; /* spans of track 0 that are open, outermost first */
    int depth;
    const struct comm *comm[TRACE_TRACKS];
    int tracks;
    enum status failed; /* nothing is recorded any more; the message is kept below */
    char message[256];
};

/* Begins a profile of dev; moment 0 is now. Local: let the ranks meet just before. The caller
 * frees it by trace_stop. Errors: ST_ENOMEM, those of the device. */
enum status trace_start(struct trace **t, struct device *dev);

/* Ends it and frees t; NULL is allowed. */
void trace_stop(struct trace *t);

/* A span of track 0 begins (begin, end and track are not looked at); the innermost one ends.
 * Without dev->trace nothing happens. What fails is kept for trace_write. */
void trace_open(struct device *dev, struct trace_span what);
void trace_close(struct device *dev);

/* A span of track 0 begins in which the rank waits for all that was begun on c. */
void trace_wait(struct comm *c);

/* A collective called name is about to begin on c; it has begun, and is that large. */
void trace_message(struct comm *c, const char *name);
void trace_message_begun(struct comm *c, int64_t elements, int64_t wire_bytes);

/* Writes the spans of all ranks as a Chrome trace (chrome://tracing, Perfetto): rank r of the job
 * is process r. Collective over the job; all ranks return the same status. Errors: ST_EIO,
 * ST_ENOMEM, what failed while spans were recorded. */
enum status trace_write(struct trace *t, struct host *job, const char *path);

/* What the messages of a purpose cost a rank. */
struct trace_row {
    int64_t messages;
    double under_way; /* seconds, each from its begin to its end, hidden or not             */
    double exposed;   /* seconds that the rank's work waited for them                       */
};

struct trace_sum {
    struct trace_row row[LEDGER_COUNT];
    double seconds; /* of the spans of kind "step" */
};

/* Adds up the spans so far. Waits for the device. Local. Errors: ST_ENOMEM, what failed while spans
 * were recorded. */
enum status trace_sum(struct trace_sum *sum, const struct trace *t);

/* Writes a table to the log, means over the ranks of a step of `steps`: messages, ms under way and
 * exposed, the share of the time; exposed in a pipeline's sends and receives is its bubble.
 * Collective over the job; errors as trace_sum. */
enum status trace_print(const struct trace *t, struct host *job, int64_t steps);

#endif
