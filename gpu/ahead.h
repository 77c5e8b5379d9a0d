/* How far the host may run ahead of the GPU: the count, without CUDA. device.h says why.
 *
 * What is put on the stream is counted. At least GPU_AHEAD_EVERY things apart an event is recorded,
 * a mark; once more than GPU_AHEAD_MOST things may be outstanding the oldest mark must be waited
 * for. Marks take the slots of a ring in turn.
 */
#ifndef GPU_AHEAD_H
#define GPU_AHEAD_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Marks that are not reached lie at least GPU_AHEAD_EVERY apart within GPU_AHEAD_MOST things, and
 * one may stand behind those. */
enum {
    GPU_AHEAD_EVERY = 64,
    GPU_AHEAD_MOST = 768,
    GPU_AHEAD_SLOTS = GPU_AHEAD_MOST / GPU_AHEAD_EVERY + 1
};

/* Zeroed: nothing was put yet. */
struct gpu_ahead {
    int64_t put, done;           /* things put so far; those before the last mark reached */
    int64_t at[GPU_AHEAD_SLOTS]; /* by slot: what had been put when it was marked */
    int oldest, marks;           /* slot of the oldest mark not reached; how many there are */
};

/* Counts n > 0 things that were put on the stream. Returns the slot whose event must be recorded
 * now, or -1. Only while gpu_ahead_far says -1. */
int gpu_ahead_put(struct gpu_ahead *a, int n);

/* The slot whose event must be waited for before anything more is put, or -1. */
int gpu_ahead_far(const struct gpu_ahead *a);

/* The oldest mark was reached: the GPU has done all that was put before it. */
void gpu_ahead_reached(struct gpu_ahead *a);

#ifdef __cplusplus
}
#endif
#endif
