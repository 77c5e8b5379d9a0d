/* Collectives of the reference backend: Open MPI's point-to-point messages, a fixed order. */
#ifndef REF_COMM_H
#define REF_COMM_H

#include "common/backend/backend.h"

/* One table for both builds of ref (float and double): nothing in it depends on the element type
 * of the arithmetic. */
extern const struct comm_ops ref_comm_ops;

/* How often c had to take more memory since it was made; reserve does not count. A training step
 * leaves it unchanged. */
int64_t ref_comm_grown(const struct comm *c);

/* Splits messages into pieces of at most bytes (HOST_CHUNK by default): for tests, which cannot
 * send 2^31 bytes. The same on all ranks, with nothing in flight. */
void ref_comm_set_chunk(struct comm *c, size_t bytes);

#endif
