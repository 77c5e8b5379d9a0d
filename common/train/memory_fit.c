#include "common/train/memory_fit.h"

#include "common/train/place.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH_MAX = 1 << 24 }; /* of train.batch */

size_t step_memory_bytes(const struct step_memory *m)
{
    return m->state + m->grads + m->acts + m->scratch + m->batch + m->tp_staging + m->dp_staging +
           m->pp_staging + m->second_staging + m->widened;
}

size_t memory_beside_bytes(const struct memory_beside *beside)
{
    return beside->products + beside->scratch + beside->messages + beside->context + beside->code;
}

enum status memory_beside_none(struct memory_beside *beside, const struct config *cfg)
{
    (void)cfg;
    memset(beside, 0, sizeof *beside);
    return ST_OK;
}

/* The search for one configuration. */
struct search {
    struct config cfg; /* changed from trial to trial */
    const struct memory_limit *limit;
    int64_t micro_batches, most; /* of a step; the largest micro-batch */
    size_t plane, beside;        /* gradients, and what stands beside, at the least */
};

static void set_size(struct search *s, int64_t n)
{
    s->cfg.train.micro_batch = n;
    s->cfg.train.batch = n * s->micro_batches * s->cfg.parallel.dp;
}

/* Adds the rank at `m` when it is the fullest so far. */
static enum status consider(struct memory_use *use, const struct search *s, const struct mesh *m)
{
    struct step_memory memory;

    TRY(step_plan_at(&memory, NULL, NULL, &s->cfg, m, place_wide(&s->cfg), 1));
    if (step_memory_bytes(&memory) > step_memory_bytes(&use->step))
        use->step = memory;
    return ST_OK;
}

/* Replicas `first` to the last, each with all its stages. */
static enum status use_from(struct memory_use *use, struct search *s, int64_t n, int first)
{
    const struct config_parallel *p = &s->cfg.parallel;

    set_size(s, n);
    memset(use, 0, sizeof *use);
    use->micro_batch = n;
    for (int r = first; r < p->dp; r++)
        for (int k = 0; k < p->pp; k++) {
            struct mesh m = {
                .tp = (int)p->tp, .dp = (int)p->dp, .pp = (int)p->pp, .dp_rank = r, .pp_rank = k};

            TRY(consider(use, s, &m));
        }
    TRY(s->limit->beside(&use->beside, &s->cfg));
    use->bytes = step_memory_bytes(&use->step) + memory_beside_bytes(&use->beside);
    return ST_OK;
}

/* Replicas differ by what ZeRO-1 gives them. */
static int first_replica(const struct search *s)
{
    return s->cfg.parallel.zero ? 0 : (int)s->cfg.parallel.dp - 1;
}

static int within(const struct search *s, const struct memory_use *use)
{
    return use->bytes <= s->limit->bytes;
}

/* Nonzero while n may fit. This part of the need only grows with n: gradients wait in more slots
 * for some sizes than for larger ones, and attention's workspace depends on n's divisors. */
static enum status may_fit(int *may, struct search *s, int64_t n)
{
    struct memory_use use;

    TRY(use_from(&use, s, n, (int)s->cfg.parallel.dp - 1));
    *may = step_memory_bytes(&use.step) - use.step.grads + s->plane + s->beside <= s->limit->bytes;
    return ST_OK;
}

/* The largest n that may fit; 0 when 1 cannot. */
static enum status bound(int64_t *n, struct search *s)
{
    int64_t fits = 0, over = 1;
    int may;

    TRY(may_fit(&may, s, over));
    while (may && over < s->most) {
        fits = over;
        over = 2 * over < s->most ? 2 * over : s->most;
        TRY(may_fit(&may, s, over));
    }
    if (may)
        fits = over;
    while (!may && over - fits > 1) {
        int64_t middle = fits + (over - fits) / 2;
        int fitting;

        TRY(may_fit(&fitting, s, middle));
        *(fitting ? &fits : &over) = middle;
    }
    *n = fits;
    return ST_OK;
}

/* What every n needs: gradients of one slot, or less; what stands beside for a single sequence. */
static enum status set_least(struct search *s)
{
    int64_t dp = s->cfg.parallel.dp, begin, end;
    struct memory_use one;

    TRY(use_from(&one, s, 1, (int)dp - 1));
    sample_share(s->cfg.train.batch, dp - 1, dp, &begin, &end);
    s->beside = memory_beside_bytes(&one.beside);
    s->plane = one.step.grads / (size_t)sample_slots(begin, end, 1, s->cfg.parallel.layout_exact);
    return ST_OK;
}

static enum status start(struct search *s, const struct config *cfg,
                         const struct memory_limit *limit)
{
    s->cfg = *cfg;
    s->cfg.parallel.stage_memory = 0; /* what is too much for a stage is found here */
    s->limit = limit;
    s->micro_batches = cfg->train.batch / cfg->parallel.dp / cfg->train.micro_batch;
    s->most = BATCH_MAX / cfg->parallel.dp / s->micro_batches;
    return set_least(s);
}

static enum status search(struct memory_fit *fit, struct search *s)
{
    struct memory_use use;
    int64_t n = 0;

    memset(fit, 0, sizeof *fit);
    TRY(bound(&n, s));
    if (n < s->most)
        TRY(use_from(&fit->over, s, n + 1, first_replica(s)));
    for (; n > 0 && !fit->fits.micro_batch; n--) {
        TRY(use_from(&use, s, n, first_replica(s)));
        *(within(s, &use) ? &fit->fits : &fit->over) = use;
    }
    return ST_OK;
}

enum status memory_use(struct memory_use *use, const struct config *cfg,
                       const struct memory_limit *limit, int64_t n)
{
    struct search *s = malloc(sizeof *s);
    enum status st = s ? start(s, cfg, limit) : fail(ST_ENOMEM, "no memory for a rehearsal");

    if (st == ST_OK)
        st = use_from(use, s, n, first_replica(s));
    free(s);
    return st;
}

enum status memory_fit(struct memory_fit *fit, const struct config *cfg,
                       const struct memory_limit *limit)
{
    struct search *s = malloc(sizeof *s);
    enum status st = s ? start(s, cfg, limit) : fail(ST_ENOMEM, "no memory for a rehearsal");

    if (st == ST_OK)
        st = search(fit, s);
    free(s);
    return st;
}
