#include "gpu/items.h"

#include "gpu/comm.h"
#include "gpu/gpu.h"
#include "gpu/graph.h"

#include <stdlib.h>
#include <string.h>

struct set {
    void *host, *device;
    size_t bytes;
};

struct gpu_items {
    void *building;
    size_t room;
    int next; /* the set that makes room */
    struct set set[GPU_ITEM_SETS];
};

enum status gpu_items_open(struct gpu_items **items)
{
    *items = calloc(1, sizeof **items);
    return *items ? ST_OK : fail(ST_ENOMEM, "no host memory for lists of tensors");
}

static void drop(struct set *s)
{
    free(s->host);
    cudaFree(s->device);
    *s = (struct set){0};
}

void gpu_items_close(struct gpu_items *items)
{
    if (!items)
        return;
    for (int i = 0; i < GPU_ITEM_SETS; i++)
        drop(&items->set[i]);
    free(items->building);
    free(items);
}

enum status gpu_items_build(struct gpu_items *items, void **p, size_t bytes)
{
    if (bytes > items->room) {
        void *larger = realloc(items->building, bytes);

        if (!larger)
            return fail(ST_ENOMEM, "no host memory for a list of tensors (%zu bytes)", bytes);
        items->building = larger;
        items->room = bytes;
    }
    memset(items->building, 0, bytes);
    *p = items->building;
    return ST_OK;
}

static enum status send(struct gpu_device *dev, struct set *s, size_t bytes)
{
    if (gpu_capturing(dev))
        return fail(ST_EDEVICE, "a new list of tensors while a CUDA graph is recorded: run the "
                                "step once before recording it");
    TRY(gpu_wait(dev)); /* a kernel may still read the set that goes */
    TRY(gpu_comm_quiet(dev));
    gpu_graphs_drop(dev);
    drop(s);
    s->host = malloc(bytes);
    if (!s->host)
        return fail(ST_ENOMEM, "no host memory for a list of tensors (%zu bytes)", bytes);
    memcpy(s->host, dev->items->building, bytes);
    CUDA_TRY(cudaMalloc(&s->device, bytes));
    TRY(gpu_upload(&dev->base, s->device, s->host, bytes));
    s->bytes = bytes; /* last: a set that failed half-way is never found */
    return ST_OK;
}

enum status gpu_items_send(struct gpu_device *dev, const void **on_device, size_t bytes)
{
    struct gpu_items *items = dev->items;
    struct set *s;

    for (int i = 0; i < GPU_ITEM_SETS; i++) {
        s = &items->set[i];
        if (s->bytes == bytes && memcmp(s->host, items->building, bytes) == 0) {
            *on_device = s->device;
            return ST_OK;
        }
    }
    s = &items->set[items->next];
    items->next = (items->next + 1) % GPU_ITEM_SETS;
    TRY(send(dev, s, bytes));
    *on_device = s->device;
    return ST_OK;
}
