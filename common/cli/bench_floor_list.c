#include "common/cli/bench_floor.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 256, TENSORS = 7 * FLOOR_GROUP };

/* ---- the tensors of a call ---- */

struct tensors {
    struct tensor *of[TENSORS];
    int n;
};

static void add(struct tensors *list, struct tensor *t)
{
    if (t->data)
        list->of[list->n++] = t;
}

static void add_attention(struct tensors *list, struct attention *at)
{
    add(list, &at->q);
    add(list, &at->k);
    add(list, &at->v);
    add(list, &at->o);
    add(list, &at->lse);
}

static void add_product(struct tensors *list, struct gemm *g, struct tensor beside[2])
{
    add(list, &g->y);
    add(list, &g->a);
    add(list, &g->b);
    for (int k = 0; k < g->more; k++) {
        add(list, &g->part[k].a);
        add(list, &g->part[k].b);
    }
    add(list, &beside[0]);
    add(list, &beside[1]);
}

static void add_gradient(struct tensors *list, struct weight_grad *w)
{
    add(list, &w->dw);
    add(list, &w->dy);
    add(list, &w->x);
}

static void list_tensors(struct tensors *list, struct floor_call *c)
{
    list->n = 0;
    for (int i = 0; i < c->n; i++) {
        if (c->kind == FLOOR_PRODUCT)
            add_product(list, &c->gemm[i], c->beside[i]);
        else if (c->kind == FLOOR_GRADIENT)
            add_gradient(list, &c->grad[i]);
        else if (c->kind == FLOOR_MESSAGE)
            add(list, &c->sent[i]);
    }
    if (c->kind == FLOOR_ATTENTION || c->kind == FLOOR_ATTENTION_BACKWARD)
        add_attention(list, &c->at);
    if (c->kind == FLOOR_ATTENTION_BACKWARD)
        add_attention(list, &c->dat);
}

void floor_call_move(struct floor_call *c, const void *base, int sign)
{
    uintptr_t by = (uintptr_t)base - 1;
    struct tensors list;

    list_tensors(&list, c);
    for (int i = 0; i < list.n; i++) {
        uintptr_t at = (uintptr_t)list.of[i]->data;

        list.of[i]->data = (void *)(sign > 0 ? at + by : at - by);
    }
}

/* ---- addresses become offsets ---- */

struct span {
    uintptr_t begin, end, offset;
};

static uintptr_t end_of(const struct tensor *t)
{
    return (uintptr_t)t->data +
           (size_t)((t->rows - 1) * t->stride + t->cols) * dtype_size(t->dtype);
}

static int by_begin(const void *a, const void *b)
{
    const struct span *x = a, *y = b;

    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Spans that meet become one; returns how many there are. */
static int join(struct span *s, int n)
{
    int last = 0;

    qsort(s, (size_t)n, sizeof *s, by_begin);
    for (int i = 1; i < n; i++) {
        if (s[i].begin <= s[last].end)
            s[last].end = s[i].end > s[last].end ? s[i].end : s[last].end;
        else
            s[++last] = s[i];
    }
    return last + 1;
}

/* Buffers one behind the other, each as well aligned as it was. */
static void pack(struct floor_call *c)
{
    struct span s[TENSORS];
    struct tensors list;
    uintptr_t used = 0;
    int n;

    list_tensors(&list, c);
    for (int i = 0; i < list.n; i++)
        s[i] = (struct span){(uintptr_t)list.of[i]->data, end_of(list.of[i]), 0};
    n = join(s, list.n);
    for (int i = 0; i < n; i++) {
        s[i].offset = used + s[i].begin % ALIGN;
        used = (s[i].offset + (s[i].end - s[i].begin) + ALIGN - 1) / ALIGN * ALIGN;
    }
    for (int i = 0; i < list.n; i++)
        for (int k = 0; k < n; k++) {
            uintptr_t at = (uintptr_t)list.of[i]->data;

            if (at >= s[k].begin && at < s[k].end) {
                list.of[i]->data = (void *)(at - s[k].begin + s[k].offset + 1);
                break;
            }
        }
    c->bytes = used;
}

/* Slots of a gradient that the plan names lie one call's memory apart. */
static void set_planes(struct floor_call *c)
{
    int32_t most = 0;

    for (int i = 0; i < c->plan.nodes; i++) {
        const struct sample_node *node = &c->plan.node[i];

        most = node->slot > most ? node->slot : most;
        for (int k = 0; k < node->merges; k++)
            most = node->merge[k] > most ? node->merge[k] : most;
    }
    c->plan.plane = (int64_t)c->bytes;
    c->bytes *= (size_t)most + 1;
}

/* ---- equal calls ---- */

static int same_tensor(const struct tensor *a, const struct tensor *b, int at)
{
    return a->dtype == b->dtype && a->rows == b->rows && a->cols == b->cols &&
           a->stride == b->stride && a->row_grains == b->row_grains &&
           a->col_grains == b->col_grains && (!at || a->data == b->data);
}

static int same_plan(const struct sample_plan *a, const struct sample_plan *b)
{
    if (a->samples != b->samples || a->exact != b->exact || a->nodes != b->nodes)
        return 0;
    for (int i = 0; i < a->nodes; i++) {
        const struct sample_node *x = &a->node[i], *y = &b->node[i];

        if (x->first != y->first || x->count != y->count || x->slot != y->slot ||
            x->merges != y->merges ||
            memcmp(x->merge, y->merge, (size_t)x->merges * sizeof *x->merge) != 0)
            return 0;
    }
    return 1;
}

static int same_gemm(const struct gemm *a, const struct gemm *b)
{
    return a->kind == b->kind && a->more == b->more && a->accumulate == b->accumulate &&
           !a->c == !b->c && !a->k_scale == !b->k_scale;
}

/* Ranks of a group must find the same messages equal, so there the shapes alone decide. */
static int same(struct floor_call *a, struct floor_call *b)
{
    struct tensors x, y;

    if (a->kind != b->kind || a->n != b->n)
        return 0;
    if (a->kind == FLOOR_MESSAGE && (a->message != b->message || a->comm != b->comm))
        return 0;
    if (a->kind == FLOOR_GRADIENT && !same_plan(&a->plan, &b->plan))
        return 0;
    for (int i = 0; a->kind == FLOOR_PRODUCT && i < a->n; i++)
        if (!same_gemm(&a->gemm[i], &b->gemm[i]))
            return 0;
    list_tensors(&x, a);
    list_tensors(&y, b);
    if (x.n != y.n)
        return 0;
    for (int i = 0; i < x.n; i++)
        if (!same_tensor(x.of[i], y.of[i], a->kind != FLOOR_MESSAGE))
            return 0;
    return 1;
}

static enum status keep(struct floor_list *l, struct floor_call *c)
{
    struct floor_call *own;

    pack(c);
    if (c->kind == FLOOR_GRADIENT)
        set_planes(c);
    for (int i = 0; i < l->n; i++)
        if (same(l->call[i], c)) {
            l->call[i]->times++;
            return ST_OK;
        }
    if (l->n == l->room) {
        int room = l->room ? 2 * l->room : 64;
        struct floor_call **more = realloc(l->call, (size_t)room * sizeof *more);

        if (!more)
            return fail(ST_ENOMEM, "no memory for the calls of a floor");
        l->call = more;
        l->room = room;
    }
    own = malloc(sizeof *own);
    if (!own)
        return fail(ST_ENOMEM, "no memory for the calls of a floor");
    *own = *c;
    own->times = 1;
    for (int i = 0; c->kind == FLOOR_PRODUCT && i < own->n; i++) {
        own->gemm[i].c = c->gemm[i].c ? &own->beside[i][0] : NULL;
        own->gemm[i].k_scale = c->gemm[i].k_scale ? &own->beside[i][1] : NULL;
    }
    l->call[l->n++] = own;
    return ST_OK;
}

/* ---- listening ---- */

struct hearing {
    struct floor_list *list;
    const struct step_place *at; /* of the rehearsal */
    struct floor_call *call;     /* being put together */
};

static struct floor_call *begin(void *context, enum floor_kind kind, int n)
{
    struct hearing *h = context;

    memset(h->call, 0, sizeof *h->call);
    h->call->kind = kind;
    h->call->n = n;
    return h->call;
}

static enum status products(void *context, const struct gemm *g, int n)
{
    struct floor_call *c = begin(context, FLOOR_PRODUCT, n);

    FAIL_IF(n > FLOOR_GROUP, ST_EINTERNAL);
    for (int i = 0; i < n; i++) {
        c->gemm[i] = g[i];
        if (g[i].c)
            c->beside[i][0] = *g[i].c;
        if (g[i].k_scale)
            c->beside[i][1] = *g[i].k_scale;
    }
    return keep(((struct hearing *)context)->list, c);
}

static enum status gradients(void *context, const struct weight_grad *w, int n,
                             const struct sample_plan *plan)
{
    struct floor_call *c = begin(context, FLOOR_GRADIENT, n);

    FAIL_IF(n > FLOOR_GROUP, ST_EINTERNAL);
    memcpy(c->grad, w, (size_t)n * sizeof *w);
    c->plan = *plan;
    return keep(((struct hearing *)context)->list, c);
}

static enum status attention(void *context, const struct attention *at, const struct attention *dat)
{
    struct floor_call *c = begin(context, dat ? FLOOR_ATTENTION_BACKWARD : FLOOR_ATTENTION, 1);

    c->at = *at;
    c->at.starts.data = NULL; /* a bench's documents are whole sequences */
    if (dat) {
        c->dat = *dat;
        c->dat.starts.data = NULL;
    }
    return keep(((struct hearing *)context)->list, c);
}

static enum status moved(void *context, double bytes)
{
    ((struct hearing *)context)->list->moved += bytes;
    return ST_OK;
}

static enum status message(void *context, const struct comm *with, enum record_message kind,
                           const struct tensor *t, int n)
{
    const struct step_place *at = ((struct hearing *)context)->at;
    const struct comm *const all[FLOOR_COMMS] = {at->tp, at->second, at->dp, at->pp, at->ends};
    struct floor_call *c = begin(context, FLOOR_MESSAGE, n);
    int who = 0;

    while (who < FLOOR_COMMS && all[who] != with)
        who++;
    FAIL_IF(who == FLOOR_COMMS || n > FLOOR_MESSAGES, ST_EINTERNAL);
    c->message = kind;
    c->comm = (enum floor_comm)who;
    memcpy(c->sent, t, (size_t)n * sizeof *t);
    return keep(((struct hearing *)context)->list, c);
}

/* ---- a rehearsal ---- */

static enum status listen(struct step *s, void *context, enum status (*run)(struct step *s))
{
    const struct record_listener ears = {context, products, gradients, attention, moved, message};
    struct hearing *h = context;
    enum status st;

    h->at = &s->at;
    record_listen(s->at.dev, &ears);
    st = run(s);
    record_listen(s->at.dev, NULL);
    return st;
}

static enum status run_step(struct step *s)
{
    struct step_result r;

    return step_train(s, NULL, NULL, 1, 1, 0.0, &r);
}

static enum status run_blocks(struct step *s)
{
    struct micro_batch mb = step_micro_batch(s, 0, 0.0);

    TRY(stage_blocks_forward(&s->chunk[0], &mb, 0));
    return stage_blocks_backward(&s->chunk[0], &s->plan[0]);
}

static enum status hear_step(struct step *s, void *context)
{
    return listen(s, context, run_step);
}

static enum status hear_blocks(struct step *s, void *context)
{
    return listen(s, context, run_blocks);
}

enum status floor_list_fill(struct floor_list *l, const struct bench_case *c, int blocks)
{
    struct hearing h = {.list = l, .call = malloc(sizeof *h.call)};
    enum status st = h.call ? ST_OK : fail(ST_ENOMEM, "no memory for the calls of a floor");

    memset(l, 0, sizeof *l);
    if (st == ST_OK)
        st = step_rehearse(&c->cfg, &c->place.mesh, place_wide(&c->cfg), STEP_TRAINS,
                           blocks ? hear_blocks : hear_step, &h);
    free(h.call);
    return st;
}

void floor_list_close(struct floor_list *l)
{
    for (int i = 0; i < l->n; i++)
        free(l->call[i]);
    free(l->call);
    memset(l, 0, sizeof *l);
}

size_t floor_list_largest(const struct floor_list *l)
{
    size_t most = 0;

    for (int i = 0; i < l->n; i++)
        most = l->call[i]->bytes > most ? l->call[i]->bytes : most;
    return most;
}
