/* Messages between neighbours of a pipeline: the stream forward, its gradient back.
 *
 * Every edge has a communicator of two ranks for each direction, so that a stage that waits for
 * one message never waits for another. Under BTP each TP rank sends its own shard [M, d / p] to
 * the rank with the same number on the next stage. A message is copied to a buffer of its edge and
 * leaves at once; the buffer is taken again when the message has arrived, which is the order that
 * schedule_play.h plays.
 */
#ifndef COMMON_PARALLEL_PIPE_H
#define COMMON_PARALLEL_PIPE_H

#include "common/backend/comm.h"
#include "common/base/arena.h"

enum pipe_direction { PIPE_FORWARD, PIPE_BACKWARD, PIPE_DIRECTIONS };

/* Communicators of this rank's edges, borrowed; of the two ranks, 0 stands on the earlier stage.
 * NULL where there is no neighbour. */
struct pipe_edges {
    struct comm *next[PIPE_DIRECTIONS], *prev[PIPE_DIRECTIONS];
};

struct pipe {
    struct pipe_edges on;
    void *buffer[PIPE_DIRECTIONS]; /* of what is being sent */
};

/* Buffers of `bytes` each from `memory`, for the directions in which this rank sends. */
enum status pipe_open(struct pipe *p, const struct pipe_edges *on, struct arena *memory,
                      size_t bytes);

/* Sends packed x on: forward to the next stage, or its gradient back to the one before. Returns
 * when x may be written again; waits for the message before. */
enum status pipe_send(struct pipe *p, struct device *dev, const struct tensor *x,
                      enum pipe_direction direction);

/* Fills packed x from the stage before (forward) or the next (backward). */
enum status pipe_receive(struct pipe *p, struct tensor *x, enum pipe_direction direction);

/* Waits until everything sent has arrived: at the end of a list of instructions. */
enum status pipe_flush(struct pipe *p);

#endif
