/* What the parts of the recording backend share. */
#ifndef COMMON_BACKEND_RECORD_STATE_H
#define COMMON_BACKEND_RECORD_STATE_H

#include "common/backend/record.h"

struct record_device {
    struct device base;
    double flops;
    int64_t calls, fail_at;
    size_t widened;
    const struct record_listener *listener; /* NULL: nobody */
};

/* dev as what it is. */
static inline struct record_device *record_state(struct device *dev)
{
    return (struct record_device *)dev;
}

/* Tells the listener of bytes that are moved. */
static inline enum status record_moved(struct device *dev, double bytes)
{
    const struct record_listener *l = record_state(dev)->listener;

    return l ? l->moved(l->context, bytes) : ST_OK;
}

#endif
