/* Long work of one rank, for which the others wait longer than their deadline: signs of life. They
 * travel as the failure flag does, so that every wait hears of them. */
#include "common/backend/host_mpi.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

enum { SIGNS = 8 }; /* within the time limit */

/* Nobody waits with a limit, or there is nobody. */
static int needless(const struct host_job *job)
{
    return job->size == 1 || job->timeout <= 0;
}

/* Tells all ranks that this one lives, unless they have just heard it. Once a rank has failed they
 * need not be patient any more. */
static void tell(struct host_job *job)
{
    double now = host_clock();
    MPI_Request request;

    if (now - job->told < job->timeout / SIGNS || host_job_raised(job))
        return;
    job->told = now;
    for (int r = 0; r < job->size; r++)
        if (r != job->rank && MPI_Isend(&job->sign, sizeof job->sign, MPI_BYTE, r, HOST_TAG_FLAG,
                                        job->flag_comm, &request) == MPI_SUCCESS)
            MPI_Request_free(&request);
}

void host_alive(struct host *h)
{
    if (h && !needless(h->job))
        tell(h->job);
}

/* The thread that speaks while the work goes on. */
struct voice {
    struct host_job *job;
    pthread_t thread;
    pthread_mutex_t lock; /* held while the thread calls MPI */
    pthread_cond_t end;
    int working;
};

static void *speak(void *context)
{
    struct voice *v = context;
    double turn = v->job->timeout / SIGNS;
    struct timespec until;

    pthread_mutex_lock(&v->lock);
    while (v->working) {
        double next = host_clock() + turn;

        until.tv_sec = (time_t)next;
        until.tv_nsec = (long)(1e9 * (next - (double)until.tv_sec));
        if (pthread_cond_timedwait(&v->end, &v->lock, &until) == ETIMEDOUT && v->working)
            tell(v->job);
    }
    pthread_mutex_unlock(&v->lock);
    return NULL;
}

/* Signals are the main thread's. Returns nonzero when there is no thread. */
static int begin(struct voice *v)
{
    pthread_condattr_t clock;
    sigset_t all, before;
    int failed;

    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&v->end, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&v->lock, NULL);
    v->working = 1;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    failed = pthread_create(&v->thread, NULL, speak, v);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

static void end(struct voice *v, int started)
{
    pthread_mutex_lock(&v->lock);
    v->working = 0;
    pthread_cond_signal(&v->end);
    pthread_mutex_unlock(&v->lock);
    if (started)
        pthread_join(v->thread, NULL);
    pthread_mutex_destroy(&v->lock);
    pthread_cond_destroy(&v->end);
}

enum status host_work(struct host *h, enum status (*work)(void *), void *context)
{
    struct voice v = {.job = h ? h->job : NULL};
    enum status st;
    int failed;

    if (!h || needless(h->job))
        return work(context);
    tell(h->job);
    failed = begin(&v);
    st = failed ? fail(ST_EINTERNAL, "no thread to tell the other ranks that this one works: %s",
                       strerror(failed))
                : work(context);
    end(&v, !failed);
    return st;
}
