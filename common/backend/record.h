/* A backend that computes nothing: it counts calls and floating-point operations, touches no
 * memory, and can be told to fail. The planner rehearses a step on it to learn how much memory a
 * run needs and what it sends, for any number of ranks; tests use it to make things fail.
 */
#ifndef COMMON_BACKEND_RECORD_H
#define COMMON_BACKEND_RECORD_H

#include "common/backend/comm.h"
#include "common/backend/device.h"

extern const struct backend record_backend;
extern const struct comm_ops record_comm_ops; /* its communicators */

/* Opens a recording device; wide: DT_F32 or DT_F64. Close with device_close. */
enum status record_open(struct device **dev, enum dtype wide);

/* A communicator that pretends to be rank `rank` of `size`. Destroy with comm_destroy. */
enum status record_comm(struct comm **c, struct device *dev, int rank, int size,
                        struct ledger *ledger);

/* Floating-point operations asked for so far: 2 M N K a product, attention by half (causal). */
double record_flops(const struct device *dev);

/* Calls of math slots so far. */
int64_t record_calls(const struct device *dev);

/* Most bytes that the operands of one product need once they are as wide as the device computes:
 * what the ref backend takes beside the arenas under bf16. */
size_t record_widened(const struct device *dev);

/* Most bytes of payload that were under way at once on a recording communicator. */
size_t record_comm_peak(const struct comm *c);

/* The math call number `call` from now (1 = the next) returns ST_EDEVICE; 0: none fails. */
void record_fail(struct device *dev, int64_t call);

#endif
