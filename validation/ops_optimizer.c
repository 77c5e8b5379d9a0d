#include "validation/ops.h"

#include <math.h>

/* Three tensors of odd sizes, one of them cut into column grains of different sums; variant 2: of
 * two types in one list. */
static enum status sumsq_clip(struct ops_case *c, struct ops_size s, int variant)
{
    int64_t rows = s.samples * s.seq;
    struct buffer *t[3], *table, *out;
    double limit = variant == 0 ? 0.0 : variant == 1 ? 1e-3 : 1e9;

    TRY(ops_random(c, &t[0], variant == 2 ? VALUE_ACT : VALUE_WIDE, rows, s.cols, 0, 1.0));
    TRY(ops_random(c, &t[1], VALUE_WIDE, 1, s.cols, 0, 2.0));
    TRY(ops_random(c, &t[2], VALUE_WIDE, 2 * rows, 4 * s.cols, 0, 0.5));
    TRY(ops_poisoned(c, &table, VALUE_F64, 8, 1, 0));
    TRY(ops_poisoned(c, &out, VALUE_F64, 2, 1, 0));
    for (int i = 0; i < SIDES; i++) {
        struct tensor list[3] = {t[0]->t[i], t[1]->t[i], tensor_grained(t[2]->t[i], 1, 4)};
        struct tensor six = tensor_rows(&table->t[i], 0, 6, 1);

        TRY(op_sumsq(c->dev[i], &six, list, 3));
        TRY(op_clip(c->dev[i], &out->t[i], &six, limit));
    }
    for (int64_t i = 6; i < 8; i++) /* the last two entries are nobody's */
        table->host[i] = 0.0;
    for (int i = 0; i < SIDES; i++)
        table->t[i].rows = 6;
    TRY(ops_check(c, table, "table"));
    return ops_check(c, out, "norm, scale");
}

/* Two tensors, one with decay. variant 0: weights are the only copy; 1: wide masters beside
 * weights of the type under test; 2: scale 0, which must change nothing. */
static enum status adamw(struct ops_case *c, struct ops_size s, int variant)
{
    int64_t rows = s.samples * s.seq;
    struct adamw_step step = {1e-2, 0.9, 0.95, 1e-8, 0.1, 1 - 0.9 * 0.9, 1 - 0.95 * 0.95};
    struct buffer *w, *master, *m, *v, *g, *clip;
    double norm_scale[2] = {3.0, variant == 2 ? 0.0 : 0.37};

    TRY(ops_random(c, &master, VALUE_WIDE, rows, s.cols, 0, 1.0));
    TRY(ops_random(c, &w, variant == 1 ? VALUE_ACT : VALUE_WIDE, rows, s.cols, 0, 1.0));
    TRY(ops_random(c, &m, VALUE_WIDE, rows, s.cols, 0, 0.1));
    TRY(ops_random(c, &v, VALUE_WIDE, rows, s.cols, 0, 0.1));
    TRY(ops_random(c, &g, VALUE_WIDE, rows, s.cols, 0, 0.3));
    TRY(ops_random(c, &clip, VALUE_F64, 2, 1, 0, 1.0));
    for (int64_t i = 0; i < rows * s.cols; i++)
        v->host[i] = fabs(v->host[i]);
    TRY(ops_set(c, v, v->host));
    TRY(ops_set(c, clip, norm_scale));
    for (int i = 0; i < SIDES; i++) {
        struct adamw_item item = {.w = w->t[i], .m = m->t[i], .v = v->t[i], .g = g->t[i]};

        item.decay = 1;
        if (variant == 1)
            item.master = master->t[i];
        TRY(op_adamw(c->dev[i], &item, 1, &step, &clip->t[i]));
    }
    TRY(ops_check(c, w, "w"));
    TRY(ops_check(c, m, "m"));
    TRY(ops_check(c, v, "v"));
    return ops_check(c, master, "master");
}

const struct ops_test ops_optimizer[] = {{"sumsq, clip", 3, sumsq_clip, 1e-6, 1e-6},
                                         {"adamw", 3, adamw, 2e-6, 4e-3},
                                         {NULL, 0, NULL, 0, 0}};
