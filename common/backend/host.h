/* The control plane: what the ranks of a job agree on from host to host (MPI on both backends).
 *
 * Nothing here carries tensors. A rank that fails raises the job's failure flag (host_raise, or
 * host_agree with its status), on which every wait of every communicator returns ST_EPEER; all
 * ranks then meet in host_agree() and leave with one status and one message.
 *
 * No call of this file blocks inside MPI: each polls its messages, the flag and the deadline. A
 * wait that ends early leaves its messages behind; their buffers stay alive until host_end, and a
 * group whose wait was cut short never receives again (the job does, after host_agree).
 */
#ifndef COMMON_BACKEND_HOST_H
#define COMMON_BACKEND_HOST_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct host; /* a group of ranks */

/* Starts MPI; the whole job becomes *job. Works without mpirun (one rank). No time limit is set
 * (host_set_timeout). Errors: ST_ECOMM. */
enum status host_start(struct host **job, int *argc, char ***argv);

/* Ends MPI and frees job; st is what the job ends with. Every rank that failed has been through
 * host_agree before. When the ranks can no longer meet (a peer is gone), ends the processes of the
 * job instead and does not return: the program's exit status is then that of st. */
void host_end(struct host *job, enum status st);

/* This rank within h, and the number of ranks in h. Local. */
int host_rank(const struct host *h);
int host_size(const struct host *h);

/* Rank and number of ranks among those of this job on the same node. */
int host_local_rank(const struct host *job);
int host_local_size(const struct host *job);

/* The first rank of the job on this rank's node: a number for the node. */
int host_node(const struct host *job);

/* The ranks of h with one colour form a group, ordered by key, then by rank in h. A negative
 * colour joins none: *sub is NULL. The caller frees *sub. Collective over h. */
enum status host_split(struct host **sub, struct host *h, int colour, int key);
void host_free(struct host *sub);

/* Seconds a wait may take before it fails with ST_ECOMM (0: no limit). Applies to the job and to
 * all its groups and communicators. */
void host_set_timeout(struct host *h, double seconds);
double host_timeout(const struct host *h);

/* Tells all ranks of the job that this one has failed with st; does not wait for them. Only the
 * first of the job before the next host_agree counts. */
void host_raise(struct host *h, enum status st);

/* Nonzero once a rank has raised; cheap (looks at the network once in 0.2 ms), polled by waits. */
int host_raised(struct host *h);

/* Work of this rank that may outlast the time limit while others wait for it: a text to read,
 * weights to write, a checkpoint to load. Returns what work(context) returns. Meanwhile a thread
 * tells the other ranks that this one lives, and their time counts from what they heard last; a
 * process that is stopped or gone says nothing. work must not call anything of this file, nor MPI.
 * h: any group of the job; NULL: nobody waits. Errors: ST_EINTERNAL when there is no thread. */
enum status host_work(struct host *h, enum status (*work)(void *), void *context);

/* The same from within work that does talk to other ranks, as often as it likes. */
void host_alive(struct host *h);

/* A wait for something that is not a message here (a device, a file):
 *     struct host_poll poll = host_poll_start();
 *     while (!ready())
 *         TRY(host_poll(&poll, h, "all-reduce"));
 */
struct host_poll {
    double start; /* seconds; set at the first call that reads the clock */
    long turns;
};

/* A wait that begins now. Local. */
struct host_poll host_poll_start(void);

/* One turn of the wait: yields the processor (after a short spin) and returns ST_OK to go on.
 * Errors: ST_EPEER when a rank raised, ST_ECOMM at the deadline; what: the thing waited for. */
enum status host_poll(struct host_poll *p, struct host *h, const char *what);

/* All ranks return the same status: that of the lowest rank whose st is neither ST_OK nor
 * ST_EPEER, else ST_EPEER when a rank has it, else ST_OK. The message and trace of that rank
 * stand in the record of rank 0 (led by "rank N: " unless N is 0) and nothing in the others: who
 * has a message prints it. A st that is not ST_OK raises the flag first; it is clear afterwards.
 * Collective over the job; one small message from each rank to each.
 * Errors: when a rank does not come before the deadline, ST_ECOMM or an earlier failure, which
 * ranks may then see differently; the message stands on one of those present, and host_end must
 * follow. */
enum status host_agree(struct host *job, enum status st);

/* As host_agree, for failures after which the job goes on: nothing is raised, and groups and
 * communicators stay usable, so that every rank must come here by itself. All ranks return the
 * status of the lowest one that failed; its message stands in the record of rank 0. Collective
 * over the job. */
enum status host_settle(struct host *job, enum status st);

/* Small collectives over h; all ranks get the same result, no input overlaps an output.
 * gather: each rank's `bytes` bytes land in out[rank]. max: a NaN anywhere gives NaN. */
enum status host_broadcast(struct host *h, void *data, size_t bytes, int root);
enum status host_gather(struct host *h, void *out, const void *in, size_t bytes);
enum status host_sum_i64(struct host *h, int64_t *value, int n);
enum status host_max_f64(struct host *h, double *value, int n);
enum status host_barrier(struct host *h);

#ifdef __cplusplus
}
#endif
#endif
