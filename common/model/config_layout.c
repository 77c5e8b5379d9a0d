#include "common/model/config_layout.h"

#include "common/model/runs.h"

#include <inttypes.h>
#include <stdio.h>

#define N PRId64

static int power_of_two(int64_t n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

/* What a layout may cut, and the key to name when it cannot be. */
struct cut {
    const char *key;
    int64_t size;
};

enum { CUTS = 5 };

static int list_cuts(struct cut cuts[CUTS], const struct config *cfg)
{
    const struct config_model *m = &cfg->model;
    int n = 0;

    cuts[n++] = (struct cut){"model.heads", m->heads};
    cuts[n++] = (struct cut){"model.kv_heads", m->kv_heads};
    cuts[n++] = (struct cut){"model.ffn", m->ffn};
    cuts[n++] = (struct cut){"model.width", m->width};
    if (cfg->parallel.strategy == STRATEGY_VANILLA)
        cuts[n++] = (struct cut){"model.rank", m->rank};
    return n;
}

static int cuts_fit(const struct config *cfg, int64_t pieces)
{
    struct cut cuts[CUTS];
    int n = list_cuts(cuts, cfg), fit = 1;

    for (int i = 0; i < n; i++)
        fit &= cuts[i].size % pieces == 0;
    return fit;
}

static int tp_fits(const struct config *cfg, int64_t tp)
{
    return cuts_fit(cfg, tp) && (!cfg->parallel.layout_exact || power_of_two(tp));
}

static int dp_fits(const struct config *cfg, int64_t dp)
{
    return cfg->train.batch % dp == 0 && (!cfg->parallel.layout_exact || power_of_two(dp));
}

/* "1, 2, 4": the numbers up to `most` that fits() takes, eight at the most. */
static void list_fitting(char *out, size_t size, const struct config *cfg,
                         int (*fits)(const struct config *, int64_t), int64_t most)
{
    size_t used = 0;
    int listed = 0;

    out[0] = '\0';
    for (int64_t n = 1; n <= most && listed < 8; n++)
        if (fits(cfg, n) && used < size)
            used += (size_t)snprintf(out + used, size - used, "%s%" N, listed++ ? ", " : "", n);
}

static enum status check_powers(const struct config_parallel *p)
{
    if (!p->layout_exact)
        return ST_OK;
    if (!power_of_two(p->tp))
        return fail(ST_ECONFIG,
                    "parallel.tp %" N " is not a power of two, which parallel.layout_exact on "
                    "needs: choose one, or set parallel.layout_exact=off",
                    p->tp);
    if (!power_of_two(p->grains))
        return fail(ST_ECONFIG,
                    "parallel.grains %" N " is not a power of two, which parallel.layout_exact on "
                    "needs: set parallel.grains=0",
                    p->grains);
    return ST_OK;
}

static enum status check_cuts(const struct config *cfg)
{
    const struct config_parallel *p = &cfg->parallel;
    struct cut cuts[CUTS];
    int n = list_cuts(cuts, cfg);
    char fitting[128];

    list_fitting(fitting, sizeof fitting, cfg, tp_fits, cfg->model.heads);
    for (int i = 0; i < n; i++)
        if (cuts[i].size % p->tp)
            return fail(ST_ECONFIG,
                        "%s %" N " cannot be divided among parallel.tp %" N
                        " ranks: set parallel.tp to one of %s, or %s to a multiple of %" N,
                        cuts[i].key, cuts[i].size, p->tp, fitting, cuts[i].key, p->tp);
    list_fitting(fitting, sizeof fitting, cfg, cuts_fit, cfg->model.heads);
    for (int i = 0; i < n; i++)
        if (cuts[i].size % p->grains)
            return fail(ST_ECONFIG,
                        "%s %" N " cannot be divided into parallel.grains %" N
                        " pieces: set parallel.grains to 0 or one of %s",
                        cuts[i].key, cuts[i].size, p->grains, fitting);
    if (p->grains % p->tp)
        return fail(ST_ECONFIG,
                    "parallel.tp %" N " does not divide parallel.grains %" N
                    ": a rank holds whole grains; set parallel.grains=%" N,
                    p->tp, p->grains, p->tp);
    return ST_OK;
}

/* The number of ranks nearest below `ranks` that this tp and pp can use; tp pp at the least. */
static int64_t usable_ranks(const struct config *cfg, int64_t ranks)
{
    int64_t replica = cfg->parallel.tp * cfg->parallel.pp, dp = ranks / replica;

    while (dp > 1 && !dp_fits(cfg, dp))
        dp--;
    return replica * (dp > 1 ? dp : 1);
}

static enum status check_ranks(const struct config *cfg, int64_t ranks)
{
    int64_t tp = cfg->parallel.tp, dp = cfg->parallel.dp, pp = cfg->parallel.pp;
    int64_t product = tp * dp * pp, rest = ranks % pp ? 0 : ranks / pp;
    char other[128] = "", stages[64] = "";

    if (!ranks || product == ranks)
        return ST_OK;
    for (int64_t t = tp < rest ? tp : rest; t >= 1 && !other[0]; t--)
        if (rest % t == 0 && tp_fits(cfg, t) && dp_fits(cfg, rest / t))
            snprintf(other, sizeof other, ", or set parallel.tp=%" N " parallel.dp=%" N, t,
                     rest / t);
    if (pp > 1)
        snprintf(stages, sizeof stages, " x parallel.pp %" N, pp);
    return fail(ST_ECONFIG,
                "the job has %" N " ranks, but parallel.tp %" N " x parallel.dp %" N "%s = %" N
                ": start it with mpirun -n %" N "%s",
                ranks, tp, dp, stages, product,
                dp_fits(cfg, dp) ? product : usable_ranks(cfg, product), other);
}

/* The sizes that a pipeline needs. */
static enum status check_pipeline(const struct config *cfg)
{
    const struct config_parallel *p = &cfg->parallel;
    int64_t micros = cfg->train.batch / p->dp / cfg->train.micro_batch;
    int first[RUNS_MAX + 1];

    if (p->stage_memory && (p->pp == 1 || p->stage_layers[0]))
        return fail(ST_ECONFIG,
                    "parallel.stage_memory %" N " deals blocks to stages, but %s: set "
                    "parallel.stage_memory=0",
                    p->stage_memory,
                    p->pp == 1 ? "parallel.pp is 1" : "parallel.stage_layers names them");
    if (p->pp * p->virtual_stages == 1)
        return ST_OK;
    TRY(runs_deal(first, cfg, (int)(p->pp * p->virtual_stages)));
    if (p->virtual_stages > 1 && micros % p->pp)
        return fail(ST_ECONFIG,
                    "parallel.schedule interleaved sends micro-batches round in groups of "
                    "parallel.pp %" N ", but a replica has %" N " of them (train.batch %" N
                    " / parallel.dp %" N " / train.micro_batch %" N "): set train.micro_batch so "
                    "that parallel.pp divides their number",
                    p->pp, micros, cfg->train.batch, p->dp, cfg->train.micro_batch);
    return ST_OK;
}

/* Words of the pipeline that do not go together. */
static enum status check_order(const struct config_parallel *p)
{
    const char *schedule = config_choice_name("parallel.schedule", p->schedule);
    const char *recompute = config_choice_name("parallel.recompute", p->recompute);

    if (p->virtual_stages > 1 && p->schedule != PIPELINE_INTERLEAVED)
        return fail(ST_ECONFIG,
                    "parallel.virtual_stages %" N " needs parallel.schedule interleaved, not %s: "
                    "set parallel.virtual_stages=1, or the schedule",
                    p->virtual_stages, schedule);
    if (p->schedule == PIPELINE_INTERLEAVED && (p->virtual_stages == 1 || p->pp == 1))
        return fail(ST_ECONFIG,
                    "parallel.schedule interleaved needs parallel.virtual_stages and parallel.pp "
                    "of 2 or more, not %" N " and %" N ": set them, or parallel.schedule=1f1b",
                    p->virtual_stages, p->pp);
    if (p->schedule == PIPELINE_ZB_H1 && p->recompute != RECOMPUTE_NONE &&
        p->recompute != RECOMPUTE_ELEMENTWISE)
        return fail(ST_ECONFIG,
                    "parallel.schedule zb-h1 keeps what weight gradients need, which "
                    "parallel.recompute %s throws away: set parallel.recompute=elementwise, or "
                    "parallel.schedule=1f1b",
                    recompute);
    return ST_OK;
}

static enum status check_batch(const struct config *cfg)
{
    const struct config_train *t = &cfg->train;
    int64_t dp = cfg->parallel.dp, share = t->batch / dp;
    int64_t replica = cfg->parallel.tp * cfg->parallel.pp;
    char stages[64] = "";

    if (cfg->parallel.pp > 1)
        snprintf(stages, sizeof stages, " / parallel.pp %" N, cfg->parallel.pp);
    if (cfg->parallel.layout_exact && !power_of_two(dp))
        return fail(ST_ECONFIG,
                    "parallel.dp %" N " (%" N " ranks / parallel.tp %" N
                    "%s) is not a power of two, which parallel.layout_exact on needs: start the "
                    "job with mpirun -n %" N ", or set parallel.layout_exact=off",
                    dp, replica * dp, cfg->parallel.tp, stages, usable_ranks(cfg, replica * dp));
    if (t->batch % dp)
        return fail(ST_ECONFIG,
                    "train.batch %" N " sequences cannot be divided among parallel.dp %" N
                    " copies: set train.batch=%" N,
                    t->batch, dp, (share + 1) * dp);
    if (share % t->micro_batch)
        return fail(ST_ECONFIG,
                    "train.micro_batch %" N " does not divide the %" N
                    " sequences of a rank (train.batch %" N " / parallel.dp %" N
                    "): set train.micro_batch=0 for all at once, or a divisor of %" N,
                    t->micro_batch, share, t->batch, dp, share);
    if (t->head_chunk > t->micro_batch)
        return fail(ST_ECONFIG,
                    "train.head_chunk %" N " is more than the %" N
                    " sequences of train.micro_batch: set train.head_chunk=0 to let it be chosen, "
                    "or %" N " or less",
                    t->head_chunk, t->micro_batch, t->micro_batch);
    if (cfg->parallel.overlap == OVERLAP_ALL && cfg->parallel.tp > 1 && t->micro_batch == 1)
        return fail(ST_ECONFIG,
                    "parallel.overlap all sends a micro-batch forward in two halves, but "
                    "train.micro_batch is 1 sequence: set train.micro_batch to 2 or more, or "
                    "parallel.overlap=backward");
    return ST_OK;
}

enum status config_check_layout(const struct config *cfg, int64_t ranks)
{
    TRY(check_powers(&cfg->parallel));
    TRY(check_cuts(cfg));
    TRY(check_ranks(cfg, ranks));
    TRY(check_batch(cfg));
    TRY(check_order(&cfg->parallel));
    return check_pipeline(cfg);
}
