#include "validation/ops.h"

static struct norm norm_of(struct ops_size s)
{
    return (struct norm){.width = s.cols, .eps = 1e-6};
}

static int64_t tokens(struct ops_size s)
{
    return s.samples * s.seq;
}

/* What every norm reads: x with a stride, a gain around 1. */
static enum status inputs(struct ops_case *c, struct ops_size s, struct buffer **x,
                          struct buffer **gain)
{
    TRY(ops_random(c, x, VALUE_ACT, tokens(s), s.cols, 0, 2.0));
    return ops_random(c, gain, VALUE_ACT, 1, s.cols, 0, 1.0);
}

/* A positive statistic, as a sum of squares over the whole width would be. */
static enum status statistic(struct ops_case *c, struct ops_size s, struct buffer **b)
{
    TRY(ops_random(c, b, VALUE_WIDE, tokens(s), 1, 0, 1.0));
    for (int64_t i = 0; i < tokens(s); i++)
        (*b)->host[i] = (double)s.cols * (0.5 + (*b)->host[i] * (*b)->host[i]);
    return ops_set(c, *b, (*b)->host);
}

static enum status rms_norm(struct ops_case *c, struct ops_size s, int variant)
{
    struct buffer *x, *gain, *h, *st;

    (void)variant;
    TRY(inputs(c, s, &x, &gain));
    TRY(ops_poisoned(c, &h, VALUE_ACT, tokens(s), s.cols, 0));
    TRY(ops_poisoned(c, &st, VALUE_WIDE, tokens(s), 1, 0));
    for (int i = 0; i < SIDES; i++)
        TRY(op_rms_norm(c->dev[i], &h->t[i], &st->t[i], &x->t[i], &gain->t[i], norm_of(s)));
    TRY(ops_check(c, h, "h"));
    return ops_check(c, st, "s");
}

static struct rms_grad gradient(struct buffer *const b[5], int side, struct ops_size s)
{
    struct rms_grad g = {.dx = b[0]->t[side],
                         .dgain = b[1]->t[side],
                         .t = b[2]->t[side],
                         .x = b[3]->t[side],
                         .gain = b[4]->t[side]};

    g.t.row_grains = g.x.row_grains = g.dx.row_grains = (int32_t)s.samples;
    return g;
}

static enum status gradient_buffers(struct ops_case *c, struct ops_size s, int accumulate,
                                    struct buffer *b[5])
{
    TRY(ops_random(c, &b[0], VALUE_ACT, tokens(s), s.cols, 0, 1.0));
    if (accumulate)
        TRY(ops_random(c, &b[1], VALUE_WIDE, 1, s.cols, 0, 1.0));
    else
        TRY(ops_poisoned(c, &b[1], VALUE_WIDE, 1, s.cols, 0));
    TRY(ops_random(c, &b[2], VALUE_ACT, tokens(s), s.cols, 0, 1.0));
    return inputs(c, s, &b[3], &b[4]);
}

/* Two trials get so many tokens that each block of a device has several rows of its sum. */
static struct ops_size many_tokens(struct ops_size s)
{
    return s.cols == 512   ? (struct ops_size){4, 1500, 256}
           : s.cols == 128 ? (struct ops_size){1, 4700, 24}
                           : s;
}

/* variants 1 and 3 join a gain gradient that is there; 2 and 3 with many tokens */
static enum status rms_norm_backward(struct ops_case *c, struct ops_size size, int variant)
{
    struct ops_size s = variant & 2 ? many_tokens(size) : size;
    struct sample_plan plan = ops_plan((int32_t)s.samples, variant & 1);
    struct buffer *b[5], *st;

    TRY(gradient_buffers(c, s, variant & 1, b));
    TRY(statistic(c, s, &st));
    for (int i = 0; i < SIDES; i++) {
        struct rms_grad g = gradient(b, i, s);

        TRY(op_rms_norm_backward(c->dev[i], &g, &st->t[i], norm_of(s), &plan));
    }
    TRY(ops_check(c, b[0], "dx"));
    return ops_check(c, b[1], "dgain");
}

/* variant 1: the local form */
static enum status rms_partial(struct ops_case *c, struct ops_size s, int variant)
{
    struct buffer *x, *gain, *h, *st, *l;

    TRY(inputs(c, s, &x, &gain));
    TRY(ops_poisoned(c, &h, VALUE_ACT, tokens(s), s.cols, 0));
    TRY(ops_poisoned(c, &st, VALUE_WIDE, tokens(s), 1, 0));
    TRY(ops_poisoned(c, &l, VALUE_WIDE, tokens(s), 1, 0));
    for (int i = 0; i < SIDES; i++)
        TRY(op_rms_partial(c->dev[i], &h->t[i], &st->t[i], variant ? &l->t[i] : NULL, &x->t[i],
                           &gain->t[i], norm_of(s)));
    if (variant)
        TRY(ops_check(c, l, "l"));
    TRY(ops_check(c, h, "h"));
    return ops_check(c, st, "s");
}

static enum status rms_stat(struct ops_case *c, struct ops_size s, int variant)
{
    struct buffer *x, *gain, *st;

    (void)variant;
    TRY(inputs(c, s, &x, &gain));
    TRY(ops_poisoned(c, &st, VALUE_WIDE, tokens(s), 1, 0));
    for (int i = 0; i < SIDES; i++)
        TRY(op_rms_stat(c->dev[i], &st->t[i], &x->t[i]));
    return ops_check(c, st, "s");
}

static enum status rms_apply(struct ops_case *c, struct ops_size s, int variant)
{
    struct buffer *x, *gain, *st, *h;

    (void)variant;
    TRY(inputs(c, s, &x, &gain));
    TRY(statistic(c, s, &st));
    TRY(ops_poisoned(c, &h, VALUE_ACT, tokens(s), s.cols, 0));
    for (int i = 0; i < SIDES; i++)
        TRY(op_rms_apply(c->dev[i], &h->t[i], &x->t[i], &gain->t[i], &st->t[i], norm_of(s)));
    return ops_check(c, h, "h");
}

/* Values of one sign: a sum without cancellation, so that its relative error means something. */
static enum status positive(struct ops_case *c, struct buffer *b)
{
    const struct tensor *t = &b->t[SIDE_TEST];

    for (int64_t i = 0; i < t->rows * t->cols; i++)
        b->host[i] = b->host[i] < 0 ? -b->host[i] : b->host[i];
    return ops_set(c, b, b->host);
}

/* The sums behind a norm's gradient, and the coefficients made from them. */
static enum status rms_dot_coef(struct ops_case *c, struct ops_size s, int variant)
{
    struct buffer *x, *gain, *t, *st, *dot, *coef;

    (void)variant;
    TRY(inputs(c, s, &x, &gain));
    TRY(ops_random(c, &t, VALUE_ACT, tokens(s), s.cols, 0, 1.0));
    TRY(positive(c, x));
    TRY(positive(c, gain));
    TRY(positive(c, t));
    TRY(statistic(c, s, &st));
    TRY(ops_poisoned(c, &dot, VALUE_WIDE, tokens(s), 1, 0));
    TRY(ops_poisoned(c, &coef, VALUE_WIDE, tokens(s), 2, 0));
    for (int i = 0; i < SIDES; i++) {
        TRY(op_rms_dot(c->dev[i], &dot->t[i], &t->t[i], &x->t[i], &gain->t[i]));
        TRY(op_rms_coef(c->dev[i], &coef->t[i], &dot->t[i], &st->t[i], norm_of(s)));
    }
    TRY(ops_check(c, dot, "c"));
    return ops_check(c, coef, "coef");
}

/* variants as in rms_norm_backward */
static enum status rms_backward(struct ops_case *c, struct ops_size size, int variant)
{
    struct ops_size s = variant & 2 ? many_tokens(size) : size;
    struct sample_plan plan = ops_plan((int32_t)s.samples, variant & 1);
    struct buffer *b[5], *coef;

    TRY(gradient_buffers(c, s, variant & 1, b));
    TRY(ops_random(c, &coef, VALUE_WIDE, tokens(s), 2, 0, 1.0));
    for (int i = 0; i < SIDES; i++) {
        struct rms_grad g = gradient(b, i, s);

        TRY(op_rms_backward(c->dev[i], &g, &coef->t[i], &plan));
    }
    TRY(ops_check(c, b[0], "dx"));
    return ops_check(c, b[1], "dgain");
}

/* a bias and its gradient; columns of a wider tensor, as q, k and v are; variant 1 joins one that
 * is there */
static enum status bias(struct ops_case *c, struct ops_size s, int variant)
{
    struct sample_plan plan = ops_plan((int32_t)s.samples, variant);
    struct buffer *y, *b, *dy, *db;

    TRY(ops_random(c, &y, VALUE_ACT, tokens(s), s.cols, 3, 1.0));
    TRY(ops_random(c, &b, VALUE_ACT, 1, s.cols, 0, 1.0));
    TRY(ops_random(c, &dy, VALUE_ACT, tokens(s), s.cols, variant ? 8 : 3, 1.0));
    if (variant)
        TRY(ops_random(c, &db, VALUE_WIDE, 1, s.cols, 0, 1.0));
    else
        TRY(ops_poisoned(c, &db, VALUE_WIDE, 1, s.cols, 0));
    for (int i = 0; i < SIDES; i++) {
        TRY(op_bias_forward(c->dev[i], &y->t[i], &b->t[i]));
        TRY(op_bias_backward(c->dev[i], &db->t[i], &dy->t[i], &plan));
    }
    TRY(ops_check(c, y, "y"));
    return ops_check(c, db, "dbias");
}

const struct ops_test ops_norms[] = {{"rms_norm", 1, rms_norm, 2e-6, 4e-3},
                                     {"rms_norm_backward", 4, rms_norm_backward, 1e-5, 6e-3},
                                     {"rms_partial", 2, rms_partial, 2e-6, 4e-3},
                                     {"rms_stat", 1, rms_stat, 2e-6, 2e-6},
                                     {"rms_apply", 1, rms_apply, 2e-6, 4e-3},
                                     {"rms_dot, rms_coef", 1, rms_dot_coef, 2e-6, 2e-6},
                                     {"rms_backward", 4, rms_backward, 1e-5, 6e-3},
                                     {"bias", 2, bias, 2e-6, 4e-3},
                                     {NULL, 0, NULL, 0, 0}};
