/* The learning rate of each update.
 *
 * Convention: steps count from 0; step s makes update u = s + 1 of `steps`. During warm-up,
 * u <= warmup, the rate is peak u / warmup: the first update uses peak / warmup, update `warmup`
 * the peak itself. After it, with t = (u - warmup) / (steps - warmup) in (0, 1] and floor m =
 * min_ratio peak:
 *     constant  peak
 *     linear    peak + (m - peak) t
 *     cosine    m + (peak - m) (1 + cos(pi t)) / 2
 *     wsd       peak until update steps - decay, then linear to m over the last `decay` updates
 * The last update uses exactly min_ratio * peak (constant: peak). Steps past the last keep that.
 */
#ifndef COMMON_TRAIN_LR_H
#define COMMON_TRAIN_LR_H

#include "common/base/status.h"
#include "common/model/config.h" /* enum schedule_kind */

#include <stdint.h>

struct lr {
    enum schedule_kind kind;
    double peak;      /* >= 0 */
    double min_ratio; /* in [0, 1]: the last rate as a share of the peak */
    int64_t warmup;   /* updates, >= 0 */
    int64_t steps;    /* updates in all, >= 1 */
    int64_t decay;    /* wsd: updates of the last phase, >= 1; else unused */
};

/* Errors: ST_ECONFIG for values out of range, and for a warm-up that leaves no update to decay in
 * (warmup >= steps; constant: warmup > steps; wsd: warmup + decay > steps). */
enum status lr_check(const struct lr *s);

/* The rate of step (from 0), for a schedule that lr_check accepts. Same bits on every machine. */
double lr_at(const struct lr *s, int64_t step);

#endif
