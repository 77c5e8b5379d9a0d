/* Several sources read in fixed proportions, as pure functions of the position.
 *
 * Training. The samples of the run stand at positions 0, 1, 2, ... Position p belongs to one source
 * and is that source's q-th sample, which its loader turns into an epoch and a place in it
 * (loader.h): each source has epochs of its own, and each of its tokens is used once in each of
 * them. How many of the first p positions a source gets is computed, not counted: with integer
 * weights w[0 .. n), W[k] = w[0] + ... + w[k], and p[n - 1] = p,
 *
 *     c[k] = p[k] w[k] / W[k], rounded half up,    p[k - 1] = p[k] - c[k],
 *
 * from the last source down. So after any multiple of W[n - 1] positions each source has had its
 * exact share, and in between it is off by less than one sample for two sources, and by less than
 * the logarithm of their number times one for more. No state, no memory; a position costs n
 * divisions. Every layout and every resumed run reads the same.
 *
 * Evaluation. Each sample of each source once, source after source; weights mean nothing.
 */
#ifndef COMMON_DATA_MIXTURE_H
#define COMMON_DATA_MIXTURE_H

#include "common/data/loader.h"

struct mixture {
    struct loader *source; /* [sources] */
    uint64_t *weight;      /* [sources], without a common divisor; sum below 2^62 */
    int sources;
    struct loader_options options;
    int64_t samples; /* of all sources together: those of one evaluation */
};

/* Sets up m over n corpora, which outlive it. weights: NULL for the number of samples of each, so
 * that all sources end their epochs together; else n numbers from 1 to 2^40. Release with
 * mixture_close; on failure there is nothing to release. Errors: as loader_open; ST_ENOMEM. */
enum status mixture_open(struct mixture *m, const struct corpus *corpora, const int64_t *weights,
                         int n, const struct loader_options *options);
void mixture_close(struct mixture *m);

/* The source of a position, and which of its own positions it is. *source is -1 past the end of an
 * evaluation. position >= 0. */
void mixture_find(int *source, int64_t *inner, const struct mixture *m, int64_t position);

/* How many of the positions [0, position) are the source's. */
int64_t mixture_taken(const struct mixture *m, int source, int64_t position);

/* As the functions of loader.h, over all sources. starts: where the document of each token begins
 * in its row, as loader_starts; may be NULL. */
enum status mixture_rows(int32_t *inputs, int32_t *targets, int32_t *starts,
                         const struct mixture *m, int64_t step, int64_t first, int64_t rows);
enum status mixture_valid(int64_t *valid, const struct mixture *m, int64_t step);
enum status mixture_valid_rows(int64_t *valid, const struct mixture *m, int64_t step, int64_t first,
                               int64_t rows);
int64_t mixture_batches(const struct mixture *m);

/* Epochs of one source that have been used once `steps` steps are done. */
double mixture_epochs(const struct mixture *m, int source, int64_t steps);

#endif
