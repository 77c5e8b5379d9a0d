/* The subjects of `narrows validate`. Each prints its table; ST_EMISMATCH when a row missed. */
#ifndef VALIDATION_CHECK_H
#define VALIDATION_CHECK_H

#include "common/backend/host.h"
#include "validation/report.h"

/* Starts `narrows ARGUMENTS` as a job of `ranks` ranks and waits for it. argv ends with NULL.
 * *output: what it printed, a text that the caller frees; NULL when it was not started. *failed:
 * nonzero when the job ended with another exit status than 0. Errors: when it could not start. */
struct check_launcher {
    enum status (*run)(char **output, int *failed, int ranks, const char *const *argv);
};

struct check_options {
    int quick;           /* the subset that CI runs */
    int all;             /* layouts: every layout, the other factors pairwise */
    const char *only;    /* rows whose name holds this text; NULL: all */
    int any_order;       /* ops: the backend may add in any order (run.deterministic=off) */
    const char *data;    /* gradients: folder of stored values; train: the text */
    const char *config;  /* layouts: a configuration instead of the tiny models; NULL: these */
    int64_t steps;       /* layouts, repeat, train: of a run */
    int64_t ranks;       /* layouts */
    const char *kernel;  /* name of the BLAS kernel family */
    const char *backend; /* ops, step, repeat, train: "ref" or "gpu" */
    struct check_launcher launch;
};

/* Nonzero when a row called name is wanted. */
int check_wanted(const struct check_options *o, const char *name);

/* Closed formulas against the counted ledger: by rehearsal, and in real jobs of 2 and 4 ranks. */
enum status check_ledger(const struct check_options *o, struct report *r);

/* Gradients against central differences, stored traces and stored tensors. job: this process
 * alone. */
enum status check_gradients(const struct check_options *o, struct report *r, struct host *job);

/* BTP, vanilla and one rank against each other; forms of the norm; recomputation; bf16. */
enum status check_strategies(const struct check_options *o, struct report *r);

/* One hash for every layout of a model. */
enum status check_layouts(const struct check_options *o, struct report *r);

/* Runs that stop, are killed or find the disk full, and go on in other layouts. */
enum status check_resume(const struct check_options *o, struct report *r);

/* Every operation of o->backend against the same in float64; prints a table of its own. */
enum status check_ops(const struct check_options *o, struct report *r);

#endif
