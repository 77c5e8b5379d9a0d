/* Profiles as files: each rank writes its spans as text, rank 0 puts them together. */
#include "common/backend/device.h"
#include "common/backend/trace_spans.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum status put(FILE *out, json_t *event)
{
    int bad;

    if (!event)
        return fail(ST_ENOMEM, "no memory for a span of a profile");
    bad = json_dumpf(event, out, JSON_COMPACT | JSON_REAL_PRECISION(12));
    json_decref(event);
    if (bad || fputs(",\n", out) < 0)
        return fail(ST_ENOMEM, "no memory for the text of a profile");
    return ST_OK;
}

static enum status put_name(FILE *out, const char *what, int rank, int track, const char *name)
{
    return put(out, json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", what, "ph", "M", "pid", rank,
                              "tid", track, "args", "name", name));
}

static enum status put_names(FILE *out, const struct trace *t, int rank)
{
    char text[64];

    snprintf(text, sizeof text, "rank %d (%s)", rank, t->dev->be->name);
    TRY(put_name(out, "process_name", rank, 0, text));
    TRY(put_name(out, "thread_name", rank, 0, "work"));
    for (int i = 0; i < t->tracks; i++) {
        snprintf(text, sizeof text, "communicator %d, of %d ranks", i, t->comm[i]->size);
        TRY(put_name(out, "thread_name", rank, i + 1, text));
    }
    return ST_OK;
}

static json_t *args_of(const struct trace_span *s)
{
    json_t *args = json_object();

    if (s->purpose)
        json_object_set_new(args, "purpose", json_string(s->purpose));
    for (int i = 0; i < TRACE_ARGS && s->key[i]; i++)
        json_object_set_new(args, s->key[i], json_integer(s->value[i]));
    return args;
}

/* Microseconds with a tenth of a nanosecond: sums of them stay exact enough to be compared. */
static double micro(double seconds)
{
    return round(1e10 * seconds) / 1e4;
}

static enum status put_spans(FILE *out, const struct trace *t, const double *at, int rank)
{
    double free_at[TRACE_TRACKS + 1] = {0};

    for (int64_t i = 0; i < t->spans; i++) {
        const struct trace_span *s = &t->span[i];
        double begin = micro(trace_begin(s, at, free_at)), end = micro(at[s->end]);

        TRY(put(out, json_pack("{s:s, s:s, s:s, s:f, s:f, s:i, s:i, s:o}", "name", s->name, "cat",
                               s->kind, "ph", "X", "ts", begin, "dur", end - begin, "pid", rank,
                               "tid", s->track, "args", args_of(s))));
    }
    return ST_OK;
}

static enum status rank_text(char **text, size_t *bytes, struct trace *t, int rank)
{
    double *at = NULL;
    FILE *out = open_memstream(text, bytes);
    enum status st = out ? ST_OK : fail(ST_ENOMEM, "no memory for the text of a profile");

    if (st == ST_OK)
        st = trace_moments(&at, t);
    if (st == ST_OK)
        st = put_names(out, t, rank);
    if (st == ST_OK)
        st = put_spans(out, t, at, rank);
    if (out && fclose(out) && st == ST_OK)
        st = fail(ST_ENOMEM, "no memory for the text of a profile");
    free(at);
    return st;
}

/* Rank after rank; the last comma gives way to the end of the list. */
static enum status join(FILE *out, struct host *job, char *text, size_t bytes)
{
    int n = host_size(job), rank = host_rank(job);
    enum status st = ST_OK;

    for (int r = 0; r < n && st == ST_OK; r++) {
        uint64_t size = bytes;
        char *part;

        TRY(host_broadcast(job, &size, sizeof size, r));
        part = r == rank ? text : malloc((size_t)size);
        if (!part)
            return fail(ST_ENOMEM, "no memory for the %llu bytes of rank %d's profile",
                        (unsigned long long)size, r);
        st = host_broadcast(job, part, (size_t)size, r);
        if (st == ST_OK && out)
            fwrite(part, 1, (size_t)size - (r == n - 1 ? 2 : 0), out);
        if (r != rank)
            free(part);
    }
    return st;
}

static enum status write_file(struct host *job, const char *path, char *text, size_t bytes)
{
    int writes = host_rank(job) == 0;
    FILE *out = writes ? fopen(path, "w") : NULL;
    enum status st = ST_OK;
    int bad;

    if (writes && !out)
        st = fail(ST_EIO, "cannot write the profile %s: %s", path, strerror(errno));
    TRY(host_agree(job, st));
    if (out)
        fputs("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n", out);
    st = join(out, job, text, bytes);
    if (out) {
        fputs("\n]}\n", out);
        bad = ferror(out);
        bad |= fclose(out);
        if (bad && st == ST_OK)
            st = fail(ST_EIO, "cannot write the profile %s: %s", path, strerror(errno));
    }
    return host_agree(job, st);
}

enum status trace_write(struct trace *t, struct host *job, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    enum status st = host_agree(job, rank_text(&text, &bytes, t, host_rank(job)));

    if (st == ST_OK)
        st = write_file(job, path, text, bytes);
    free(text);
    return st;
}
