#include "gpu/ahead.h"

int gpu_ahead_put(struct gpu_ahead *a, int n)
{
    int last = (a->oldest + a->marks + GPU_AHEAD_SLOTS - 1) % GPU_AHEAD_SLOTS;
    int64_t marked = a->marks ? a->at[last] : a->done;
    int slot = (last + 1) % GPU_AHEAD_SLOTS;

    a->put += n;
    if (a->put - marked < GPU_AHEAD_EVERY)
        return -1;
    a->at[slot] = a->put;
    a->marks++;
    return slot;
}

int gpu_ahead_far(const struct gpu_ahead *a)
{
    return a->put - a->done > GPU_AHEAD_MOST ? a->oldest : -1;
}

void gpu_ahead_reached(struct gpu_ahead *a)
{
    a->done = a->at[a->oldest];
    a->oldest = (a->oldest + 1) % GPU_AHEAD_SLOTS;
    a->marks--;
}
