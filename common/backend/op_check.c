#include "common/backend/op_check.h"

static int type_fits(const struct device *dev, enum dtype dt, enum op_type type)
{
    switch (type) {
    case OP_WIDE:
        return dt == dev->wide;
    case OP_FLOAT:
        return dt == dev->wide || (dt == DT_BF16 && dev->wide == DT_F32);
    case OP_I32:
        return dt == DT_I32;
    default:
        return dt == DT_F64;
    }
}

static const char *type_name(const struct device *dev, enum op_type type)
{
    switch (type) {
    case OP_WIDE:
        return dtype_name(dev->wide);
    case OP_FLOAT:
        return dev->wide == DT_F32 ? "f32 or bf16" : "f64";
    case OP_I32:
        return "i32";
    default:
        return "f64";
    }
}

enum status op_check(const struct device *dev, struct op_arg arg)
{
    const struct tensor *t = arg.t;

    if (!type_fits(dev, t->dtype, arg.type))
        return fail(ST_EDTYPE, "%s: %s is %s, must be %s", arg.op, arg.name, dtype_name(t->dtype),
                    type_name(dev, arg.type));
    if (t->rows != arg.rows || t->cols != arg.cols)
        return fail(ST_ESHAPE, "%s: %s is [%lld, %lld], must be [%lld, %lld]", arg.op, arg.name,
                    (long long)t->rows, (long long)t->cols, (long long)arg.rows,
                    (long long)arg.cols);
    if (t->rows > 1 && t->stride < t->cols)
        return fail(ST_ESHAPE, "%s: %s has rows of %lld columns every %lld elements", arg.op,
                    arg.name, (long long)t->cols, (long long)t->stride);
    if (t->row_grains < 1 || t->col_grains < 1 || t->rows % t->row_grains != 0 ||
        t->cols % t->col_grains != 0)
        return fail(ST_ESHAPE, "%s: %s is [%lld, %lld], which %d by %d grains do not divide",
                    arg.op, arg.name, (long long)t->rows, (long long)t->cols, t->row_grains,
                    t->col_grains);
    return ST_OK;
}

enum status op_check_plan(const struct sample_plan *plan, int64_t rows, const char *op)
{
    if (plan->samples < 1 || rows % plan->samples != 0)
        return fail(ST_ESHAPE, "%s: %lld rows do not divide into %d samples", op, (long long)rows,
                    plan->samples);
    if (plan->nodes < 1 || plan->nodes > SAMPLE_PLAN_NODES)
        return fail(ST_ESHAPE, "%s: a plan of %d nodes, must be 1 to %d", op, plan->nodes,
                    SAMPLE_PLAN_NODES);
    return ST_OK;
}

/* One pair of operands of g: a [M, K], b [K, N] or [N, K], grains of K as those of the first. */
static enum status check_pair(const struct device *dev, const struct gemm *g,
                              const struct tensor *a, const struct tensor *b)
{
    int nt = g->kind == GEMM_NT;
    int64_t k = a->cols, n = g->y.cols;
    int32_t grains = nt ? b->col_grains : b->row_grains;

    TRY(op_check(dev, (struct op_arg){a, OP_FLOAT, g->y.rows, k, "op_gemm", "a"}));
    TRY(op_check(dev, (struct op_arg){b, OP_FLOAT, nt ? n : k, nt ? k : n, "op_gemm", "b"}));
    if (a->col_grains != grains || a->col_grains != g->a.col_grains ||
        a->row_grains != g->a.row_grains)
        return fail(ST_ESHAPE,
                    "op_gemm: grains of K are %d in a, %d in b, %d in the first pair; of M %d and "
                    "%d: they must agree",
                    a->col_grains, grains, g->a.col_grains, a->row_grains, g->a.row_grains);
    return ST_OK;
}

enum status op_check_gemm(const struct device *dev, const struct gemm *g)
{
    const struct tensor *y = &g->y;

    TRY(op_check(dev, (struct op_arg){y, OP_FLOAT, y->rows, y->cols, "op_gemm", "y"}));
    TRY(check_pair(dev, g, &g->a, &g->b));
    if (g->more < 0 || g->more > 2)
        return fail(ST_ESHAPE, "op_gemm: %d further pairs, must be 0 to 2", g->more);
    for (int i = 0; i < g->more; i++)
        TRY(check_pair(dev, g, &g->part[i].a, &g->part[i].b));
    if (g->c)
        TRY(op_check(dev, (struct op_arg){g->c, OP_FLOAT, y->rows, y->cols, "op_gemm", "c"}));
    if (g->k_scale)
        TRY(op_check(dev, (struct op_arg){g->k_scale, OP_WIDE, y->rows, g->a.col_grains, "op_gemm",
                                          "k_scale"}));
    return ST_OK;
}

static enum status check_heads(const struct attention *at, int training, const char *op)
{
    if (at->heads < 1 || at->kv_heads < 1 || at->heads % at->kv_heads != 0 || at->head_dim < 1)
        return fail(ST_ESHAPE, "%s: %lld heads read %lld key heads of dimension %lld", op,
                    (long long)at->heads, (long long)at->kv_heads, (long long)at->head_dim);
    if (at->batch < 0 || at->seq < 1 || at->pos0 < 0 || at->kv_rows < at->pos0 + at->seq)
        return fail(ST_ESHAPE, "%s: %lld positions from %lld do not fit into %lld rows of keys", op,
                    (long long)at->seq, (long long)at->pos0, (long long)at->kv_rows);
    if (training && (at->pos0 != 0 || at->kv_rows != at->seq))
        return fail(ST_ESHAPE, "%s: backward needs pos0 0 and %lld rows of keys, not %lld and %lld",
                    op, (long long)at->seq, (long long)at->pos0, (long long)at->kv_rows);
    return ST_OK;
}

enum status op_check_attention(const struct device *dev, const struct attention *at,
                               const struct attention *dat, const char *op)
{
    int64_t rows = at->batch * at->seq, keys = at->batch * at->kv_rows;
    int64_t q = at->heads * at->head_dim, kv = at->kv_heads * at->head_dim;

    TRY(check_heads(at, dat != NULL || at->starts.data, op));
    if (at->starts.data) {
        TRY(op_check(dev, (struct op_arg){&at->starts, OP_I32, rows, 1, op, "starts"}));
        FAIL_IF(!tensor_packed(&at->starts), ST_ESHAPE);
    }
    TRY(op_check(dev, (struct op_arg){&at->q, OP_FLOAT, rows, q, op, "q"}));
    TRY(op_check(dev, (struct op_arg){&at->o, OP_FLOAT, rows, q, op, "o"}));
    TRY(op_check(dev, (struct op_arg){&at->k, OP_FLOAT, keys, kv, op, "k"}));
    TRY(op_check(dev, (struct op_arg){&at->v, OP_FLOAT, keys, kv, op, "v"}));
    TRY(op_check(dev, (struct op_arg){&at->lse, OP_WIDE, rows, at->heads, op, "lse"}));
    if (!dat)
        return ST_OK;
    TRY(op_check(dev, (struct op_arg){&dat->o, OP_FLOAT, rows, q, op, "gradient of o"}));
    TRY(op_check(dev, (struct op_arg){&dat->q, OP_FLOAT, rows, q, op, "gradient of q"}));
    TRY(op_check(dev, (struct op_arg){&dat->k, OP_FLOAT, keys, kv, op, "gradient of k"}));
    TRY(op_check(dev, (struct op_arg){&dat->v, OP_FLOAT, keys, kv, op, "gradient of v"}));
    return ST_OK;
}

enum status op_check_swiglu_grad(const struct device *dev, const struct swiglu_grad *d,
                                 const char *op)
{
    int64_t m = d->df.rows, f = d->df.cols;

    TRY(op_check(dev, (struct op_arg){&d->dg, OP_FLOAT, m, f, op, "dg"}));
    TRY(op_check(dev, (struct op_arg){&d->du, OP_FLOAT, m, f, op, "du"}));
    TRY(op_check(dev, (struct op_arg){&d->df, OP_FLOAT, m, f, op, "df"}));
    TRY(op_check(dev, (struct op_arg){&d->g, OP_FLOAT, m, f, op, "g"}));
    TRY(op_check(dev, (struct op_arg){&d->u, OP_FLOAT, m, f, op, "u"}));
    return ST_OK;
}
