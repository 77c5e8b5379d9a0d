#include "common/backend/host_mpi.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How a wait spends its turns: spin at first (a message between running ranks takes about a
 * microsecond), then yield (ranks may share cores), then sleep, because a rank that waits for
 * long, for instance while rank 0 writes a file, should leave the cores to that rank's threads. */
enum { SPIN_TURNS = 200, CLOCK_TURNS = 16 };
static const double sleep_after = 0.1; /* seconds */
static const long sleep_ns = 50000;

double host_clock(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct host_poll host_poll_start(void)
{
    return (struct host_poll){0};
}

/* One turn of a wait: 0 to go on, else ST_EPEER or ST_ECOMM without a message. Time counts from the
 * beginning, or from the last sign of life of a rank at long work. */
static enum status turn(struct host_poll *p, struct host_job *job, int heed, double timeout)
{
    double now, since;
    int raised;

    if (++p->turns < SPIN_TURNS && p->turns % CLOCK_TURNS != 0)
        return ST_OK;
    now = host_clock();
    if (p->start == 0)
        p->start = now;
    raised = host_job_raised(job);
    if (heed && raised)
        return ST_EPEER;
    since = job->heard > p->start ? job->heard : p->start;
    if (timeout > 0 && now - since > timeout)
        return ST_ECOMM;
    if (p->turns < SPIN_TURNS)
        return ST_OK;
    if (now - p->start < sleep_after)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = sleep_ns}, NULL);
    return ST_OK;
}

enum status host_peer_failed(const struct host_job *job)
{
    return fail(ST_EPEER, "rank %d failed (%s)", job->raised_by.rank,
                status_text((enum status)job->raised_by.status));
}

enum status host_poll(struct host_poll *p, struct host *h, const char *what)
{
    enum status st = turn(p, h->job, 1, h->job->timeout);

    if (st == ST_EPEER)
        return host_peer_failed(h->job);
    if (st == ST_ECOMM)
        return fail(st, "%s: no answer within %g s; if ranks are only slow, raise timeout", what,
                    h->job->timeout);
    return st;
}

enum status host_set_reserve(struct host_set *s, int n)
{
    size_t room = (size_t)(s->room ? s->room : 8);
    MPI_Request *request;
    MPI_Status *status;
    struct host_note *note;
    int *done;

    if (n <= s->room)
        return ST_OK;
    while (room < (size_t)n)
        room *= 2;
    request = realloc(s->request, room * sizeof *request);
    s->request = request ? request : s->request;
    status = realloc(s->status, room * sizeof *status);
    s->status = status ? status : s->status;
    note = realloc(s->note, room * sizeof *note);
    s->note = note ? note : s->note;
    done = realloc(s->done, room * sizeof *done);
    s->done = done ? done : s->done;
    if (!request || !status || !note || !done)
        return fail(ST_ENOMEM, "no host memory for %zu messages in flight", room);
    s->room = (int)room;
    return ST_OK;
}

static enum status mpi_failed(int code, const char *what, int peer)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n;

    MPI_Error_string(code, text, &n);
    return fail(ST_ECOMM, "%s rank %d: MPI says: %s", what, peer, text);
}

enum status host_set_post(struct host_set *s, struct host_job *job, void *data, size_t bytes,
                          int peer, int tag, int receive)
{
    size_t chunk = s->chunk ? s->chunk : HOST_CHUNK;
    char *p = data;
    int n, code;

    do {
        n = (int)(bytes < chunk ? bytes : chunk);
        TRY(host_set_reserve(s, s->n + 1));
        if (receive)
            code = MPI_Irecv(p, n, MPI_BYTE, peer, tag, job->comm, &s->request[s->n]);
        else
            code = MPI_Isend(p, n, MPI_BYTE, peer, tag, job->comm, &s->request[s->n]);
        if (code != MPI_SUCCESS)
            return mpi_failed(code, receive ? "receive from" : "send to", peer);
        s->note[s->n++] = (struct host_note){.peer = peer, .expected = receive ? n : -1};
        p += n;
        bytes -= (size_t)n;
    } while (bytes > 0);
    return ST_OK;
}

enum status host_set_send(struct host_set *s, struct host *h, const void *data, size_t bytes,
                          int peer)
{
    /* MPI_Isend takes a const buffer; host_set_post has one signature for both ways. */
    return host_set_post(s, h->job, (void *)data, bytes, h->peer[peer], h->tag, 0);
}

enum status host_set_receive(struct host_set *s, struct host *h, void *data, size_t bytes, int peer)
{
    return host_set_post(s, h->job, data, bytes, h->peer[peer], h->tag, 1);
}

/* Whether message i arrived whole. */
static enum status arrived(const struct host_set *s, int i, const MPI_Status *status, int code)
{
    const struct host_note *note = &s->note[i];
    int bytes, class = MPI_SUCCESS;

    if (code == MPI_ERR_IN_STATUS)
        MPI_Error_class(status->MPI_ERROR, &class);
    if (class == MPI_ERR_TRUNCATE)
        return fail(ST_ECOMM,
                    "rank %d sent more than the %d bytes expected: the ranks disagree "
                    "about what to exchange (other configuration or program?)",
                    note->peer, note->expected);
    if (class != MPI_SUCCESS)
        return mpi_failed(status->MPI_ERROR, "exchange with", note->peer);
    if (note->expected < 0)
        return ST_OK;
    MPI_Get_count(status, MPI_BYTE, &bytes);
    if (bytes != note->expected)
        return fail(ST_ECOMM,
                    "rank %d sent %d bytes where %d were expected: the ranks disagree "
                    "about what to exchange (other configuration or program?)",
                    note->peer, bytes, note->expected);
    return ST_OK;
}

/* *found = how many messages ended just now. */
static enum status collect(struct host_set *s, int *found)
{
    int code = MPI_Testsome(s->n, s->request, found, s->done, s->status);

    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS)
        return mpi_failed(code, "exchange with", s->note[0].peer);
    for (int i = 0; i < *found; i++)
        TRY(arrived(s, s->done[i], &s->status[i], code));
    return ST_OK;
}

/* fail() with the ranks whose messages did not come, each once. */
static enum status missing(const struct host_set *s, double timeout)
{
    char list[256] = "";
    size_t used = 0;
    int last = -1, receives = 0;

    for (int i = 0; i < s->n; i++)
        receives += s->request[i] != MPI_REQUEST_NULL && s->note[i].expected >= 0;
    for (int i = 0; i < s->n && used + 16 < sizeof list; i++) {
        /* A send that is stuck tells less than a receive: its peer may be waiting as well. */
        if (s->request[i] == MPI_REQUEST_NULL || (receives && s->note[i].expected < 0) ||
            s->note[i].peer == last)
            continue;
        last = s->note[i].peer;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", used ? ", " : "", last);
    }
    return fail(ST_ECOMM,
                "rank %s did not come within %g s; see what it was doing, or raise "
                "timeout if it is only slow",
                list, timeout);
}

enum status host_set_wait(struct host_set *s, struct host_job *job, int heed, double timeout)
{
    struct host_poll poll = host_poll_start();
    int left = s->n, found, flagged = 0, late = 0;
    enum status st;

    /* What had left for this rank before the flag still counts: the flag ends the wait only when
     * a last look finds nothing new. So it is with the deadline: a process that stood still may
     * have been given what it waits for. */
    while (left > 0) {
        TRY(collect(s, &found));
        left -= found;
        if (found > 0 || left == 0)
            continue;
        st = turn(&poll, job, heed, timeout);
        if (st == ST_EPEER && ++flagged > 1)
            return host_peer_failed(job);
        if (st == ST_ECOMM && ++late > 1)
            return missing(s, timeout);
    }
    s->n = 0;
    return ST_OK;
}

void host_set_abandon(struct host_set *s)
{
    for (int i = 0; i < s->n; i++) {
        if (s->request[i] == MPI_REQUEST_NULL)
            continue;
        if (s->note[i].expected >= 0)
            MPI_Cancel(&s->request[i]);
        MPI_Request_free(&s->request[i]);
    }
    s->n = 0;
}

void host_set_free(struct host_set *s)
{
    host_set_abandon(s);
    free(s->request);
    free(s->status);
    free(s->note);
    free(s->done);
    *s = (struct host_set){0};
}

void host_keep(struct host_job *job, void *p)
{
    void **more;

    if (!p)
        return;
    if (job->kept_n == job->kept_room) {
        more = realloc(job->kept, (size_t)(job->kept_room * 2 + 8) * sizeof *more);
        if (!more)
            return; /* p leaks, which is what keeping it means */
        job->kept = more;
        job->kept_room = job->kept_room * 2 + 8;
    }
    job->kept[job->kept_n++] = p;
}
