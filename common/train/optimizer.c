#include "common/train/optimizer.h"

#include "common/backend/planted.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int local_grains(const struct model *m, const struct param *row)
{
    return row->cut == CUT_NONE ? 0 : row->grains / m->tp_size;
}

/* Gradient i of a parameter: the joined one; g2 has been added to g by then. */
static void list_pieces(struct optimizer *o)
{
    const struct params *p = &o->model->params;
    int n = 0;

    for (int32_t g = 0; g < o->model->shape.grains; g++)
        for (int i = 0; i < p->n; i++)
            if (g < local_grains(o->model, &p->item[i]))
                o->piece[n++] = param_grain(&p->item[i], &p->item[i].g, g);
    o->cut = n;
    for (int copy = 0; copy < (PLANTED(PLANTED_NORM_COPIES) ? o->model->tp_size : 1); copy++)
        for (int i = 0; i < p->n; i++)
            if (p->item[i].cut == CUT_NONE)
                o->piece[n++] = p->item[i].g;
    o->whole = n - o->cut;
}

static void list_items(struct optimizer *o)
{
    const struct params *p = &o->model->params;

    for (int i = 0; i < p->n; i++) {
        const struct param *row = &p->item[i];

        o->item[i] = (struct adamw_item){.w = row->w,
                                         .master = row->master,
                                         .m = row->m,
                                         .v = row->v,
                                         .g = row->g,
                                         .decay = row->decay};
    }
}

static enum status take(struct arena *a, struct tensor *t, int64_t rows)
{
    void *p;

    TRY(arena_take(a, &p, (size_t)(rows > 0 ? rows : 1) * sizeof(double)));
    *t = tensor_view(p, DT_F64, rows, 1);
    return ST_OK;
}

enum status optimizer_open(struct optimizer *o, struct model *m, struct arena *state)
{
    const struct params *p = &m->params;
    size_t copies = PLANTED(PLANTED_NORM_COPIES) ? (size_t)m->tp_size : 0;
    size_t most = (size_t)p->n * ((size_t)m->shape.grains + copies);

    memset(o, 0, sizeof *o);
    o->model = m;
    o->piece = calloc(most, sizeof *o->piece);
    o->item = calloc((size_t)p->n, sizeof *o->item);
    if (!o->piece || !o->item)
        return fail(ST_ENOMEM, "no memory for the optimiser's tables of %zu entries", most);
    list_pieces(o);
    list_items(o);
    o->exact = m->cfg->parallel.layout_exact && !PLANTED(PLANTED_TIED_ORDER);
    o->flat = tensor_view(p->item[0].g.data, p->wide, 1,
                          (int64_t)((o->exact ? p->plane : p->flat) / dtype_size(p->wide)));
    TRY(take(state, &o->table, (int64_t)o->cut * m->tp_size + o->whole));
    TRY(take(state, &o->mine, o->cut));
    return take(state, &o->norm_scale, 2);
}

void optimizer_close(struct optimizer *o)
{
    free(o->piece);
    free(o->item);
    o->piece = NULL;
    o->item = NULL;
}

enum status optimizer_join_tied(struct optimizer *o, struct device *dev)
{
    struct params *p = &o->model->params;

    for (int i = 0; i < p->n; i++)
        if (p->item[i].twice)
            TRY(op_add(dev, &p->item[i].g, &p->item[i].g, &p->item[i].g2));
    return ST_OK;
}

/* Exact: one replica joins two sums over all samples, so that several must sum both first. */
enum status optimizer_reduce(struct optimizer *o, struct device *dev, struct comm *dp)
{
    if (!o->exact)
        TRY(optimizer_join_tied(o, dev));
    if (dp->size > 1) {
        ledger_for(dp->ledger, LEDGER_DP);
        TRY(comm_all_reduce(dp, &o->flat, 1));
    }
    return o->exact ? optimizer_join_tied(o, dev) : ST_OK;
}

enum status optimizer_norm(struct optimizer *o, struct device *dev, struct comm *tp, double limit)
{
    struct tensor gathered = tensor_rows(&o->table, 0, (int64_t)o->cut * tp->size, 1);
    struct tensor tail = tensor_rows(&o->table, gathered.rows, o->whole, 1);

    if (o->cut && tp->size > 1) {
        TRY(op_sumsq(dev, &o->mine, o->piece, o->cut));
        ledger_for(tp->ledger, LEDGER_NORM2);
        TRY(comm_all_gather(tp, &gathered, &o->mine));
    } else if (o->cut) {
        TRY(op_sumsq(dev, &gathered, o->piece, o->cut));
    }
    if (o->whole)
        TRY(op_sumsq(dev, &tail, o->piece + o->cut, o->whole));
    return op_clip(dev, &o->norm_scale, &o->table, limit);
}

/* b^t by repeated squaring: the same bits with any C library. */
static double power(double b, int64_t t)
{
    double y = 1.0;

    for (; t > 0; t /= 2, b *= b)
        if (t % 2)
            y *= b;
    return y;
}

enum status optimizer_update(struct optimizer *o, struct device *dev, int64_t t, double lr)
{
    const struct config_train *c = &o->model->cfg->train;
    struct adamw_step step = {.lr = lr,
                              .beta1 = c->beta1,
                              .beta2 = c->beta2,
                              .eps = c->eps,
                              .weight_decay = c->weight_decay,
                              .bias1 = 1.0 - power(c->beta1, t),
                              .bias2 = 1.0 - power(c->beta2, t)};

    return op_adamw(dev, o->item, o->model->params.n, &step, &o->norm_scale);
}
