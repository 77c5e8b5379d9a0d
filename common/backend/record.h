/* A backend that computes nothing: it counts calls and floating-point operations, touches no
 * memory, and can be told to fail. The planner rehearses a step on it to learn how much memory a
 * run needs and what it sends, for any number of ranks; tests use it to make things fail.
 */
#ifndef COMMON_BACKEND_RECORD_H
#define COMMON_BACKEND_RECORD_H

#include "common/backend/comm.h"
#include "common/backend/device.h"

extern const struct backend record_backend;
extern const struct math_ops record_math_ops; /* its operations     */
extern const struct comm_ops record_comm_ops; /* its communicators  */

/* Opens a recording device; wide: DT_F32 or DT_F64. Close with device_close. */
enum status record_open(struct device **dev, enum dtype wide);

/* A communicator that pretends to be rank `rank` of `size`. Destroy with comm_destroy. */
enum status record_comm(struct comm **c, struct device *dev, int rank, int size,
                        struct ledger *ledger);

enum record_message {
    MESSAGE_ALL_REDUCE,
    MESSAGE_ALL_GATHER,
    MESSAGE_REDUCE_SCATTER,
    MESSAGE_BROADCAST
};

/* Who hears what a recording device and its communicators are given. Tensors point into memory that
 * is not there; in a rehearsal of a step (step_rehearse) their addresses differ as real ones would,
 * so that views of one buffer can be told from two buffers. Each may fail. */
struct record_listener {
    void *context;
    enum status (*products)(void *context, const struct gemm *g, int n);
    enum status (*gradients)(void *context, const struct weight_grad *w, int n,
                             const struct sample_plan *plan);
    /* dat NULL: forward */
    enum status (*attention)(void *context, const struct attention *at,
                             const struct attention *dat);
    /* Bytes that any other operation, a copy or a fill must read and write, each operand once. */
    enum status (*moved)(void *context, double bytes);
    /* A collective of more than one rank: t [n] are the tensors of an all-reduce or a broadcast, or
     * what comes out and what goes in (2). Sends and receives are not heard. */
    enum status (*message)(void *context, const struct comm *c, enum record_message kind,
                           const struct tensor *t, int n);
};

/* l, borrowed, hears all calls from now on; NULL: nobody does. */
void record_listen(struct device *dev, const struct record_listener *l);

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
