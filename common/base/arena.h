/* A bump allocator over memory that somebody else owns (host memory or a device's).
 *
 * arena_mark/arena_release give stack discipline: a function that takes scratch marks on entry
 * and releases on exit. A planning arena (`planning` set) hands out addresses that must
 * not be touched and only counts: the same code that will carve memory tells how much it needs.
 */
#ifndef COMMON_BASE_ARENA_H
#define COMMON_BASE_ARENA_H

#include "common/base/status.h"

#include <stddef.h>

enum { ARENA_ALIGN = 256 }; /* bytes; a GPU's widest access and a cache line both divide it */

struct arena {
    char *base;
    size_t size, used, peak; /* bytes */
    int planning;
    int keeps;        /* arena_release gives nothing back: what is taken lives on */
    const char *name; /* for messages: "weights", "scratch" */
};

/* Addresses that stand for no memory: of each arena of a step that is in use with the others. */
enum arena_space {
    ARENA_ALONE, /* an arena beside which nothing else is planned; activations */
    ARENA_STATE,
    ARENA_GRADIENTS,
    ARENA_SCRATCH,
    ARENA_BATCH,
    ARENA_HALF_0, /* scratch of half-batches */
    ARENA_HALF_1
};

/* An arena over [base, base + size), and one that only counts. Addresses of planning arenas of
 * different spaces do not meet below 2^44 bytes; arena_plan: ARENA_ALONE. */
struct arena arena_over(const char *name, void *base, size_t size);
struct arena arena_plan(const char *name);
struct arena arena_plan_in(const char *name, enum arena_space space);

/* Carves bytes, aligned to ARENA_ALIGN, into *p. Errors: ST_ENOMEM when the plan was too small. */
enum status arena_take(struct arena *a, void **p, size_t bytes);

/* Where the arena stands; and back to there. */
size_t arena_mark(const struct arena *a);
void arena_release(struct arena *a, size_t mark);

#endif
