/* Grad norm, clipping, AdamW. */
#include "ref/ref.h"
#include "ref/rows.h"

enum {
    PIECE = 32768, /* elements of a grain that one task squares and sums */
    STRIP = 4096   /* elements of a row that one task of AdamW moves */
};

/* A tensor's grains, cut into blocks of whole rows of a grain. */
struct cut {
    int64_t rows, cols;  /* of a grain */
    int64_t block, down; /* rows of a block, blocks of a grain */
    int64_t count;       /* blocks in all */
};

static struct cut cut_of(const struct tensor *t)
{
    struct cut c = {.rows = t->rows / t->row_grains, .cols = t->cols / t->col_grains};

    c.block = c.cols < PIECE ? PIECE / c.cols : 1;
    c.down = (c.rows + c.block - 1) / c.block;
    c.count = t->row_grains * t->col_grains * c.down;
    return c;
}

/* Sum of squares of block k: 16 lanes that run on from row to row. */
static double block_sumsq(const struct tensor *t, const struct cut *c, int64_t k, real *buf)
{
    double lane[16] = {0};
    int64_t grain = k / c->down, row = grain / t->col_grains * c->rows,
            down = k % c->down * c->block;
    int64_t end = down + c->block < c->rows ? down + c->block : c->rows;
    struct tensor part = tensor_cols(t, grain % t->col_grains * c->cols, c->cols, 1);

    for (; down < end; down++)
        row_square_lanes(lane, row_in(&part, row + down, buf), c->cols);
    for (int w = 8; w > 0; w /= 2)
        for (int j = 0; j < w; j++)
            lane[j] += lane[j + w];
    return lane[0];
}

static enum status sumsq_one(struct device *dev, double *table, const struct tensor *t)
{
    struct cut c = cut_of(t);
    double *blocks;

    TRY(ref_scratch(dev, (size_t)c.count * sizeof(double), (size_t)c.cols * sizeof(real)));
    blocks = ref_shared(dev);
#pragma omp parallel for num_threads(dev->threads) schedule(static) if (c.count > 1)
    for (int64_t k = 0; k < c.count; k++)
        blocks[k] = block_sumsq(t, &c, k, ref_thread(dev));
    for (int64_t k = 0; k < c.count; k++)
        table[k / c.down] = k % c.down == 0 ? blocks[k] : table[k / c.down] + blocks[k];
    return ST_OK;
}

enum status ref_sumsq(struct device *dev, struct tensor *table, const struct tensor *t, int n)
{
    double *entry = table->data;

    for (int i = 0; i < n; i++) {
        TRY(sumsq_one(dev, entry, &t[i]));
        entry += t[i].row_grains * t[i].col_grains;
    }
    return ST_OK;
}

enum status ref_clip(struct device *dev, struct tensor *norm_scale, const struct tensor *table,
                     double limit)
{
    double sum = 0, norm, scale = 1, *out = norm_scale->data;

    (void)dev;
    for (int64_t i = 0; i < table->rows; i++)
        sum += ((const double *)table->data)[i];
    norm = sqrt(sum);
    if (limit > 0 && limit < norm + 1e-6)
        scale = limit / (norm + 1e-6);
    out[0] = norm;
    out[1] = isfinite(norm) ? scale : 0;
    return ST_OK;
}

/* The step's scalars, rounded once. */
static void scalars(real k[9], const struct adamw_step *step, double scale, int decay)
{
    k[0] = (real)scale;
    k[1] = (real)step->beta1;
    k[2] = (real)(1 - step->beta1);
    k[3] = (real)step->beta2;
    k[4] = (real)(1 - step->beta2);
    k[5] = (real)(1 / step->bias1);
    k[6] = (real)(1 / step->bias2);
    k[7] = (real)step->eps;
    k[8] = decay ? (real)(1 - step->lr * step->weight_decay) : (real)1;
}

/* A piece of one row: the master (or w itself) moves, w becomes its rounded copy. */
static void adamw_piece(const struct adamw_item *item, int64_t i, const real *k, real lr, real *buf)
{
    int64_t n = item->w.cols;
    const struct tensor *master = item->master.data ? &item->master : &item->w;
    real *w = row_out(master, i, buf), *m = row_out(&item->m, i, buf + n);
    real *v = row_out(&item->v, i, buf + 2 * n);

    if (w == buf)
        (void)row_in(master, i, w);
    if (m == buf + n)
        (void)row_in(&item->m, i, m);
    if (v == buf + 2 * n)
        (void)row_in(&item->v, i, v);
    row_adamw(w, m, v, row_in(&item->g, i, NULL), k, lr, n);
    row_put(&item->m, i, m);
    row_put(&item->v, i, v);
    row_put(master, i, w);
    if (item->master.data && item->w.dtype == REAL_DTYPE)
        memcpy(tensor_row(&item->w, i), w, (size_t)n * sizeof(real));
    else if (item->master.data)
        row_put(&item->w, i, w);
}

/* Columns [col, col + cols) of all tensors of an item. */
static struct adamw_item slice(const struct adamw_item *item, int64_t col, int64_t cols)
{
    struct adamw_item s = *item;

    s.w = tensor_cols(&item->w, col, cols, 1);
    s.m = tensor_cols(&item->m, col, cols, 1);
    s.v = tensor_cols(&item->v, col, cols, 1);
    s.g = tensor_cols(&item->g, col, cols, 1);
    if (item->master.data)
        s.master = tensor_cols(&item->master, col, cols, 1);
    return s;
}

enum status ref_adamw(struct device *dev, const struct adamw_item *item, int n,
                      const struct adamw_step *step, const struct tensor *norm_scale)
{
    double scale = ((const double *)norm_scale->data)[1];

    if (scale == 0)
        return ST_OK;
    TRY(ref_scratch(dev, 0, 3 * STRIP * sizeof(real)));
    for (int t = 0; t < n; t++) {
        int64_t cols = item[t].w.cols, strips = (cols + STRIP - 1) / STRIP;
        real k[9];

        scalars(k, step, scale, item[t].decay);
#pragma omp parallel for num_threads(dev->threads) schedule(static)
        for (int64_t i = 0; i < item[t].w.rows * strips; i++) {
            int64_t col = i % strips * STRIP, left = cols - col;
            struct adamw_item s = slice(&item[t], col, left < STRIP ? left : STRIP);

            adamw_piece(&s, i / strips, k, (real)step->lr, ref_thread(dev));
        }
    }
    return ST_OK;
}
