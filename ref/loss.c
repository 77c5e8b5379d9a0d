/* Cross entropy over a vocabulary of which a rank holds some columns. */
#include "ref/ref.h"
#include "ref/rows.h"
#include "ref/vmath.h"

#include "common/base/elementary.h"

/* Largest logit of a set of columns and the sum of exp(logit - largest); empty: -inf, 0. */
struct soft {
    real top, sum;
};

static int soft_empty(struct soft a)
{
    return a.sum == 0 && a.top == (real)-INFINITY;
}

/* Padding stands at the end, so that a is empty only when b is. A NaN among the logits has made the
 * sum NaN, and stays there. */
static struct soft soft_join(struct soft a, struct soft b)
{
    real top = a.top > b.top ? a.top : b.top;

    if (soft_empty(b))
        return a;
    return (struct soft){.top = top,
                         .sum = a.sum * vmath_exp(a.top - top) + b.sum * vmath_exp(b.top - top)};
}

/* How many of `cols` columns from `first` on belong to the tokenizer. */
static int64_t valid_cols(int64_t first, int64_t cols, int64_t valid)
{
    int64_t n = valid - first;

    return n < 0 ? 0 : n > cols ? cols : n;
}

/* Grains [lo, hi) of a row of logits. */
static struct soft soft_grains(const real *x, int64_t width, int64_t lo, int64_t hi,
                               struct vocab_cut cut, real *buf)
{
    int64_t mid = row_mid(lo, hi), n = valid_cols(cut.first + lo * width, width, cut.valid);
    struct soft s = {.top = (real)-INFINITY, .sum = 0};

    if (hi - lo > 1)
        return soft_join(soft_grains(x, width, lo, mid, cut, buf),
                         soft_grains(x, width, mid, hi, cut, buf));
    if (n == 0)
        return s;
    s.top = row_max(x + lo * width, n);
    row_exp(buf, x + lo * width, 1, s.top, n);
    s.sum = row_sum(buf, n);
    return s;
}

static int64_t target_col(const struct tensor *targets, int64_t i, int64_t cols,
                          struct vocab_cut cut)
{
    int64_t target = ((const int32_t *)targets->data)[i * targets->stride];
    int64_t col = target - cut.first;

    return target < 0 || target >= cut.valid || col < 0 || col >= cols ? -1 : col;
}

enum status ref_ce_stats(struct device *dev, struct tensor *st, const struct tensor *logits,
                         const struct tensor *targets, struct vocab_cut cut)
{
    int64_t cols = logits->cols, width = cols / logits->col_grains;

    TRY(ref_scratch(dev, 0, (size_t)(cols + width) * sizeof(real)));
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int64_t i = 0; i < logits->rows; i++) {
        real *buf = ref_thread(dev), *out = (real *)st->data + i * st->stride;
        const real *x = row_in(logits, i, buf);
        struct soft s = soft_grains(x, width, 0, logits->col_grains, cut, buf + cols);
        int64_t target = target_col(targets, i, cols, cut);

        out[0] = s.top;
        out[1] = s.sum;
        out[2] = target < 0 ? 0 : x[target];
    }
    return ST_OK;
}

/* The statistics of row i over ranks [lo, hi); *target adds up the target's logit. */
static struct soft soft_ranks(real *target, const struct tensor *st, int64_t rows, int64_t i,
                              int64_t lo, int64_t hi)
{
    int64_t mid = row_mid(lo, hi);
    const real *x = (const real *)st->data + (lo * rows + i) * st->stride;
    struct soft left, right;

    if (hi - lo == 1) {
        *target += x[2]; /* at most one rank's is not 0 */
        return (struct soft){.top = x[0], .sum = x[1]};
    }
    left = soft_ranks(target, st, rows, i, lo, mid);
    right = soft_ranks(target, st, rows, i, mid, hi);
    return soft_join(left, right);
}

/* A row of logits becomes (softmax - onehot) scale, 0 where padded. */
static void grad_row(real *x, int64_t cols, struct soft s, int64_t target, struct vocab_cut cut,
                     real scale)
{
    int64_t n = valid_cols(cut.first, cols, cut.valid);
    real hit = target < 0 ? 0 : (vmath_exp(x[target] - s.top) / s.sum - (real)1) * scale;

    row_exp(x, x, 1, s.top, n);
    row_scale(x, x, scale / s.sum, n);
    if (target >= 0)
        x[target] = hit;
    memset(x + n, 0, (size_t)(cols - n) * sizeof(real));
}

/* What all rows share. */
struct ce {
    const struct tensor *st, *targets;
    struct vocab_cut cut;
    real scale; /* 0: the loss alone */
};

static void ce_row(struct tensor *loss, struct tensor *logits, const struct ce *ce, int64_t i,
                   real *buf)
{
    int64_t rows = logits->rows, cols = logits->cols;
    int32_t target = ((const int32_t *)ce->targets->data)[i * ce->targets->stride];
    int ignored = target < 0;
    real *x = row_out(logits, i, buf);
    /* No token has that number: such a target must not pass for a cheap one. */
    real logit = target >= ce->cut.valid ? (real)NAN : 0;
    struct soft s = soft_ranks(&logit, ce->st, rows, i, 0, ce->st->rows / rows);

    ((real *)loss->data)[i * loss->stride] =
        ignored ? 0 : (real)elementary_log((double)s.sum) + (s.top - logit);
    if (ce->scale == 0)
        return;
    if (x == buf)
        (void)row_in(logits, i, buf);
    if (ignored)
        memset(x, 0, (size_t)cols * sizeof(real));
    else
        grad_row(x, cols, s, target_col(ce->targets, i, cols, ce->cut), ce->cut, ce->scale);
    row_put(logits, i, x);
}

enum status ref_ce_grad(struct device *dev, struct tensor *loss, struct tensor *logits,
                        const struct tensor *st, const struct tensor *targets, struct vocab_cut cut,
                        double scale)
{
    struct ce ce = {.st = st, .targets = targets, .cut = cut, .scale = (real)scale};

    TRY(ref_scratch(dev, 0, (size_t)logits->cols * sizeof(real)));
#pragma omp parallel for num_threads(dev->threads) schedule(static)
    for (int64_t i = 0; i < logits->rows; i++)
        ce_row(loss, logits, &ce, i, ref_thread(dev));
    return ST_OK;
}
