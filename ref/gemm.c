/* Matrix products. Their bits are those of one call of OpenBLAS for each (piece of rows, piece of
 * columns, grain of K), summed over grains by a tree: the shape of a piece is the same in every
 * layout, how many of them a rank holds is not. Larger calls are made where they have been seen to
 * give the same bits (calls.h). */
#include "ref/blocks.h"
#include "ref/calls.h"
#include "ref/ref.h"
#include "ref/rows.h"

struct pair {
    struct ref_operand a, b;
    int64_t k; /* columns of a in one grain */
};

/* A member of the group, as its tasks see it. */
struct job {
    const struct gemm *g;
    struct pair pair[3];
    int32_t grains;      /* of K */
    int direct;          /* the product goes straight into y */
    int fuses;           /* a grain's product may be added by its own call */
    struct blocks tasks; /* of y; whole pieces when direct, several side by side where they join */
};

static struct pair pair_of(struct device *dev, const struct tensor *a, const struct tensor *b,
                           char **at)
{
    struct pair p;

    p.a = ref_operand(dev, a, at);
    p.b = ref_operand(dev, b, at);
    p.k = a->cols / a->col_grains;
    return p;
}

static enum call_kind kind_of(const struct gemm *g)
{
    return g->kind == GEMM_NT ? CALL_NT : CALL_NN;
}

/* How many pieces side by side one call computes, when `tasks` calls are wanted at least. */
static int32_t joined(struct ref_calls *calls, const struct job *j, int64_t tasks)
{
    const struct gemm *g = j->g;
    struct call_shape s = {kind_of(g), g->y.rows / g->a.row_grains, g->y.cols / g->y.col_grains, 0};
    int32_t n =
        calls_divisor(g->y.col_grains, s.rows * s.cols, j->direct ? LONE_ELEMENTS : BLOCK_ELEMENTS,
                      (int64_t)g->a.row_grains * g->y.col_grains, tasks);

    for (int i = 0; i <= g->more; i++) {
        s.k = j->pair[i].k;
        if (!ref_joins(calls, &s, 1, n))
            return 1;
    }
    return n;
}

static void prepare(struct job *j, struct ref_device *d, const struct gemm *g, int64_t tasks,
                    char **at)
{
    int32_t n;

    j->g = g;
    j->grains = g->a.col_grains;
    j->direct = j->grains == 1 && !g->k_scale && g->y.dtype == REAL_DTYPE;
    j->pair[0] = pair_of(&d->base, &g->a, &g->b, at);
    for (int i = 0; i < g->more; i++)
        j->pair[i + 1] = pair_of(&d->base, &g->part[i].a, &g->part[i].b, at);
    n = joined(&d->calls, j, tasks);
    j->tasks = blocks_cut(g->y.rows / g->a.row_grains, g->y.cols / g->y.col_grains * n,
                          g->a.row_grains, g->y.col_grains / n, j->direct ? 0 : BLOCK_ELEMENTS);
    j->fuses = j->grains > 1 && g->more == 0 && !g->k_scale &&
               ref_fuses_blocks(&d->calls, kind_of(g), &j->tasks, j->pair[0].k);
}

/* out = beta out + the partial product of one grain of K. */
static void product(const struct job *j, const struct block *r, int32_t grain, real beta, real *out,
                    int64_t ld)
{
    struct call_shape s = {kind_of(j->g), r->rows, r->cols, 0};

    for (int i = 0; i <= j->g->more; i++) {
        const struct pair *p = &j->pair[i];
        struct call_operand a = {p->a.p + r->row * p->a.ld + grain * p->k, p->a.ld};
        struct call_operand b = {p->b.p, p->b.ld};

        b.p += s.kind == CALL_NT ? r->col * b.ld + grain * p->k : grain * p->k * b.ld + r->col;
        s.k = p->k;
        ref_call(&s, a, b, i == 0 ? beta : 1, out, ld);
    }
}

/* y = c, or y + c, row by row; what the product is then added to. */
static void add_residual(const struct job *j, const struct block *r, real *row)
{
    const struct tensor *c = j->g->c;
    struct tensor part = tensor_cols(c, r->col, r->cols, 1);

    for (int64_t i = r->row; i < r->row + r->rows; i++) {
        real *y = (real *)j->g->y.data + i * j->g->y.stride + r->col;
        const real *x = row_in(&part, i, row);

        if (j->g->accumulate)
            row_add(y, y, x, r->cols);
        else if (x != y)
            memcpy(y, x, (size_t)r->cols * sizeof(real));
    }
}

static void run_direct(const struct job *j, const struct block *r, real *row)
{
    const struct tensor *y = &j->g->y;

    if (j->g->c)
        add_residual(j, r, row);
    product(j, r, 0, j->g->c || j->g->accumulate ? 1 : 0,
            (real *)y->data + r->row * y->stride + r->col, y->stride);
}

/* buf[rows, cols] = sum of grains [lo, hi); what follows buf is used for right branches. */
static void sum_grains(const struct job *j, const struct block *r, int32_t lo, int32_t hi,
                       real *buf)
{
    int32_t mid = lo + (hi - lo) / 2;
    int64_t size = r->rows * r->cols;
    const struct tensor *scale = j->g->k_scale;

    if (hi - lo > 1) {
        sum_grains(j, r, lo, mid, buf);
        if (hi - mid == 1 && j->fuses) {
            product(j, r, mid, 1, buf, r->cols);
            return;
        }
        sum_grains(j, r, mid, hi, buf + size);
        row_add(buf, buf, buf + size, size);
        return;
    }
    product(j, r, lo, 0, buf, r->cols);
    for (int64_t i = 0; scale && i < r->rows; i++)
        row_scale(buf + i * r->cols, buf + i * r->cols,
                  ((const real *)scale->data)[(r->row + i) * scale->stride + lo], r->cols);
}

/* Row i of y's block = sum (+ that of the other half of the tree, a block further) + c + y. sum
 * changes; row is a buffer. */
static void finish_row(const struct job *j, const struct block *r, int64_t i, real *sum, real *row)
{
    struct tensor y = tensor_cols(&j->g->y, r->col, r->cols, 1);

    if (j->grains > 1)
        row_add(sum, sum, sum + r->rows * r->cols, r->cols);
    if (j->g->c) {
        struct tensor c = tensor_cols(j->g->c, r->col, r->cols, 1);

        row_add(sum, sum, row_in(&c, i, row), r->cols);
    }
    if (j->g->accumulate)
        row_add(sum, sum, row_in(&y, i, row), r->cols);
    if (y.dtype == REAL_DTYPE)
        memcpy(tensor_row(&y, i), sum, (size_t)r->cols * sizeof(real));
    else
        row_put(&y, i, sum);
}

/* The last addition of the tree is done on the way into y. */
static void run_tree(const struct job *j, const struct block *r, real *row, real *buf)
{
    int32_t mid = j->grains > 1 ? j->grains / 2 : 1;

    sum_grains(j, r, 0, mid, buf);
    if (j->grains > 1)
        sum_grains(j, r, mid, j->grains, buf + r->rows * r->cols);
    for (int64_t i = 0; i < r->rows; i++)
        finish_row(j, r, r->row + i, buf + i * r->cols, row);
}

static size_t scratch_of_thread(const struct job *j)
{
    int64_t block = j->tasks.block_rows * j->tasks.block_cols, levels = 1;

    for (int32_t g = j->grains; g > 1; g = (g + 1) / 2)
        levels++;
    return (size_t)(j->tasks.block_cols + (j->direct ? 0 : levels * block)) * sizeof(real);
}

static void run_task(struct device *dev, const struct job *jobs, int64_t task)
{
    real *row = ref_thread(dev);
    struct block r;

    while (task >= jobs->tasks.count)
        task -= jobs++->tasks.count;
    r = blocks_at(&jobs->tasks, task);
    if (jobs->direct)
        run_direct(jobs, &r, row);
    else
        run_tree(jobs, &r, row, row + jobs->tasks.block_cols);
}

static size_t operands_size(const struct gemm *g)
{
    size_t bytes = ref_operand_size(&g->a) + ref_operand_size(&g->b);

    for (int i = 0; i < g->more; i++)
        bytes += ref_operand_size(&g->part[i].a) + ref_operand_size(&g->part[i].b);
    return bytes;
}

enum status ref_gemm(struct device *dev, const struct gemm *g, int n)
{
    size_t head = ((size_t)n * sizeof(struct job) + 63) / 64 * 64, shared = head, thread = 0;
    int64_t tasks = 0, wanted = blocks_ceil(2 * dev->threads, n);
    struct job *jobs;
    char *at;

    for (int i = 0; i < n; i++)
        shared += operands_size(&g[i]);
    TRY(ref_scratch(dev, shared, 0));
    jobs = ref_shared(dev);
    at = (char *)jobs + head;
    for (int i = 0; i < n; i++) {
        prepare(&jobs[i], (struct ref_device *)dev, &g[i], wanted, &at);
        tasks += jobs[i].tasks.count;
        thread = scratch_of_thread(&jobs[i]) > thread ? scratch_of_thread(&jobs[i]) : thread;
    }
    TRY(ref_scratch(dev, shared, thread));
#pragma omp parallel for num_threads(dev->threads) schedule(dynamic, 1) if (tasks > 1)
    for (int64_t t = 0; t < tasks; t++)
        run_task(dev, jobs, t);
    return ST_OK;
}
