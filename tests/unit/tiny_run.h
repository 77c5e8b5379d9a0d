/* The models of the table of reported faults (T, T8) in any layout on ranks of a job, driven step
 * by step with texts that depend on the global sample alone. Used by tests/unit/test_case_* and
 * tests/mpi/test_case_*. Failures end the test. */
#ifndef TESTS_UNIT_TINY_RUN_H
#define TESTS_UNIT_TINY_RUN_H

#include "common/train/step.h"

/* A check that fails on one rank wakes the others, which would wait for it: use these, and
 * tiny_run_begin() at the start of each test. */
#define TINY_CHECK(job, cond, ...)           \
    do {                                     \
        if (!(cond)) {                       \
            host_raise((job), ST_EMISMATCH); \
            ck_abort_msg(__VA_ARGS__);       \
        }                                    \
    } while (0)
#define TINY_OK(job, expr) TINY_CHECK(job, (expr) == ST_OK, "%s: %s", #expr, status_message())

/* All ranks come together, whatever became of the test before. Collective. */
void tiny_run_begin(struct host *job);

/* T: 2 layers, width 64, 4 heads, 2 of keys and values, FFN 176, rank 16, vocabulary 259, sequences
 * of 32, batch 8, seed 1. */
extern const char *const tiny_t[];

/* T with 4 heads of keys and values: up to 4 ranks share it. */
extern const char *const tiny_t4[];

/* T8: 4 layers, 8 heads, 8 of keys and values, FFN 192, vocabulary 264: up to 8 ranks. */
extern const char *const tiny_t8[];

/* The ways to cut layers, full rank and low rank; ends with name NULL. */
struct tiny_form {
    const char *name;
    const char *changes[6]; /* key=value, NULL-ended */
};
extern const struct tiny_form tiny_forms[];

/* A layout: ranks tp x dp (x parallel.pp, of `changes`), sequences of a micro-batch (0: all of a
 * rank's share). */
struct tiny_layout {
    int tp, dp, micro;
};

/* Which targets count. SHORT: of the second half of the batch only the first 3 of a sequence. */
enum tiny_mask { TINY_ALL, TINY_SHORT };

struct tiny_run {
    struct config cfg;
    struct host *job;   /* borrowed */
    struct host *group; /* NULL on ranks that take no part */
    struct step_place at;
    struct ledger ledger;
    struct step step;
    int32_t *tokens, *targets; /* [local samples, seq] */
    int64_t valid;
};

/* cfg = defaults, then `shape`, then `changes` (NULL-ended lists; changes may be NULL), resolved
 * and validated for tp x dp x pp ranks. */
void tiny_run_config(struct config *cfg, const char *const *shape, const char *const *changes,
                     struct tiny_layout layout);

/* Opens r on the first tp x dp x pp ranks of the job and draws the start values. Returns nonzero on
 * the ranks that take part; the others only close. Collective over the job. */
int tiny_run_open(struct tiny_run *r, struct host *job, const char *const *shape,
                  const char *const *changes, struct tiny_layout layout);
void tiny_run_close(struct tiny_run *r);

/* Fills r->tokens, r->targets and r->valid with this rank's samples of global batch `batch`. */
void tiny_run_batch(struct tiny_run *r, int64_t batch, enum tiny_mask mask);

/* Token j of sample `sample` of global batch `batch`. */
int32_t tiny_run_token(int64_t batch, int64_t sample, int64_t j);

/* Fills the batch, trains step t = 1, 2, ... on it with rate 1e-3. */
struct step_result tiny_run_train(struct tiny_run *r, int64_t t, enum tiny_mask mask);

/* Hash of all weights; collective over the ranks of a replica. */
uint64_t tiny_run_hash(struct tiny_run *r);

/* The values of a tensor (a parameter's w, g, m, v) as doubles, rows x cols; free() them. */
double *tiny_run_values(struct tiny_run *r, const struct tensor *t);

/* Hash of the bytes of a packed tensor on this rank. */
uint64_t tiny_run_bytes(struct tiny_run *r, const struct tensor *t);

#endif
