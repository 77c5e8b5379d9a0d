#include "common/backend/host_mpi.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Seconds between two looks at the network for the failure flag. */
static const double flag_interval = 2e-4;

/* Start and groups ------------------------------------------------------------------------- */

static enum status group_new(struct host **h, struct host_job *job, int size)
{
    struct host *g = calloc(1, sizeof *g);
    int *peer = malloc((size_t)size * sizeof *peer);

    if (!g || !peer) {
        free(g);
        free(peer);
        return fail(ST_ENOMEM, "no host memory for a group of %d ranks", size);
    }
    *g = (struct host){.job = job, .size = size, .peer = peer, .epoch = job->epoch};
    *h = g;
    return ST_OK;
}

void host_free(struct host *sub)
{
    if (!sub)
        return;
    host_set_free(&sub->set);
    free(sub->scratch);
    free(sub->peer);
    free(sub);
}

static void job_free(struct host_job *job)
{
    for (int i = 0; i < job->kept_n; i++)
        free(job->kept[i]);
    free(job->kept);
    host_set_free(&job->agree);
    free(job->word);
    free(job->text);
    free(job);
}

/* All MPI calls of the set-up, which may block: every process is there, or mpirun ends the job. */
static int set_up_mpi(struct host_job *job, int *argc, char ***argv, int *level)
{
    MPI_Comm node;
    void *limit;
    int found, code;

    code = MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, level);
    if (code != MPI_SUCCESS)
        return code;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &job->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &job->size);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &found);
    job->tag_limit = found ? *(int *)limit : 32767;
    if ((code = MPI_Comm_dup(MPI_COMM_WORLD, &job->comm)) != MPI_SUCCESS ||
        (code = MPI_Comm_dup(MPI_COMM_WORLD, &job->flag_comm)) != MPI_SUCCESS ||
        (code = MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL,
                                    &node)) != MPI_SUCCESS)
        return code;
    MPI_Comm_rank(node, &job->local_rank);
    MPI_Comm_size(node, &job->local_size);
    job->node = job->rank;
    code = MPI_Bcast(&job->node, 1, MPI_INT, 0, node);
    MPI_Comm_free(&node);
    return code;
}

/* Posts the receive that hears of a failure anywhere. */
static int watch_flag(struct host_job *job)
{
    return MPI_Irecv(&job->flag_in, sizeof job->flag_in, MPI_BYTE, MPI_ANY_SOURCE, HOST_TAG_FLAG,
                     job->flag_comm, &job->flag_request);
}

static enum status job_start(struct host_job *job, int *argc, char ***argv)
{
    int level = MPI_THREAD_SINGLE, code = set_up_mpi(job, argc, argv, &level);

    if (code != MPI_SUCCESS)
        return fail(ST_ECOMM, "MPI does not start (code %d); try `mpirun -n 1 true`", code);
    if (level < MPI_THREAD_SERIALIZED)
        return fail(ST_ECOMM,
                    "MPI offers thread level %d, narrows needs MPI_THREAD_SERIALIZED (%d)", level,
                    MPI_THREAD_SERIALIZED);
    job->word = calloc((size_t)job->size + 1, sizeof *job->word);
    job->text = malloc(HOST_TEXT);
    if (!job->word || !job->text)
        return fail(ST_ENOMEM, "no host memory for the control data of %d ranks", job->size);
    job->next_tag = HOST_TAG_FIRST;
    job->round = 1;
    job->sign.rank = job->rank;
    return host_set_reserve(&job->agree, 2 * job->size);
}

static enum status start_all(struct host **h, struct host_job *shared, int *argc, char ***argv)
{
    TRY(job_start(shared, argc, argv));
    TRY(group_new(h, shared, shared->size));
    (*h)->rank = shared->rank;
    (*h)->tag = shared->next_tag++;
    for (int r = 0; r < shared->size; r++)
        (*h)->peer[r] = r;
    if (watch_flag(shared) != MPI_SUCCESS)
        return fail(ST_ECOMM, "MPI does not receive; try `mpirun -n 1 true`");
    return ST_OK;
}

enum status host_start(struct host **job, int *argc, char ***argv)
{
    struct host_job *shared = calloc(1, sizeof *shared);
    enum status st;

    *job = NULL;
    if (!shared)
        return fail(ST_ENOMEM, "no host memory for the control data");
    st = start_all(job, shared, argc, argv);
    if (st != ST_OK) {
        host_free(*job);
        job_free(shared);
    }
    return st;
}

/* Nonzero when all ranks came to the end. A rank that ends well waits for the others as long as
 * any wait may take; one that failed gives them half a minute when no limit was set. */
static int all_ended(struct host_job *job, enum status st)
{
    double limit = job->timeout > 0 || st == ST_OK ? job->timeout : 30;
    enum status met = ST_OK;

    for (int r = 0; r < job->size && met == ST_OK; r++)
        if (r != job->rank)
            met = host_set_post(&job->agree, job, &job->word[r], 1, r, HOST_TAG_END, 1);
    for (int r = 0; r < job->size && met == ST_OK; r++)
        if (r != job->rank)
            met = host_set_post(&job->agree, job, &job->word[job->size], 1, r, HOST_TAG_END, 0);
    return met == ST_OK && host_set_wait(&job->agree, job, 0, limit) == ST_OK;
}

void host_end(struct host *job, enum status st)
{
    struct host_job *shared = job->job;

    if (shared->broken || !all_ended(shared, st)) {
        /* Whoever aborts first ends all: the rank that has the message gets time to print it. */
        if (shared->broken && !shared->speaks)
            nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
        /* The one MPI_Abort outside cli/main.c: MPI_Finalize waits for ranks that are gone, and
         * leaving without it makes mpirun report its own error in place of our exit status. */
        fflush(NULL);
        MPI_Abort(MPI_COMM_WORLD, status_exit_code(st == ST_OK ? ST_ECOMM : st));
        /* Under mpirun --enable-recovery it may return. */
        _Exit(status_exit_code(st == ST_OK ? ST_ECOMM : st));
    }
    MPI_Cancel(&shared->flag_request);
    MPI_Request_free(&shared->flag_request);
    host_set_free(&shared->agree);
    host_free(job);
    MPI_Comm_free(&shared->comm);
    MPI_Comm_free(&shared->flag_comm);
    MPI_Finalize();
    job_free(shared);
}

int host_rank(const struct host *h)
{
    return h->rank;
}

int host_size(const struct host *h)
{
    return h->size;
}

int host_local_rank(const struct host *job)
{
    return job->job->local_rank;
}

int host_node(const struct host *job)
{
    return job->job->node;
}

int host_local_size(const struct host *job)
{
    return job->job->local_size;
}

void host_set_timeout(struct host *h, double seconds)
{
    h->job->timeout = seconds;
}

double host_timeout(const struct host *h)
{
    return h->job->timeout;
}

struct member {
    int32_t colour, key, rank, next_tag;
};

static int by_key(const void *a, const void *b)
{
    const struct member *x = a, *y = b;

    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* Moves the members of a colour to the front, in order; returns how many there are. */
static int choose(struct member *m, int n, int colour)
{
    int chosen = 0;

    for (int i = 0; i < n; i++)
        if (m[i].colour == colour)
            m[chosen++] = m[i];
    qsort(m, (size_t)chosen, sizeof *m, by_key);
    return chosen;
}

static enum status split(struct host **sub, struct host *h, struct member *all, struct member me)
{
    int tag = 0, n;

    TRY(host_gather(h, all, &me, sizeof me));
    for (int i = 0; i < h->size; i++)
        tag = all[i].next_tag > tag ? all[i].next_tag : tag;
    if (tag >= h->job->tag_limit)
        return fail(ST_ECOMM, "this MPI tells only %d groups of ranks apart", h->job->tag_limit);
    h->job->next_tag = tag + 1;
    if (me.colour < 0)
        return ST_OK;
    n = choose(all, h->size, me.colour);
    TRY(group_new(sub, h->job, n));
    (*sub)->tag = tag;
    for (int i = 0; i < n; i++) {
        (*sub)->peer[i] = h->peer[all[i].rank];
        if (all[i].rank == h->rank)
            (*sub)->rank = i;
    }
    return ST_OK;
}

/* The tag of a new group is the highest next tag of all members of h, and all of them go on from
 * there: two groups that share two ranks have different tags. */
enum status host_split(struct host **sub, struct host *h, int colour, int key)
{
    struct member *all = malloc((size_t)h->size * sizeof *all);
    enum status st;

    *sub = NULL;
    if (!all)
        return fail(ST_ENOMEM, "no host memory to split a group of %d ranks", h->size);
    st = split(sub, h, all,
               (struct member){
                   .colour = colour, .key = key, .rank = h->rank, .next_tag = h->job->next_tag});
    free(all);
    return st;
}

/* The failure flag ------------------------------------------------------------------------- */

void host_raise(struct host *h, enum status st)
{
    struct host_job *job = h->job;
    struct host_word *word;
    MPI_Request request;

    if (job->raised_in >= job->round || job->broken)
        return;
    job->raised_by = (struct host_word){.round = job->round, .status = st, .rank = job->rank};
    job->raised_in = job->round;
    word = malloc(sizeof *word);
    if (!word)
        return; /* the others learn it in host_agree */
    *word = job->raised_by;
    for (int r = 0; r < job->size; r++)
        if (r != job->rank && MPI_Isend(word, sizeof *word, MPI_BYTE, r, HOST_TAG_FLAG,
                                        job->flag_comm, &request) == MPI_SUCCESS)
            MPI_Request_free(&request);
    host_keep(job, word);
}

int host_job_raised(struct host_job *job)
{
    double now;
    int flag = 1;

    if (job->raised_in >= job->round)
        return 1;
    now = host_clock();
    if (now - job->flag_looked < flag_interval)
        return 0;
    job->flag_looked = now;
    while (job->raised_in < job->round) {
        if (MPI_Test(&job->flag_request, &flag, MPI_STATUS_IGNORE) != MPI_SUCCESS || !flag)
            return 0;
        if (job->flag_in.round == job->sign.round)
            job->heard = now;
        /* A flag of an earlier round has been dealt with; one of the next is kept for then. */
        if (job->flag_in.round > job->raised_in) {
            job->raised_in = job->flag_in.round;
            job->raised_by = job->flag_in;
        }
        if (watch_flag(job) != MPI_SUCCESS)
            return 0; /* heard of in host_agree at the latest */
    }
    return 1;
}

int host_raised(struct host *h)
{
    return host_job_raised(h->job);
}

enum status host_usable(struct host *h)
{
    struct host_job *job = h->job;

    if (job->raised_in >= job->round)
        return host_peer_failed(job);
    if (job->broken)
        return fail(ST_ECOMM, "a rank is gone: the ranks of this job can no longer meet");
    if (h->epoch != job->epoch)
        return fail(ST_EPEER, "this group of ranks was made before a rank failed");
    return ST_OK;
}
