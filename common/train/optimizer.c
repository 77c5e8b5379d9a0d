#include "common/train/optimizer.h"

#include "common/backend/planted.h"
#include "common/train/reduce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

static int counts(const struct optimizer *o, const struct grain *piece)
{
    return grains_mine(o->pieces, piece) && !o->model->params.item[piece->item].copy;
}

/* How often what is whole stands in the table. */
static int copies(const struct optimizer *o)
{
    return PLANTED(PLANTED_NORM_COPIES) ? o->model->tp_size : 1;
}

static void add_entry(struct optimizer *o, int *n, const struct grain *piece, int64_t entry)
{
    struct optimizer_run *last = &o->run[o->runs - 1];

    o->piece[*n] = piece->g;
    if (o->runs > 0 && last->entry + last->n == entry)
        last->n++;
    else
        o->run[o->runs++] = (struct optimizer_run){.entry = entry, .first = *n, .n = 1};
    (*n)++;
}

/* Gradient i of a parameter: the joined one; g2 has been added to g by then. */
static void list_runs(struct optimizer *o)
{
    const struct grains *s = o->pieces;
    int n = 0;

    for (int c = 0; c < copies(o); c++)
        for (int i = 0; i < s->n; i++) {
            const struct grain *piece = &s->item[i];

            if (counts(o, piece) && (c == 0 || piece->entry >= o->cut))
                add_entry(o, &n, piece, piece->entry + c * o->model->params.all_whole);
        }
}

static struct adamw_item item_of_row(const struct param *row)
{
    return (struct adamw_item){.w = row->w,
                               .master = row->master,
                               .m = row->m,
                               .v = row->v,
                               .g = row->g,
                               .decay = row->decay};
}

static void list_items(struct optimizer *o)
{
    const struct params *p = &o->model->params;
    const struct grains *s = o->pieces;

    for (int i = 0; !s->sharded && i < p->n; i++)
        o->item[o->items++] = item_of_row(&p->item[i]);
    for (int i = 0; s->sharded && i < s->n; i++)
        if (grains_mine(s, &s->item[i]))
            o->item[o->items++] = (struct adamw_item){.w = s->item[i].w,
                                                      .master = s->item[i].master,
                                                      .m = s->item[i].m,
                                                      .v = s->item[i].v,
                                                      .g = s->item[i].g,
                                                      .decay = p->item[s->item[i].item].decay};
}

static enum status take(struct arena *a, struct tensor *t, int64_t rows)
{
    void *p;

    TRY(arena_take(a, &p, (size_t)(rows > 0 ? rows : 1) * sizeof(double)));
    *t = tensor_view(p, DT_F64, rows, 1);
    return ST_OK;
}

static enum status make_room(struct optimizer *o)
{
    size_t most = (size_t)o->pieces->n * (size_t)copies(o) + (size_t)o->model->params.n;

    o->piece = calloc(most, sizeof *o->piece);
    o->run = calloc(most, sizeof *o->run);
    o->item = calloc(most, sizeof *o->item);
    o->from = calloc(most, sizeof *o->from);
    o->to = calloc(most, sizeof *o->to);
    o->left = calloc((size_t)o->pieces->buckets, sizeof *o->left);
    o->begun = calloc((size_t)o->pieces->buckets, sizeof *o->begun);
    if (!o->piece || !o->run || !o->item || !o->from || !o->to || !o->left || !o->begun)
        return fail(ST_ENOMEM, "no memory for the optimiser's tables of %zu entries", most);
    return ST_OK;
}

enum status optimizer_open(struct optimizer *o, struct model *m, struct grains *pieces,
                           const struct optimizer_groups *on, struct arena *state,
                           struct arena *grads)
{
    const struct params *p = &m->params;

    memset(o, 0, sizeof *o);
    o->model = m;
    o->pieces = pieces;
    o->on = *on;
    TRY(make_room(o));
    o->cut = (int64_t)m->shape.grains * p->all_cut;
    o->whole = (int64_t)p->all_whole * copies(o);
    list_runs(o);
    list_items(o);
    o->exact = m->cfg->parallel.layout_exact && !PLANTED(PLANTED_TIED_ORDER);
    TRY(take(state, &o->table, o->cut * m->tp_size + o->whole));
    TRY(take(state, &o->mine, o->cut + o->whole));
    TRY(take(state, &o->norm_scale, 2));
    return pieces->sharded ? reduce_open(o, grads) : ST_OK;
}

void optimizer_close(struct optimizer *o)
{
    free(o->piece);
    free(o->run);
    free(o->item);
    free(o->from);
    free(o->to);
    free(o->left);
    free(o->begun);
    memset(o, 0, sizeof *o);
}

/* ---- norm ---- */

static int size_of(const struct comm *c)
{
    return c ? c->size : 1;
}

/* table = every TP rank's entries, and what is whole once. */
static enum status gather(struct optimizer *o, struct device *dev)
{
    int tp = o->on.tp->size;
    struct tensor cut = tensor_rows(&o->mine, 0, o->cut, 1);
    struct tensor gathered = tensor_rows(&o->table, 0, o->cut * tp, 1);
    struct tensor tail = tensor_rows(&o->table, gathered.rows, o->whole, 1);
    struct tensor whole = tensor_rows(&o->mine, o->cut, o->whole, 1);

    if (o->cut && tp > 1) {
        ledger_for(o->on.tp->ledger, LEDGER_NORM2);
        TRY(comm_all_gather(o->on.tp, &gathered, &cut));
    } else if (o->cut) {
        TRY(op_convert(dev, &gathered, &cut, 1));
    }
    return o->whole ? op_convert(dev, &tail, &whole, 1) : ST_OK;
}

/* Adds the tables of a group, of which at most one has more than zero in an entry. */
static enum status join(struct optimizer *o, struct comm *c)
{
    if (size_of(c) == 1)
        return ST_OK;
    ledger_for(c->ledger, LEDGER_NORM2);
    return comm_all_reduce(c, &o->table, 1);
}

enum status optimizer_norm(struct optimizer *o, struct device *dev, double limit)
{
    for (int i = 0; i < o->runs; i++) {
        struct tensor t = tensor_rows(&o->mine, o->run[i].entry, o->run[i].n, 1);

        TRY(op_sumsq(dev, &t, o->piece + o->run[i].first, o->run[i].n));
    }
    TRY(gather(o, dev));
    if (o->pieces->sharded)
        TRY(join(o, o->on.dp));
    if (!PLANTED(PLANTED_STAGE_NORM))
        TRY(join(o, o->on.pp));
    return op_clip(dev, &o->norm_scale, &o->table, limit);
}

/* ---- update ---- */

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

    TRY(op_adamw(dev, o->item, o->items, &step, &o->norm_scale));
    return o->pieces->sharded ? reduce_share_weights(o, dev) : ST_OK;
}
