#include "validation/ops.h"

static int64_t tokens(struct ops_size s)
{
    return s.samples * s.seq;
}

static struct latent latent_of(struct ops_size s, int variant)
{
    return (struct latent){.act = variant & 1 ? ACT_NONE : ACT_SILU,
                           .norm = {.width = 2 * s.cols, .eps = 1e-6}};
}

static enum status statistic(struct ops_case *c, struct ops_size s, struct buffer **b)
{
    TRY(ops_random(c, b, VALUE_WIDE, tokens(s), 1, 0, 1.0));
    for (int64_t i = 0; i < tokens(s); i++)
        (*b)->host[i] = (double)s.cols * (0.5 + (*b)->host[i] * (*b)->host[i]);
    return ops_set(c, *b, (*b)->host);
}

/* variant bit 0: no activation; bit 1: no statistic; bit 2: sums in the wide type */
static enum status latent_forward(struct ops_case *c, struct ops_size s, int variant)
{
    struct buffer *z, *a, *sum, *st;

    TRY(ops_random(c, &sum, variant & 4 ? VALUE_WIDE : VALUE_ACT, tokens(s), s.cols, 0, 3.0));
    TRY(statistic(c, s, &st));
    TRY(ops_poisoned(c, &z, VALUE_ACT, tokens(s), s.cols, 0));
    TRY(ops_poisoned(c, &a, VALUE_ACT, tokens(s), s.cols, 0));
    for (int i = 0; i < SIDES; i++)
        TRY(op_latent_forward(c->dev[i], &z->t[i], &a->t[i], &sum->t[i],
                              variant & 2 ? NULL : &st->t[i], latent_of(s, variant)));
    TRY(ops_check(c, a, "a"));
    return ops_check(c, z, "z");
}

/* In place and without the activation's output: as the strategies call it. */
static enum status latent_in_place(struct ops_case *c, struct ops_size s, int variant)
{
    struct buffer *z, *a, *st;

    TRY(ops_random(c, &z, VALUE_ACT, tokens(s), s.cols, 8, 3.0));
    TRY(ops_poisoned(c, &a, VALUE_ACT, tokens(s), s.cols, 8));
    TRY(statistic(c, s, &st));
    for (int i = 0; i < SIDES; i++) {
        TRY(op_latent_forward(c->dev[i], &z->t[i], NULL, &z->t[i], &st->t[i],
                              latent_of(s, variant)));
        TRY(op_latent_act(c->dev[i], &a->t[i], &z->t[i], latent_of(s, variant)));
    }
    TRY(ops_check(c, a, "a"));
    return ops_check(c, z, "z");
}

/* variant as in latent_forward; without a statistic there are no coefficients */
static enum status latent_backward(struct ops_case *c, struct ops_size s, int variant)
{
    struct buffer *u, *coef, *da, *z, *st;

    TRY(ops_random(c, &da, variant & 4 ? VALUE_WIDE : VALUE_ACT, tokens(s), s.cols, 0, 1.0));
    TRY(ops_random(c, &z, VALUE_ACT, tokens(s), s.cols, 0, 2.0));
    TRY(statistic(c, s, &st));
    TRY(ops_poisoned(c, &u, VALUE_ACT, tokens(s), s.cols, 0));
    TRY(ops_poisoned(c, &coef, VALUE_WIDE, tokens(s), 2, 0));
    for (int i = 0; i < SIDES; i++)
        TRY(op_latent_backward(c->dev[i], &u->t[i], variant & 2 ? NULL : &coef->t[i], &da->t[i],
                               &z->t[i], variant & 2 ? NULL : &st->t[i], latent_of(s, variant)));
    if (!(variant & 2))
        TRY(ops_check(c, coef, "coef"));
    return ops_check(c, u, "u");
}

/* Ways to cut a sequence into documents: not at all, into single tokens, inside the tiles of a
 * kernel (one document a single token), at their edges, beside their edges. */
enum { WAYS = 5 };

static int begins(int64_t i, struct ops_size s, int64_t way)
{
    switch (way) {
    case 0:
        return 0;
    case 1:
        return 1;
    case 2:
        return i == 5 || i == 6 || i == s.seq / 2 + 3;
    case 3:
        return i % 32 == 0;
    default:
        return i % 32 == 1 || i % 32 == 31;
    }
}

/* Where the document of each token begins; each sequence is cut in another way. */
static enum status documents(struct ops_case *c, struct ops_size s, int way, struct buffer **b)
{
    TRY(ops_random(c, b, VALUE_INT, tokens(s), 1, 0, 1.0));
    for (int64_t row = 0; row < s.samples; row++)
        for (int64_t i = 0, start = 0; i < s.seq; i++) {
            start = begins(i, s, (way + row) % WAYS) ? i : start;
            (*b)->host[row * s.seq + i] = (double)start;
        }
    return ops_set(c, *b, (*b)->host);
}

/* Heads of an even dimension near the size's columns. */
static enum status rotate(struct ops_case *c, struct ops_size s, struct rope r,
                          const struct buffer *starts)
{
    int64_t hd = 2 * (s.cols / 6 + 1), heads = 3, positions = s.seq + 5;
    struct buffer *x, *table;

    r.seq = s.seq;
    r.head_dim = hd;
    TRY(ops_random(c, &x, VALUE_ACT, tokens(s), heads * hd, 0, 1.0));
    TRY(ops_random(c, &table, VALUE_WIDE, positions, hd, 0, 0.7));
    for (int i = 0; i < SIDES; i++) {
        if (starts)
            r.starts = starts->t[i];
        TRY(op_rope(c->dev[i], &x->t[i], &table->t[i], r));
    }
    return ops_check(c, x, "x");
}

/* variant 1 rotates back, at an offset */
static enum status rope(struct ops_case *c, struct ops_size s, int variant)
{
    return rotate(c, s, (struct rope){.pos0 = variant ? 5 : 0, .inverse = variant}, NULL);
}

static enum status rope_documents(struct ops_case *c, struct ops_size s, int variant)
{
    struct buffer *starts;

    TRY(documents(c, s, variant, &starts));
    return rotate(c, s, (struct rope){.inverse = variant % 2}, starts);
}

/* Shapes of attention: variant 0 plain, 1 grouped queries, 2 head dim 128 with grouped queries
 * and q, k, v as columns of one tensor. */
struct heads {
    int64_t q, kv, dim;
};

static struct heads heads_of(struct ops_size s, int variant)
{
    static const int64_t dims[] = {16, 32, 64};

    if (variant == 2)
        return (struct heads){4, 1, 128};
    return (struct heads){4, variant ? 2 : 4, dims[s.cols % 3]};
}

static struct attention attention_of(struct buffer *const b[5], int side, struct ops_size s,
                                     struct heads h)
{
    struct attention at = {.batch = s.samples,
                           .seq = s.seq,
                           .kv_rows = s.seq,
                           .heads = h.q,
                           .kv_heads = h.kv,
                           .head_dim = h.dim};

    at.q = tensor_cols(&b[0]->t[side], 0, h.q * h.dim, 1);
    at.k = tensor_cols(&b[0]->t[side], h.q * h.dim, h.kv * h.dim, 1);
    at.v = tensor_cols(&b[0]->t[side], (h.q + h.kv) * h.dim, h.kv * h.dim, 1);
    at.o = b[1]->t[side];
    at.lse = b[2]->t[side];
    return at;
}

static enum status attend(struct ops_case *c, struct ops_size s, struct heads h,
                          const struct buffer *starts)
{
    int64_t m = tokens(s), width = (h.q + 2 * h.kv) * h.dim;
    struct buffer *b[5], *d[5];

    TRY(ops_random(c, &b[0], VALUE_ACT, m, width, 0, 1.0));
    TRY(ops_poisoned(c, &b[1], VALUE_ACT, m, h.q * h.dim, 0));
    TRY(ops_poisoned(c, &b[2], VALUE_WIDE, m, h.q, 0));
    TRY(ops_poisoned(c, &d[0], VALUE_ACT, m, width, 0));
    TRY(ops_random(c, &d[1], VALUE_ACT, m, h.q * h.dim, 0, 1.0));
    d[2] = b[2];
    for (int i = 0; i < SIDES; i++) {
        struct attention at = attention_of(b, i, s, h), dat = attention_of(d, i, s, h);

        if (starts)
            at.starts = starts->t[i];
        TRY(op_attention_forward(c->dev[i], &at));
        TRY(op_attention_backward(c->dev[i], &at, &dat));
    }
    TRY(ops_check(c, b[1], "o"));
    TRY(ops_check(c, b[2], "lse"));
    return ops_check(c, d[0], "dq, dk, dv");
}

static enum status attention(struct ops_case *c, struct ops_size s, int variant)
{
    return attend(c, s, heads_of(s, variant), NULL);
}

static enum status attention_documents(struct ops_case *c, struct ops_size s, int variant)
{
    struct buffer *starts;

    TRY(documents(c, s, variant, &starts));
    return attend(c, s, heads_of(s, variant % 3), starts);
}

/* A KV cache with room to spare: few queries at an offset. */
static enum status attention_cached(struct ops_case *c, struct ops_size s, int variant)
{
    int64_t room = s.seq + 9, new_rows = variant ? 3 : 1, pos0 = s.seq;
    struct heads h = heads_of(s, 1);
    struct buffer *q, *k, *v, *o, *lse;

    TRY(ops_random(c, &q, VALUE_ACT, s.samples * new_rows, h.q * h.dim, 0, 1.0));
    TRY(ops_random(c, &k, VALUE_ACT, s.samples * room, h.kv * h.dim, 0, 1.0));
    TRY(ops_random(c, &v, VALUE_ACT, s.samples * room, h.kv * h.dim, 0, 1.0));
    TRY(ops_poisoned(c, &o, VALUE_ACT, s.samples * new_rows, h.q * h.dim, 0));
    TRY(ops_poisoned(c, &lse, VALUE_WIDE, s.samples * new_rows, h.q, 0));
    for (int i = 0; i < SIDES; i++) {
        struct attention at = {.batch = s.samples, .seq = new_rows, .kv_rows = room, .pos0 = pos0};

        at.heads = h.q;
        at.kv_heads = h.kv;
        at.head_dim = h.dim;
        at.q = q->t[i];
        at.k = k->t[i];
        at.v = v->t[i];
        at.o = o->t[i];
        at.lse = lse->t[i];
        TRY(op_attention_forward(c->dev[i], &at));
    }
    return ops_check(c, o, "o");
}

/* gate | up as columns of one tensor */
static enum status swiglu(struct ops_case *c, struct ops_size s, int variant)
{
    enum swiglu_kind kind = variant ? SWIGLU_PRODUCT : SWIGLU_SILU;
    struct buffer *gu, *f, *dgu, *df;

    TRY(ops_random(c, &gu, VALUE_ACT, tokens(s), 2 * s.cols, 0, 2.0));
    TRY(ops_random(c, &df, VALUE_ACT, tokens(s), s.cols, 0, 1.0));
    TRY(ops_poisoned(c, &f, VALUE_ACT, tokens(s), s.cols, 0));
    TRY(ops_poisoned(c, &dgu, VALUE_ACT, tokens(s), 2 * s.cols, 0));
    for (int i = 0; i < SIDES; i++) {
        struct swiglu_grad d = {.df = df->t[i]};

        d.g = tensor_cols(&gu->t[i], 0, s.cols, 1);
        d.u = tensor_cols(&gu->t[i], s.cols, s.cols, 1);
        d.dg = tensor_cols(&dgu->t[i], 0, s.cols, 1);
        d.du = tensor_cols(&dgu->t[i], s.cols, s.cols, 1);
        TRY(op_swiglu_forward(c->dev[i], &f->t[i], &d.g, &d.u, kind));
        TRY(op_swiglu_backward(c->dev[i], &d, kind));
    }
    TRY(ops_check(c, f, "f"));
    return ops_check(c, dgu, "dg, du");
}

/* variant 1: the second addend is wide, as a sum that travelled in fp32 */
static enum status add(struct ops_case *c, struct ops_size s, int variant)
{
    struct buffer *a, *b, *y;

    TRY(ops_random(c, &a, VALUE_ACT, tokens(s), s.cols, 0, 1.0));
    TRY(ops_random(c, &b, variant ? VALUE_WIDE : VALUE_ACT, tokens(s), s.cols, 0, 1.0));
    TRY(ops_poisoned(c, &y, VALUE_ACT, tokens(s), s.cols, 0));
    for (int i = 0; i < SIDES; i++)
        TRY(op_add(c->dev[i], &y->t[i], &a->t[i], &b->t[i]));
    return ops_check(c, y, "y");
}

const struct ops_test ops_block[] = {
    {"latent_forward", 8, latent_forward, 2e-6, 6e-3},
    {"latent in place", 2, latent_in_place, 2e-6, 6e-3},
    {"latent_backward", 8, latent_backward, 2e-5, 4e-3},
    {"rope", 2, rope, 2e-6, 4e-3},
    {"attention", 3, attention, 1e-5, 1.2e-2},
    {"rope, documents", WAYS, rope_documents, 2e-6, 4e-3},
    {"attention, documents", WAYS, attention_documents, 1e-5, 1.2e-2},
    {"attention, cached", 2, attention_cached, 1e-5, 6e-3},
    {"swiglu", 2, swiglu, 2e-6, 4e-3},
    {"add", 2, add, 2e-6, 4e-3},
    {NULL, 0, NULL, 0, 0}};
