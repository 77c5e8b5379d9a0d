#include "common/base/arena.h"

#include <stdint.h>

struct arena arena_over(const char *name, void *base, size_t size)
{
    return (struct arena){.base = base, .size = size, .name = name};
}

struct arena arena_plan(const char *name)
{
    return arena_plan_in(name, ARENA_ALONE);
}

struct arena arena_plan_in(const char *name, enum arena_space space)
{
    return (struct arena){.base = (char *)((uintptr_t)space << 44),
                          .size = SIZE_MAX / 2,
                          .planning = 1,
                          .name = name};
}

enum status arena_take(struct arena *a, void **p, size_t bytes)
{
    size_t want = (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;

    if (want < bytes || want > a->size - a->used)
        return fail(ST_ENOMEM, "arena '%s' holds %zu bytes, %zu in use, %zu more asked for",
                    a->name, a->size, a->used, bytes);
    /* A planning arena has no memory behind it: the address only has to be unlike NULL. */
    *p = a->planning ? (void *)((uintptr_t)a->base + ARENA_ALIGN + a->used) : a->base + a->used;
    a->used += want;
    if (a->used > a->peak)
        a->peak = a->used;
    return ST_OK;
}

size_t arena_mark(const struct arena *a)
{
    return a->used;
}

void arena_release(struct arena *a, size_t mark)
{
    if (!a->keeps)
        a->used = mark;
}
