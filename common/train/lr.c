#include "common/train/lr.h"

#include "common/base/elementary.h"

#include <math.h>

static enum status check_range(const struct lr *s)
{
    if (!isfinite(s->peak) || s->peak < 0)
        return fail(ST_ECONFIG, "train.lr is %g; it must be a number of at least 0", s->peak);
    if (!(s->min_ratio >= 0 && s->min_ratio <= 1))
        return fail(ST_ECONFIG, "train.lr_min is %g; it is a share of train.lr, from 0 to 1",
                    s->min_ratio);
    if (s->steps < 1)
        return fail(ST_ECONFIG, "train.steps is %lld; it must be at least 1", (long long)s->steps);
    if (s->warmup < 0)
        return fail(ST_ECONFIG, "train.warmup is %lld; it must be at least 0",
                    (long long)s->warmup);
    return ST_OK;
}

enum status lr_check(const struct lr *s)
{
    int64_t fall = 1; /* updates that must remain after the warm-up */

    TRY(check_range(s));
    if (s->kind == SCHEDULE_CONSTANT)
        fall = 0;
    if (s->kind == SCHEDULE_WSD)
        fall = s->decay;
    if (s->kind == SCHEDULE_WSD && s->decay < 1)
        return fail(ST_ECONFIG, "train.decay is %lld; schedule wsd needs at least 1 step of it",
                    (long long)s->decay);
    if (s->warmup > s->steps || fall > s->steps - s->warmup)
        return fail(ST_ECONFIG,
                    "train.warmup is %lld and the schedule falls over at least %lld steps after "
                    "it, but train.steps is %lld; train longer, or shorten warm-up or decay",
                    (long long)s->warmup, (long long)fall, (long long)s->steps);
    return ST_OK;
}

/* The rate at share t of the fall, 0 < t <= 1; at 1 the part added to the lowest is exactly 0. */
static double falling(const struct lr *s, double t)
{
    double lowest = s->min_ratio * s->peak, sine, cosine;

    if (s->kind != SCHEDULE_COSINE)
        return lowest + (s->peak - lowest) * (1 - t);
    elementary_sincos_turns(&sine, &cosine, t / 2);
    return lowest + (s->peak - lowest) * ((1 + cosine) / 2);
}

double lr_at(const struct lr *s, int64_t step)
{
    int64_t update = step < s->steps ? step + 1 : s->steps;
    int64_t start = s->kind == SCHEDULE_WSD ? s->steps - s->decay : s->warmup;

    if (update < s->warmup)
        return s->peak * (double)update / (double)s->warmup;
    if (update <= start || s->kind == SCHEDULE_CONSTANT)
        return s->peak;
    return falling(s, (double)(update - start) / (double)(s->steps - start));
}
