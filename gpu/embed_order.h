/* The places of tokens listed by the row of a table that they name. */
#ifndef GPU_EMBED_ORDER_H
#define GPU_EMBED_ORDER_H

#include "gpu/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Place i names row tokens[i token_stride] - row0; places whose row is not in [0, rows) are left
 * out of the list. */
struct embed_list {
    const int32_t *tokens;
    int64_t token_stride, row0, rows;
    unsigned places;
    unsigned *start; /* [rows + 1]: where a row's places begin in the list; the end */
    unsigned *place; /* [places]: the list */
    unsigned *row;   /* [places]: whose place it is */
    unsigned *zero;  /* [zeros]: set to zero beside */
    unsigned zeros;
};

/* Fills start, place and row: rows ascend, the places of one row ascend (a stable counting sort).
 * At least one row. One launch, behind which launch_behind (fit.cuh) may launch the next. */
enum status gpu_embed_order(struct gpu_device *dev, const struct embed_list *list);

#ifdef __cplusplus
}
#endif
#endif
