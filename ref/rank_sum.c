#include "ref/rank_sum.h"

/* Elements added at a time: they lie on the stack, once a level of the tree. */
enum { BLOCK = 256 };

struct source {
    const char *parts;
    size_t pitch, offset; /* bytes; offset of the block in each part */
    size_t count;         /* elements of the block */
};

static void load_float(float *x, const struct source *s, int r)
{
    memcpy(x, s->parts + (size_t)r * s->pitch + s->offset, s->count * sizeof *x);
}

static void load_double(double *x, const struct source *s, int r)
{
    memcpy(x, s->parts + (size_t)r * s->pitch + s->offset, s->count * sizeof *x);
}

static void load_int(uint32_t *x, const struct source *s, int r)
{
    memcpy(x, s->parts + (size_t)r * s->pitch + s->offset, s->count * sizeof *x);
}

static void load_bf16(float *x, const struct source *s, int r)
{
    uint16_t h[BLOCK];

    memcpy(h, s->parts + (size_t)r * s->pitch + s->offset, s->count * sizeof *h);
    for (size_t i = 0; i < s->count; i++)
        x[i] = bf16_to_float(h[i]);
}

/* x = sum of the ranks [lo, hi) of one block. */
#define TREE(name, type, load)                                        \
    static void name(type *x, const struct source *s, int lo, int hi) \
    {                                                                 \
        type right[BLOCK];                                            \
        int mid = lo + (hi - lo) / 2;                                 \
                                                                      \
        if (hi - lo == 1) {                                           \
            load(x, s, lo);                                           \
            return;                                                   \
        }                                                             \
        name(x, s, lo, mid);                                          \
        name(right, s, mid, hi);                                      \
        for (size_t i = 0; i < s->count; i++)                         \
            x[i] += right[i];                                         \
    }

TREE(tree_float, float, load_float)
TREE(tree_double, double, load_double)
TREE(tree_int, uint32_t, load_int)
TREE(tree_bf16, float, load_bf16)

static void sum_block(char *out, const struct source *s, int ranks, enum dtype dt)
{
    union {
        float f[BLOCK];
        double d[BLOCK];
        uint32_t i[BLOCK];
    } x;
    uint16_t h[BLOCK];

    if (dt == DT_F64)
        tree_double(x.d, s, 0, ranks);
    else if (dt == DT_I32)
        tree_int(x.i, s, 0, ranks);
    else if (dt == DT_BF16)
        tree_bf16(x.f, s, 0, ranks);
    else
        tree_float(x.f, s, 0, ranks);
    if (dt == DT_BF16) {
        for (size_t i = 0; i < s->count; i++)
            h[i] = bf16_from_float(x.f[i]);
        memcpy(out, h, s->count * sizeof *h);
        return;
    }
    memcpy(out, &x, s->count * dtype_size(dt));
}

void rank_sum(void *out, const void *parts, size_t pitch, int ranks, enum dtype dt, int64_t count)
{
    struct source s = {.parts = parts, .pitch = pitch};
    size_t es = dtype_size(dt);

    for (int64_t i = 0; i < count; i += BLOCK) {
        s.offset = (size_t)i * es;
        s.count = (size_t)(count - i < BLOCK ? count - i : BLOCK);
        sum_block((char *)out + s.offset, &s, ranks, dt);
    }
}
