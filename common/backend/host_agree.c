/* One status and one message for the whole job. */
#include "common/backend/host_mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status post(struct host_job *job)
{
    for (int r = 0; r < job->size; r++)
        if (r != job->rank)
            TRY(host_set_post(&job->agree, job, &job->word[r], sizeof *job->word, r, HOST_TAG_AGREE,
                              1));
    for (int r = 0; r < job->size; r++)
        if (r != job->rank)
            TRY(host_set_post(&job->agree, job, &job->word[job->size], sizeof *job->word, r,
                              HOST_TAG_AGREE, 0));
    return ST_OK;
}

/* Every rank's word in job->word[rank]; a word that did not come has round 0. */
static enum status exchange(struct host_job *job, enum status st)
{
    memset(job->word, 0, (size_t)job->size * sizeof *job->word);
    job->word[job->size] = (struct host_word){
        .round = job->round, .status = st, .next_tag = job->next_tag, .rank = job->rank};
    job->word[job->rank] = job->word[job->size];
    TRY(post(job));
    return host_set_wait(&job->agree, job, 0, job->timeout);
}

/* The rank that speaks for the job: the lowest of those present with a cause of its own, else the
 * lowest with ST_EPEER, else, when `anyone`, the lowest; -1 for none. */
static int speaker(const struct host_job *job, int anyone)
{
    int peer = -1, present = -1;

    for (int r = 0; r < job->size; r++) {
        if (job->word[r].round == 0)
            continue;
        if (job->word[r].status != ST_OK && job->word[r].status != ST_EPEER)
            return r;
        if (peer < 0 && job->word[r].status == ST_EPEER)
            peer = r;
        if (present < 0)
            present = r;
    }
    return peer >= 0 ? peer : anyone ? present : -1;
}

/* Adds one line "file:line: expression: text" of another rank's trace to this rank's. */
static void add_trace(enum status st, int rank, char *line)
{
    char *colon = strchr(line, ':'), *expr, *end, file[256];
    long number = colon ? strtol(colon + 1, &expr, 10) : 0;

    if (!colon || expr[0] != ':' || expr[1] != ' ')
        return;
    *colon = '\0';
    snprintf(file, sizeof file, "[rank %d] %s", rank, line);
    expr += 2;
    for (end = strstr(expr, ": "); end && strstr(end + 2, ": "); end = strstr(end + 2, ": "))
        ;
    if (end)
        *end = '\0'; /* status_trace adds the text of the status again */
    status_trace(st, file, (int)number, expr);
}

/* Replaces the record by the one in job->text: message, zero, trace. */
static void record(struct host_job *job, enum status st, int rank)
{
    char *message = job->text, *trace = message + strlen(message) + 1, *line, *rest = NULL;

    status_clear();
    fail(st, "rank %d: %s", rank, *message ? message : status_text(st));
    for (line = strtok_r(trace, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        add_trace(st, rank, line);
}

/* Moves the record of rank `from` to rank 0. */
static enum status move_record(struct host_job *job, enum status st, int from)
{
    size_t message, trace;

    if (from != 0 && job->rank == from) {
        memset(job->text, 0, HOST_TEXT);
        message = strnlen(status_message(), 2047);
        trace = strnlen(status_backtrace(), HOST_TEXT - message - 2);
        memcpy(job->text, status_message(), message);
        memcpy(job->text + message + 1, status_backtrace(), trace);
        TRY(host_set_post(&job->agree, job, job->text, HOST_TEXT, 0, HOST_TAG_TEXT, 0));
    }
    if (from != 0 && job->rank == 0)
        TRY(host_set_post(&job->agree, job, job->text, HOST_TEXT, from, HOST_TAG_TEXT, 1));
    TRY(host_set_wait(&job->agree, job, 0, job->timeout));
    if (job->rank != 0)
        status_clear();
    else if (from != 0)
        record(job, st, from);
    return ST_OK;
}

/* fail() with the ranks whose word did not come. */
static void name_absent(const struct host_job *job, enum status st)
{
    char list[256] = "";
    size_t used = 0;

    for (int r = 0; r < job->size && used + 16 < sizeof list; r++)
        if (job->word[r].round == 0)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", used ? ", " : "", r);
    if (used == 0)
        return; /* the exchange failed otherwise and has said how */
    status_clear();
    fail(st,
         "rank %s did not come within %g s when the ranks compared how they fared; see what "
         "it was doing, or raise timeout if it is only slow",
         list, job->timeout);
}

/* A rank did not come: that is now the record of one rank, unless it knows an earlier cause. A rank
 * whose failure was told by another one (`told`), which may be gone since, adds nothing. */
static enum status not_all(struct host_job *job, enum status st, enum status own, int told)
{
    int known = own != ST_OK && own != ST_EPEER;

    job->broken = 1;
    job->speaks = !told && speaker(job, 1) == job->rank;
    if (!job->speaks)
        status_clear();
    else if (!known)
        name_absent(job, st);
    host_set_abandon(&job->agree);
    host_keep(job, job->word);
    host_keep(job, job->text);
    job->word = NULL;
    job->text = NULL;
    return known ? own : st;
}

/* The failure is settled: a new round without a flag, a fresh tag for the job. */
static enum status settle(struct host *h, enum status own)
{
    struct host_job *job = h->job;
    int from = speaker(job, 0), tag = 0;
    enum status st;

    job->round++;
    if (from < 0)
        return ST_OK;
    st = (enum status)job->word[from].status;
    for (int r = 0; r < job->size; r++)
        tag = job->word[r].next_tag > tag ? job->word[r].next_tag : tag;
    if (move_record(job, st, from) != ST_OK)
        return not_all(job, st, own, 0);
    job->epoch++;
    job->next_tag = tag + 1;
    h->tag = tag;
    h->epoch = job->epoch;
    return st;
}

enum status host_agree(struct host *job, enum status st)
{
    struct host_job *shared = job->job;
    int told = st != ST_OK && !status_message()[0]; /* settled before: rank 0 had the record */
    enum status met;

    FAIL_IF(job->size != shared->size, ST_EINTERNAL);
    if (shared->broken && st != ST_OK && !shared->speaks)
        return st; /* another rank tells it */
    if (shared->broken)
        return host_usable(job);
    if (st != ST_OK)
        host_raise(job, st);
    met = exchange(shared, st);
    if (met != ST_OK)
        return not_all(shared, met, st, told);
    return settle(job, st);
}
