/* How messages of the control plane and of the ref backend travel: sets of non-blocking messages
 * and the one loop that waits for them. For host*.c and the backends only.
 *
 * A group has no MPI communicator of its own: making one blocks inside MPI, where neither the
 * failure flag nor a deadline is heeded. All groups use one communicator of the job; a tag that no
 * other group shares with any of its members tells them apart, and ranks are translated.
 */
#ifndef COMMON_BACKEND_HOST_MPI_H
#define COMMON_BACKEND_HOST_MPI_H

#include "common/backend/host.h"

#include <mpi.h>

enum {
    HOST_TAG_FLAG = 0,       /* on flag_comm */
    HOST_TAG_AGREE = 1,      /* what host_agree compares */
    HOST_TAG_TEXT = 2,       /* a message and a trace */
    HOST_TAG_END = 3,        /* the meeting before MPI_Finalize */
    HOST_TAG_FIRST = 4,      /* of groups */
    HOST_TEXT = 2048 + 4096, /* bytes of the record in status.c */
    HOST_CHUNK = 1 << 30     /* bytes of the longest MPI message: its counts are ints */
};

struct host_note {
    int peer;     /* rank of the job */
    int expected; /* bytes to receive; -1 for a send */
};

/* Messages in flight that are waited for together. Zero-initialised is empty. */
struct host_set {
    MPI_Request *request;
    MPI_Status *status;
    struct host_note *note;
    int *done;
    int n, room;
    size_t chunk; /* bytes; longer payloads are split; 0: HOST_CHUNK */
};

/* What two ranks tell each other in host_agree and when one raises the flag. */
struct host_word {
    int64_t round; /* of host_agree */
    int32_t status, next_tag, rank, spare;
};

/* What all groups of the job share. */
struct host_job {
    MPI_Comm comm, flag_comm;
    int rank, size, local_rank, local_size;
    int node;       /* the first rank of the job on this rank's node */
    double timeout; /* seconds; 0: none */
    int next_tag, tag_limit;

    int64_t round;     /* the number of the next host_agree */
    int64_t raised_in; /* the latest round in which a rank raised; raised means == round */
    struct host_word raised_by, flag_in;
    MPI_Request flag_request;
    double flag_looked;    /* when flag_request was last tested */
    struct host_word sign; /* of life, of round 0: what a rank at long work sends as a flag */
    double heard, told;    /* when one came from any rank; when this one sent its own */
    int epoch;             /* counts agreed failures: groups made before one are dead */
    int broken;            /* a rank did not come to host_agree: only host_end is left */
    int speaks;            /* and this rank has the message */

    struct host_set agree;
    struct host_word *word; /* [size + 1], the last is this rank's own */
    char *text;             /* [HOST_TEXT] */
    void **kept;            /* buffers of abandoned messages */
    int kept_n, kept_room;
};

struct host {
    struct host_job *job;
    int rank, size, tag, epoch;
    int *peer; /* [size] ranks of the job */
    struct host_set set;
    char *scratch;
    size_t scratch_size;
};

/* Seconds of a monotonic clock. */
double host_clock(void);

/* Room for n messages, so that no later call allocates. Errors: ST_ENOMEM. */
enum status host_set_reserve(struct host_set *s, int n);

/* Starts bytes to, or from, rank peer of h; data stays in use until host_set_wait is ST_OK.
 * Payloads longer than the chunk go as several messages: both sides need the same chunk.
 * Errors: ST_ENOMEM, ST_ECOMM. */
enum status host_set_send(struct host_set *s, struct host *h, const void *data, size_t bytes,
                          int peer);
enum status host_set_receive(struct host_set *s, struct host *h, void *data, size_t bytes,
                             int peer);

/* The same, to a rank of the job with a tag below HOST_TAG_FIRST. */
enum status host_set_post(struct host_set *s, struct host_job *job, void *data, size_t bytes,
                          int peer, int tag, int receive);

/* Waits until all messages of s have arrived or left; s is then empty. Errors: ST_EPEER when a
 * rank raised (heed nonzero), ST_ECOMM when MPI reports an error, when a message has not the
 * expected length, or after `timeout` seconds (0: never), with the ranks that did not come. After
 * an error call host_set_abandon. */
enum status host_set_wait(struct host_set *s, struct host_job *job, int heed, double timeout);

/* Forgets the messages of s: receives are cancelled, sends left to themselves. The caller hands
 * their buffers to host_keep. */
void host_set_abandon(struct host_set *s);

/* Frees what s holds; abandons what is in flight. */
void host_set_free(struct host_set *s);

/* Keeps p (from malloc; NULL is allowed) until MPI has ended, then frees it. */
void host_keep(struct host_job *job, void *p);

/* ST_OK when h can still carry messages; else ST_EPEER or ST_ECOMM with the reason. */
enum status host_usable(struct host *h);

/* host_raised for the job. */
int host_job_raised(struct host_job *job);

/* fail() with ST_EPEER, naming the rank that raised and why. */
enum status host_peer_failed(const struct host_job *job);

#endif
