/* The control plane: what the ranks of a job agree on from host to host (MPI on both backends).
 *
 * Nothing here carries tensors. A rank that fails raises the job's failure flag (host_raise), on
 * which every wait of every communicator returns ST_EPEER within seconds; all ranks then meet in
 * host_agree() and leave with one status and one message.
 */
#ifndef COMMON_BACKEND_HOST_H
#define COMMON_BACKEND_HOST_H

#include "common/base/status.h"

#include <stddef.h>
#include <stdint.h>

struct host; /* a group of ranks */

/* Starts MPI; the whole job becomes *job. Works without mpirun (one rank). Errors: ST_ECOMM. */
enum status host_start(struct host **job, int *argc, char ***argv);

/* Ends MPI. When ranks can no longer meet (a peer is gone), ends the process group instead. */
void host_end(struct host *job, enum status st);

int host_rank(const struct host *h);
int host_size(const struct host *h);

/* Rank and number of ranks among those of this job on the same node. */
int host_local_rank(const struct host *job);
int host_local_size(const struct host *job);

/* The ranks of h with one colour form a group, ordered by key. Collective over h. */
enum status host_split(struct host **sub, struct host *h, int colour, int key);
void host_free(struct host *sub);

/* Seconds a wait may take before it fails with ST_ECOMM (0: no limit). Applies to the job and to
 * all its groups and communicators. */
void host_set_timeout(struct host *h, double seconds);

/* Tells all ranks of the job that this one has failed; does not wait for them. */
void host_raise(struct host *h, enum status st);

/* Nonzero once a rank has raised; cheap, polled by waits. */
int host_raised(struct host *h);

/* All ranks return the same status: that of the lowest rank whose st is not ST_OK (ST_EPEER counts
 * only when nothing else does), with that rank's message and trace recorded on rank 0 and
 * nothing on the others. Collective over the job. Clears the flag. */
enum status host_agree(struct host *job, enum status st);

/* Small collectives over h; all ranks get the same result.
 * gather: each rank's `bytes` bytes land in out[rank]. */
enum status host_broadcast(struct host *h, void *data, size_t bytes, int root);
enum status host_gather(struct host *h, void *out, const void *in, size_t bytes);
enum status host_sum_i64(struct host *h, int64_t *value, int n);
enum status host_max_f64(struct host *h, double *value, int n);
enum status host_barrier(struct host *h);

#endif
