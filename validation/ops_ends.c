#include "validation/ops.h"

static int64_t tokens(struct ops_size s)
{
    return s.samples * s.seq;
}

static int64_t vocab(struct ops_size s)
{
    return s.cols + 8;
}

/* No negative ids in inputs. Of eight tokens `common` are one that is in the first half of `names`
 * rows. */
static enum status embed_ids(struct ops_case *c, struct buffer **ids, struct ops_size s,
                             int64_t names, int common)
{
    int64_t id = names / 4;

    TRY(ops_random(c, ids, VALUE_INT, tokens(s), 1, 0, (double)names));
    for (int64_t i = 0; i < tokens(s); i++) {
        if ((*ids)->host[i] < 0)
            (*ids)->host[i] = 0;
        if (i % 8 < common)
            (*ids)->host[i] = (double)id;
    }
    return ops_set(c, *ids, (*ids)->host);
}

/* More tokens, fewer columns; in two trials so many that a device lists them in several steps. */
static struct ops_size embed_crowd(struct ops_size s)
{
    return s.cols == 8    ? (struct ops_size){61, 279, 8}
           : s.cols == 33 ? (struct ops_size){73, 247, 33}
                          : (struct ops_size){s.samples, 4 * s.seq, s.cols > 520 ? 520 : s.cols};
}

/* Rows of a shard that holds half of the vocabulary: variants 1 and 3 the second half; 2 and 3 join
 * a gradient that is there. From variant 4 on there is a crowd, and one token is in most places;
 * from 8 on in all, so that the second half has none. */
static enum status embed(struct ops_case *c, struct ops_size size, int variant)
{
    int crowd = variant >= 4;
    struct ops_size s = crowd ? embed_crowd(size) : size;
    int64_t names = tokens(s) > 16384 ? 1100 : vocab(s);
    int64_t rows = (names + 1) / 2, row0 = variant & 1 ? rows : 0;
    struct sample_plan plan = ops_plan((int32_t)s.samples, (variant & 2) != 0);
    struct buffer *ids, *w, *y, *dw, *dy;

    TRY(embed_ids(c, &ids, s, names, !crowd ? 0 : variant < 8 ? 6 : 8));
    TRY(ops_random(c, &w, VALUE_ACT, rows, s.cols, 0, 1.0));
    TRY(ops_random(c, &dy, VALUE_ACT, tokens(s), s.cols, 0, 1.0));
    TRY(ops_poisoned(c, &y, VALUE_ACT, tokens(s), s.cols, 0));
    if (variant & 2)
        TRY(ops_random(c, &dw, VALUE_WIDE, rows, s.cols, 0, 1.0));
    else
        TRY(ops_poisoned(c, &dw, VALUE_WIDE, rows, s.cols, 0));
    for (int i = 0; i < SIDES; i++) {
        ids->t[i].row_grains = dy->t[i].row_grains = (int32_t)s.samples;
        TRY(op_embed_forward(c->dev[i], &y->t[i], &w->t[i], &ids->t[i], row0));
        TRY(op_embed_backward(c->dev[i], &dw->t[i], &dy->t[i], &ids->t[i], row0, &plan));
    }
    TRY(ops_check(c, y, "y"));
    return ops_check(c, dw, "dw");
}

/* Statistics of two shards of the vocabulary, then loss and gradients, on one side. */
static enum status two_shards(struct device *dev, struct tensor l[2], const struct tensor *targets,
                              struct tensor *st, struct tensor *loss, int64_t valid, double scale)
{
    int64_t m = targets->rows;

    for (int j = 0; j < 2; j++) {
        struct tensor part = tensor_rows(st, j * m, m, 1);
        struct vocab_cut cut = {.first = j * l[j].cols, .valid = valid};

        TRY(op_ce_stats(dev, &part, &l[j], targets, cut));
    }
    for (int j = 0; j < 2; j++) {
        struct vocab_cut cut = {.first = j * l[j].cols, .valid = valid};

        TRY(op_ce_grad(dev, loss, &l[j], st, targets, cut, scale));
    }
    return ST_OK;
}

/* Padded columns at the end, ignored targets. variant 1: with gradients. */
static enum status cross_entropy(struct ops_case *c, struct ops_size s, int variant)
{
    int64_t m = tokens(s), v = vocab(s), shard = (v + 1) / 2;
    struct buffer *l[2], *targets, *st, *loss;

    TRY(ops_random(c, &targets, VALUE_INT, m, 1, 0, (double)(v - 3)));
    TRY(ops_poisoned(c, &st, VALUE_WIDE, 2 * m, 3, 0));
    TRY(ops_poisoned(c, &loss, VALUE_WIDE, m, 1, 0));
    for (int j = 0; j < 2; j++)
        TRY(ops_random(c, &l[j], VALUE_ACT, m, shard, 0, 4.0));
    for (int i = 0; i < SIDES; i++) {
        struct tensor side[2] = {l[0]->t[i], l[1]->t[i]};

        TRY(two_shards(c->dev[i], side, &targets->t[i], &st->t[i], &loss->t[i], v - 3,
                       variant ? 0.25 : 0.0));
    }
    TRY(ops_check(c, loss, "loss"));
    TRY(ops_check(c, l[0], "logits' gradient"));
    return ops_check(c, l[1], "logits' gradient");
}

static enum status cols(struct ops_case *c, struct ops_size s, int variant)
{
    int64_t m = tokens(s), p = variant ? 4 : 2;
    struct buffer *x, *parts, *back;

    TRY(ops_random(c, &x, VALUE_ACT, m, p * s.cols, 0, 1.0));
    TRY(ops_poisoned(c, &parts, VALUE_ACT, p * m, s.cols, 0));
    TRY(ops_poisoned(c, &back, VALUE_ACT, m, p * s.cols, 0));
    for (int i = 0; i < SIDES; i++) {
        TRY(op_cols_split(c->dev[i], &parts->t[i], &x->t[i]));
        TRY(op_cols_join(c->dev[i], &back->t[i], &parts->t[i]));
    }
    TRY(ops_check(c, parts, "parts"));
    return ops_check(c, back, "joined");
}

static enum status sum_tree(struct ops_case *c, struct ops_size s, int variant)
{
    int64_t p = variant ? 3 : 8;
    struct buffer *sum, *parts;

    TRY(ops_random(c, &parts, VALUE_WIDE, p * tokens(s), s.cols, 0, 1.0));
    TRY(ops_poisoned(c, &sum, VALUE_WIDE, tokens(s), s.cols, 0));
    for (int i = 0; i < SIDES; i++)
        TRY(op_sum_tree(c->dev[i], &sum->t[i], &parts->t[i]));
    return ops_check(c, sum, "s");
}

/* variant 0 wide to act, 1 act to wide; into columns of a wider tensor */
static enum status convert(struct ops_case *c, struct ops_size s, int variant)
{
    struct buffer *x, *y;

    TRY(ops_random(c, &x, variant ? VALUE_ACT : VALUE_WIDE, tokens(s), s.cols, 0, 1.0));
    TRY(ops_poisoned(c, &y, variant ? VALUE_WIDE : VALUE_ACT, tokens(s), s.cols, 5));
    for (int i = 0; i < SIDES; i++)
        TRY(op_convert(c->dev[i], &y->t[i], &x->t[i], 1));
    return ops_check(c, y, "y");
}

/* Pairs of all sizes and both ways in one call, more than a backend may take at once: whole
 * tensors, single rows, columns of a wider tensor; and one in float64. */
static enum status convert_list(struct ops_case *c, struct ops_size s, int variant)
{
    enum { PAIRS = 3, COPIES = 22, LIST = PAIRS * COPIES + 1 };
    struct buffer *x[PAIRS + 1], *y[PAIRS + 1];
    int64_t rows = tokens(s);

    for (int k = 0; k < PAIRS; k++) {
        enum value_kind from = (k + variant) % 2 ? VALUE_ACT : VALUE_WIDE;
        enum value_kind into = k == 0 ? VALUE_ACT : k == 1 ? VALUE_WIDE : from;
        int64_t gap = k == 1 ? 5 : k == 2 ? 8 : 0;

        TRY(ops_random(c, &x[k], from, COPIES * rows, s.cols, gap, 1.0));
        TRY(ops_poisoned(c, &y[k], into, COPIES * rows, s.cols, 8 - gap));
    }
    TRY(ops_random(c, &x[PAIRS], VALUE_WIDE, rows, 1, 0, 1.0));
    TRY(ops_poisoned(c, &y[PAIRS], VALUE_F64, rows, 1, 0));
    for (int i = 0; i < SIDES; i++) {
        struct tensor from[LIST], to[LIST];

        for (int j = 0; j < LIST; j++) {
            int k = j % PAIRS, whole = j == LIST - 1;

            from[j] = whole ? x[PAIRS]->t[i] : tensor_rows(&x[k]->t[i], j / PAIRS * rows, rows, 1);
            to[j] = whole ? y[PAIRS]->t[i] : tensor_rows(&y[k]->t[i], j / PAIRS * rows, rows, 1);
        }
        TRY(op_convert(c->dev[i], to, from, LIST));
    }
    for (int k = 0; k <= PAIRS; k++)
        TRY(ops_check(c, y[k], "y"));
    return ST_OK;
}

const struct ops_test ops_ends[] = {{"embed", 12, embed, 2e-6, 2e-6},
                                    {"ce_stats, ce_grad", 2, cross_entropy, 1e-5, 4e-3},
                                    {"cols_split, cols_join", 2, cols, 0, 0},
                                    {"sum_tree", 2, sum_tree, 2e-6, 2e-6},
                                    {"convert", 2, convert, 2e-7, 4e-3},
                                    {"convert, list", 2, convert_list, 2e-7, 4e-3},
                                    {NULL, 0, NULL, 0, 0}};
