/* dw += dy' x, a tree over samples. Blocks of dw are small enough that the partial sums of a few
 * levels of the tree stay in cache; their shape depends on that of a grain of dw alone. */
#include "ref/blocks.h"
#include "ref/ref.h"
#include "ref/rows.h"

#include <cblas.h>

/* Of a block that is one product over all rows, without a tree: at 512 x 512 OpenBLAS reaches its
 * full rate, at half of it three quarters. */
enum { WHOLE_ELEMENTS = 262144 };

struct job {
    struct tensor dw;
    struct ref_operand dy, x;
    const struct sample_plan *plan;
    int64_t rows;        /* of one sample, or of all with exact = 0 */
    struct blocks tasks; /* of dw */
};

static void prepare(struct job *j, struct device *dev, const struct weight_grad *w,
                    const struct sample_plan *plan, char **at)
{
    j->dw = w->dw;
    j->dy = ref_operand(dev, &w->dy, at);
    j->x = ref_operand(dev, &w->x, at);
    j->plan = plan;
    j->rows = plan->exact ? w->dy.rows / plan->samples : w->dy.rows;
    j->tasks =
        blocks_cut(w->dw.rows / w->dw.row_grains, w->dw.cols / w->dw.col_grains, w->dw.row_grains,
                   w->dw.col_grains, plan->exact ? BLOCK_ELEMENTS : WHOLE_ELEMENTS);
}

/* out = beta out + the product of one sample. */
static void leaf(const struct job *j, const struct block *r, int64_t sample, real beta, real *out,
                 int64_t ld)
{
    int64_t row = sample * j->rows;

    cblas_rgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)r->rows, (int)r->cols, (int)j->rows,
                1, j->dy.p + row * j->dy.ld + r->row, (int)j->dy.ld,
                j->x.p + row * j->x.ld + r->col, (int)j->x.ld, beta, out, (int)ld);
}

/* buf[rows, cols] = sum of samples [lo, hi); what follows buf is used for right branches. */
static void sum_samples(const struct job *j, const struct block *r, int64_t lo, int64_t hi,
                        real *buf)
{
    int64_t size = r->rows * r->cols, mid = row_mid(lo, hi);

    if (hi - lo == 1) {
        leaf(j, r, lo, 0, buf, r->cols);
        return;
    }
    sum_samples(j, r, lo, mid, buf);
    sum_samples(j, r, mid, hi, buf + size);
    row_add(buf, buf, buf + size, size);
}

static void run_node(const struct job *j, const struct block *r, const struct sample_node *node,
                     real *buf)
{
    int64_t first = node->first, end = first + node->count, size = r->rows * r->cols;
    real *dst = (real *)j->dw.data + r->row * j->dw.stride + r->col, *right = buf + size;
    char *slot = (char *)dst + node->slot * j->plan->plane;

    if (node->count == 1 && node->merges == 0) {
        leaf(j, r, first, 0, (real *)slot, j->dw.stride);
        return;
    }
    sum_samples(j, r, first, node->count > 1 ? row_mid(first, end) : end, buf);
    if (node->count > 1)
        sum_samples(j, r, row_mid(first, end), end, right);
    for (int64_t i = 0; i < r->rows; i++) {
        real *row = buf + i * r->cols;

        if (node->count > 1)
            row_add(row, row, right + i * r->cols, r->cols);
        ref_join(dst + i * j->dw.stride, row, r->cols, node, j->plan->plane);
    }
}

static void run_task(struct device *dev, const struct job *jobs, int64_t task)
{
    struct block r;

    while (task >= jobs->tasks.count)
        task -= jobs++->tasks.count;
    r = blocks_at(&jobs->tasks, task);
    if (!jobs->plan->exact) {
        leaf(jobs, &r, 0, jobs->plan->node[0].merges > 0 ? 1 : 0,
             (real *)jobs->dw.data + r.row * jobs->dw.stride + r.col, jobs->dw.stride);
        return;
    }
    for (int32_t i = 0; i < jobs->plan->nodes; i++)
        run_node(jobs, &r, &jobs->plan->node[i], ref_thread(dev));
}

static size_t scratch_of_thread(const struct job *j)
{
    int64_t levels = 2;

    for (int64_t s = j->plan->samples; s > 1; s = (s + 1) / 2)
        levels++;
    return (size_t)(levels * j->tasks.block_rows * j->tasks.block_cols) * sizeof(real);
}

enum status ref_weight_grad(struct device *dev, const struct weight_grad *w, int n,
                            const struct sample_plan *plan)
{
    size_t head = ((size_t)n * sizeof(struct job) + 63) / 64 * 64, shared = head, thread = 0;
    int64_t tasks = 0;
    struct job *jobs;
    char *at;

    for (int i = 0; i < n; i++)
        shared += ref_operand_size(&w[i].dy) + ref_operand_size(&w[i].x);
    TRY(ref_scratch(dev, shared, 0));
    jobs = ref_shared(dev);
    at = (char *)jobs + head;
    for (int i = 0; i < n; i++) {
        prepare(&jobs[i], dev, &w[i], plan, &at);
        tasks += jobs[i].tasks.count;
        thread = scratch_of_thread(&jobs[i]) > thread ? scratch_of_thread(&jobs[i]) : thread;
    }
    TRY(ref_scratch(dev, shared, thread));
#pragma omp parallel for num_threads(dev->threads) schedule(dynamic, 1) if (tasks > 1)
    for (int64_t t = 0; t < tasks; t++)
        run_task(dev, jobs, t);
    return ST_OK;
}
