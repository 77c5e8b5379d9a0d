/* dw += dy' x, a tree over samples. The bits are those of blocks whose shape depends on that of a
 * grain of dw alone, one call of OpenBLAS for each block and sample; calls.h tells where larger
 * ones have the same bits, and where the call may add its product itself. */
#include "ref/blocks.h"
#include "ref/calls.h"
#include "ref/ref.h"
#include "ref/rows.h"

struct job {
    struct tensor dw;
    struct ref_operand dy, x;
    const struct sample_plan *plan;
    int64_t rows;        /* of one sample, or of all with exact = 0 */
    int fuses;           /* a sample's product may be added by its own call */
    struct blocks tasks; /* of dw */
};

/* Blocks of dw, grains that join in one; `tasks` of them are wanted at least. */
static struct blocks cut(struct ref_calls *calls, const struct tensor *dw, int64_t k, int64_t tasks)
{
    struct call_shape s = {CALL_TN, dw->rows / dw->row_grains, dw->cols / dw->col_grains, k};
    int64_t size = s.rows * s.cols, count = (int64_t)dw->row_grains * dw->col_grains;
    int32_t across = calls_divisor(dw->col_grains, size, LONE_ELEMENTS, count, tasks);
    int32_t down =
        calls_divisor(dw->row_grains, size * across, LONE_ELEMENTS, count / across, tasks);

    if (!ref_joins(calls, &s, down, across))
        down = across = 1;
    return blocks_cut(s.rows * down, s.cols * across, dw->row_grains / down,
                      dw->col_grains / across, LONE_ELEMENTS);
}

static void prepare(struct job *j, struct ref_device *d, const struct weight_grad *w,
                    const struct sample_plan *plan, int64_t tasks, char **at)
{
    j->dw = w->dw;
    j->dy = ref_operand(&d->base, &w->dy, at);
    j->x = ref_operand(&d->base, &w->x, at);
    j->plan = plan;
    j->rows = plan->exact ? w->dy.rows / plan->samples : w->dy.rows;
    j->tasks = cut(&d->calls, &w->dw, j->rows, tasks);
    j->fuses = plan->exact && ref_fuses_blocks(&d->calls, CALL_TN, &j->tasks, j->rows);
}

/* out = beta out + the product of one sample. */
static void leaf(const struct job *j, const struct block *r, int64_t sample, real beta, real *out,
                 int64_t ld)
{
    struct call_shape s = {CALL_TN, r->rows, r->cols, j->rows};
    int64_t row = sample * j->rows;

    ref_call(&s, (struct call_operand){j->dy.p + row * j->dy.ld + r->row, j->dy.ld},
             (struct call_operand){j->x.p + row * j->x.ld + r->col, j->x.ld}, beta, out, ld);
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
    if (hi - mid == 1 && j->fuses) {
        leaf(j, r, mid, 1, buf, r->cols);
        return;
    }
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
    int64_t tasks = 0, wanted = blocks_ceil(2 * dev->threads, n);
    struct job *jobs;
    char *at;

    for (int i = 0; i < n; i++)
        shared += ref_operand_size(&w[i].dy) + ref_operand_size(&w[i].x);
    TRY(ref_scratch(dev, shared, 0));
    jobs = ref_shared(dev);
    at = (char *)jobs + head;
    for (int i = 0; i < n; i++) {
        prepare(&jobs[i], (struct ref_device *)dev, &w[i], plan, wanted, &at);
        tasks += jobs[i].tasks.count;
        thread = scratch_of_thread(&jobs[i]) > thread ? scratch_of_thread(&jobs[i]) : thread;
    }
    TRY(ref_scratch(dev, shared, thread));
#pragma omp parallel for num_threads(dev->threads) schedule(dynamic, 1) if (tasks > 1)
    for (int64_t t = 0; t < tasks; t++)
        run_task(dev, jobs, t);
    return ST_OK;
}
