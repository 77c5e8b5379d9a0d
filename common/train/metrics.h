/* What a run tells about its steps: lines for people, records for programs (metrics.jsonl). */
#ifndef COMMON_TRAIN_METRICS_H
#define COMMON_TRAIN_METRICS_H

#include "common/train/place.h"
#include "common/train/run_dir.h"
#include "common/train/shadow.h"

/* One step, as measured. */
struct metrics_step {
    int64_t step, steps; /* done so far, of all */
    struct step_result result;
    double lr, seconds;
    int64_t tokens;       /* of the global batch, padding included */
    double tp_bytes;      /* sent by this rank in the step for tensor parallelism */
    double dp_bytes;      /* for data parallelism */
    double run_seconds;   /* since the first step began */
    double start_seconds; /* of a process' first step: since the process began; else 0 */
    int skipped;          /* the update was not made */
};

struct metrics {
    struct run_dir *dir;
    double flops_per_token; /* whole model, forward and backward */
    double peak;            /* FLOP/s of all ranks; 0: not known */
    double window_seconds;  /* since the last line */
    int64_t window_tokens;
    double last_norm; /* gradient norm of the last step, for hashes */
    int64_t first;    /* steps made before this process: the run went on from there */
};

/* Adds a step: always a record; a line when `line` is set, else the terminal's progress line.
 * Rates in a line are means since the last line. Local, on the rank that writes.
 * Errors: ST_EIO when the record cannot be written (a full disk). */
enum status metrics_step(struct metrics *m, const struct metrics_step *s, int line);

/* A validation: mean loss over `valid` targets after `step` steps. */
enum status metrics_validation(struct metrics *m, int64_t step, double loss, int64_t valid,
                               double seconds, int best);

/* A replay of a part of step `step` through the reference. */
enum status metrics_shadow(struct metrics *m, int64_t step, const struct shadow_result *r);

/* Memory of this process that is in use at most so far, bytes. */
double metrics_peak_rss(void);

#endif
