#include "validation/ops.h"

#include <string.h>

/* One, odd, just around a warp, a block and a tile, larger than a block. */
static const struct ops_size sizes[] = {{1, 1, 1},     {1, 3, 8},    {2, 5, 33},   {3, 17, 127},
                                        {1, 129, 128}, {2, 64, 129}, {4, 32, 512}, {2, 9, 1040},
                                        {1, 5, 4104},  {2, 257, 40}};

enum { SIZES = sizeof sizes / sizeof *sizes };

struct worst {
    double error;
    struct ops_size size;
    int variant;
    const char *where;
};

static enum status one(struct worst *w, const struct ops_test *t, struct ops_case *c,
                       struct ops_size s, int variant)
{
    enum status st = t->run(c, s, variant);

    if (st == ST_OK && c->where[0] == '\0')
        st = fail(ST_EINTERNAL, "the test of %s checked nothing", t->name);
    if (st == ST_OK && (c->worst > w->error || !w->where))
        *w = (struct worst){c->worst, s, variant, c->where};
    ops_case_end(c);
    return st;
}

static enum status row(FILE *out, const struct ops_test *t, struct device *const dev[SIDES],
                       enum dtype act, struct ops_count *count)
{
    double bound = act == DT_BF16 ? t->bf16 : t->f32;
    struct worst w = {0};
    struct ops_case c;

    for (int v = 0; v < t->variants; v++)
        for (int i = 0; i < SIZES; i++) {
            ops_case_begin(&c, dev[SIDE_TEST], dev[SIDE_GOLD], act, 1 + (uint64_t)i);
            TRY(one(&w, t, &c, sizes[i], v));
        }
    fprintf(out,
            "  %-20s %-5s %10.2e %10.2e  %-4s %s, %lld x %lld tokens, %lld columns, variant %d\n",
            t->name, dtype_name(act), w.error, bound, w.error <= bound ? "ok" : "MISS", w.where,
            (long long)w.size.samples, (long long)w.size.seq, (long long)w.size.cols, w.variant);
    fflush(out);
    count->rows++;
    count->misses += !(w.error <= bound);
    return ST_OK;
}

/* Whether only, NULL for all, is in the row's name, which ends with its type: "rms_norm bf16". */
static int wanted(const char *only, const struct ops_test *t, enum dtype act)
{
    char name[64];

    snprintf(name, sizeof name, "%s %s", t->name, dtype_name(act));
    return !only || strstr(name, only);
}

enum status ops_validate(FILE *out, struct device *test, struct device *gold, int bf16,
                         const char *only, struct ops_count *count)
{
    static const struct ops_test *const families[] = {ops_products, ops_norms, ops_block, ops_ends,
                                                      ops_optimizer};
    struct device *const dev[SIDES] = {test, gold};

    fprintf(out, "  %-20s %-5s %10s %10s\n", "operation", "type", "error", "bound");
    *count = (struct ops_count){0};
    for (size_t f = 0; f < sizeof families / sizeof *families; f++)
        for (const struct ops_test *t = families[f]; t->name; t++) {
            if (wanted(only, t, DT_F32))
                TRY(row(out, t, dev, DT_F32, count));
            if (bf16 && wanted(only, t, DT_BF16))
                TRY(row(out, t, dev, DT_BF16, count));
        }
    return ST_OK;
}
