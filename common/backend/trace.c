#include "common/backend/trace.h"

#include "common/backend/device.h"

#include <stdio.h>
#include <stdlib.h>

/* The first failure ends the recording; the work that is profiled goes on. */
static void keep_failure(struct trace *t, enum status st)
{
    if (st == ST_OK || t->failed != ST_OK)
        return;
    t->failed = st;
    snprintf(t->message, sizeof t->message, "%s", status_message());
    status_clear();
}

static int recording(const struct device *dev)
{
    return dev->trace && dev->trace->failed == ST_OK;
}

enum status trace_start(struct trace **out, struct device *dev)
{
    struct trace *t = calloc(1, sizeof *t);
    enum status st;

    *out = NULL;
    if (!t)
        return fail(ST_ENOMEM, "no memory for a profile");
    t->dev = dev;
    t->moments = 1;
    st = device_stamp(dev, 0, "");
    if (st != ST_OK) {
        free(t);
        return st;
    }
    dev->trace = t;
    *out = t;
    return ST_OK;
}

void trace_stop(struct trace *t)
{
    if (!t)
        return;
    t->dev->trace = NULL;
    free(t->span);
    free(t);
}

/* A new span that begins now; NULL when there is no memory. */
static struct trace_span *add(struct trace *t, struct trace_span what, const char *range)
{
    if (t->spans == t->room) {
        int64_t room = t->room ? 2 * t->room : 4096;
        struct trace_span *more = realloc(t->span, (size_t)room * sizeof *more);

        if (!more) {
            keep_failure(t,
                         fail(ST_ENOMEM, "no memory for %lld spans of a profile", (long long)room));
            return NULL;
        }
        t->span = more;
        t->room = room;
    }
    what.begin = what.end = t->moments++;
    keep_failure(t, device_stamp(t->dev, what.begin, range));
    t->span[t->spans] = what;
    return &t->span[t->spans++];
}

void trace_open(struct device *dev, struct trace_span what)
{
    struct trace *t = dev->trace;

    if (!recording(dev))
        return;
    what.track = 0;
    if (t->depth == TRACE_DEPTH)
        keep_failure(t, fail(ST_EINTERNAL, "spans of a profile lie %d deep", TRACE_DEPTH));
    else if (add(t, what, what.name))
        t->open[t->depth++] = t->spans - 1;
}

void trace_close(struct device *dev)
{
    struct trace *t = dev->trace;
    struct trace_span *span;

    if (!recording(dev) || t->depth == 0)
        return;
    span = &t->span[t->open[--t->depth]];
    span->end = t->moments++;
    keep_failure(t, device_stamp(dev, span->end, NULL));
}

static int track_of(struct trace *t, const struct comm *c)
{
    for (int i = 0; i < t->tracks; i++)
        if (t->comm[i] == c)
            return i + 1;
    if (t->tracks == TRACE_TRACKS) {
        keep_failure(t,
                     fail(ST_EINTERNAL, "a profile of more than %d communicators", TRACE_TRACKS));
        return TRACE_TRACKS;
    }
    t->comm[t->tracks++] = c;
    return t->tracks;
}

void trace_wait(struct comm *c)
{
    struct trace *t = c->dev ? c->dev->trace : NULL;

    if (t && recording(c->dev))
        trace_open(c->dev,
                   (struct trace_span){.name = "wait", .kind = "wait", .of = track_of(t, c)});
}

void trace_message(struct comm *c, const char *name)
{
    struct trace *t = c->dev ? c->dev->trace : NULL;
    struct trace_span what = {.name = name, .kind = "collective"};

    if (!t || !recording(c->dev))
        return;
    what.track = track_of(t, c);
    what.purpose = c->ledger ? ledger_name(c->ledger->purpose) : NULL;
    add(t, what, "");
}

/* The span that trace_message added is the last one: a collective's begin opens no other. */
void trace_message_begun(struct comm *c, int64_t elements, int64_t wire_bytes)
{
    struct trace *t = c->dev ? c->dev->trace : NULL;
    struct trace_span *span;

    if (!t || !recording(c->dev) || t->spans == 0)
        return;
    span = &t->span[t->spans - 1];
    span->key[0] = "bytes";
    span->value[0] = wire_bytes;
    span->key[1] = "elements";
    span->value[1] = elements;
    span->key[2] = "ranks";
    span->value[2] = c->size;
    span->end = t->moments++;
    keep_failure(t, c->be->comm->stamp(c, span->end));
}
