/* One training step in a job of its own, and what it found: loss, gradients, traffic.
 *
 * The validation starts `narrows validate-job FILE key=value...` on as many ranks as the layout
 * has; that job makes one step on made-up data (case_batch) and leaves its result in FILE, a
 * safetensors file of float64 tensors: each gradient, whole and without padding, under its
 * parameter's name, "loss_norm" [loss, grad norm], and "ledger" [purposes, 3] int64.
 */
#ifndef VALIDATION_JOB_H
#define VALIDATION_JOB_H

#include "common/backend/ledger.h"
#include "common/checkpoint/safetensors.h"
#include "validation/check.h"

#include "common/model/config.h"

struct job {
    struct safetensors file;
    double loss, grad_norm;
    struct ledger ledger; /* counts only */
};

/* Runs a job with these words (as case_config takes them) and reads what it left. cfg: those words
 * resolved; its layout says how many ranks are started. Errors: ST_EMISMATCH with the end of its
 * log when the job failed. */
enum status job_run(struct job *j, const struct check_options *o, const struct config *cfg,
                    const char *words, ...) __attribute__((format(printf, 4, 5)));
void job_close(struct job *j);

/* The largest |b - a| / |a| (as vectors) of any gradient of two jobs; *name: which it is. Infinity
 * when one is missing or not finite. */
double job_gradients_apart(const struct job *a, const struct job *b, const char **name);

/* The other side: what `narrows validate-job` does. Collective over job. */
enum status job_main(struct host *job, const char *path, const char *words);

#endif
