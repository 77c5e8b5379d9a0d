#include "common/backend/backend.h"

#include <stddef.h>

/* How many slots slots.def names, so that none in backend.h can be missing there. */
enum {
#define DEVICE_SLOT(slot) DEVICE_##slot,
#define MATH_SLOT(slot)
#define COMM_SLOT(slot)
#include "common/backend/slots.def"
    DEVICE_SLOTS
};

enum {
#define DEVICE_SLOT(slot)
#define MATH_SLOT(slot) MATH_##slot,
#define COMM_SLOT(slot)
#include "common/backend/slots.def"
    MATH_SLOTS
};

enum {
#define DEVICE_SLOT(slot)
#define MATH_SLOT(slot)
#define COMM_SLOT(slot) COMM_##slot,
#include "common/backend/slots.def"
    COMM_SLOTS
};

_Static_assert(sizeof(struct device_ops) == DEVICE_SLOTS * sizeof(void (*)(void)), "slots.def");
_Static_assert(sizeof(struct math_ops) == MATH_SLOTS * sizeof(void (*)(void)), "slots.def");
_Static_assert(sizeof(struct comm_ops) == COMM_SLOTS * sizeof(void (*)(void)), "slots.def");

const char *backend_missing(const struct backend *be)
{
    if (!be->device)
        return "device";
    if (!be->math)
        return "math";
    if (!be->comm)
        return "comm";
#define DEVICE_SLOT(slot)  \
    if (!be->device->slot) \
        return "device." #slot;
#define MATH_SLOT(slot)  \
    if (!be->math->slot) \
        return "math." #slot;
#define COMM_SLOT(slot)  \
    if (!be->comm->slot) \
        return "comm." #slot;
#include "common/backend/slots.def"
    return NULL;
}
