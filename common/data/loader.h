/* Training sequences from a corpus: which tokens a row of a batch holds, as a pure function.
 *
 * Samples. A sample is one row: seq inputs and seq targets, targets being the inputs shifted by
 * one. With packing, sample k has inputs [k seq, (k + 1) seq) of the token stream and targets one
 * further on, across the borders of documents: (count - 1) / seq samples, rounded up. The last one
 * may lack tokens and is padded: its missing inputs are the pad id (0 where the tokenizer has
 * none), its missing targets LOADER_IGNORED. So every token but the first is a target exactly once
 * an epoch. Without packing a sample is one document, cut to seq + 1 tokens (what that leaves out
 * is counted in `lost`) and padded likewise.
 *
 * Order. Training visits the positions 0, 1, 2, ...; position p is the (p mod samples)-th sample
 * of epoch p / samples, in that epoch's order (order.h). The global batch of step s is positions
 * [s batch, (s + 1) batch) and may lie across the end of an epoch. Nothing is remembered: a rank
 * asks for its part of the positions, and a resumed run needs the step alone. Evaluation visits
 * sample p at position p; positions from `samples` on give rows of padding without any target, so
 * that a last batch has the same shape as the others.
 *
 * Position arithmetic is exact in 64 bits. Steps and sizes with step * batch over 2^62 are refused.
 */
#ifndef COMMON_DATA_LOADER_H
#define COMMON_DATA_LOADER_H

#include "common/base/status.h"
#include "common/data/corpus.h"

#include <stdint.h>

enum { LOADER_IGNORED = -1 }; /* a target that counts for nothing */

enum loader_mode { LOADER_TRAIN, LOADER_EVAL };

struct loader_options {
    enum loader_mode mode;
    int packing;   /* nonzero: cut the stream; zero: one document a sample */
    int64_t seq;   /* tokens a row */
    int64_t batch; /* rows of a global batch */
    uint64_t seed; /* of the order; evaluation has none */
    int64_t limit; /* evaluation: the first so many samples, 0 = all; training: 0 */
};

struct loader {
    const struct corpus *corpus; /* borrowed: outlives the loader */
    struct loader_options options;
    int64_t samples; /* rows of an epoch */
    int64_t valid;   /* valid targets of an epoch */
    int64_t lost;    /* tokens of an epoch that cutting documents leaves out (packing off) */
};

/* Samples that packing makes of a stream of `tokens`: (tokens - 1) / seq rounded up; 0 when there
 * are fewer than two tokens. */
int64_t loader_packed_samples(int64_t tokens, int64_t seq);

/* Sets up l over c; nothing to close. Errors: ST_ECONFIG for sizes below 1, for more than 2^40
 * samples, and for packing off without a separator; ST_EFORMAT when the text is too short
 * (training: not one whole sequence of seq + 1 tokens, or packing off, no document of two tokens;
 * evaluation: fewer than two tokens), with the number found and the number needed. */
enum status loader_open(struct loader *l, const struct corpus *c,
                        const struct loader_options *options);

/* The sample at a position (mode TRAIN: of the shuffled epochs; mode EVAL: itself, or -1 past the
 * end). position >= 0. */
int64_t loader_sample(const struct loader *l, int64_t position);

/* One row by sample number: inputs [seq], targets [seq]; -1 gives a row of padding. */
void loader_row(int32_t *inputs, int32_t *targets, const struct loader *l, int64_t sample);

/* Where the document of each input of a row begins, as a place in the row: starts[i] <= i, [seq];
 * 0 where it began in an earlier row, and without packing. Padding belongs to the last document. */
void loader_starts(int32_t *starts, const struct loader *l, int64_t sample);

/* The first position of rows [first, first + rows) of a step's batch. Errors: as loader_rows. */
enum status loader_position(int64_t *position, const struct loader_options *options, int64_t step,
                            int64_t first, int64_t rows);

/* Rows first .. first + rows - 1 of the global batch of step (from 0): inputs [rows, seq] and
 * targets [rows, seq], packed row-major. A rank passes its own part of [0, batch). For evaluation
 * step is the number of the batch. Local. Errors: ST_EINTERNAL for rows outside the batch;
 * ST_ECONFIG for a step too large to count. */
enum status loader_rows(int32_t *inputs, int32_t *targets, const struct loader *l, int64_t step,
                        int64_t first, int64_t rows);

/* Valid targets of the whole global batch of step, without reading a token: every rank computes
 * the same number by which the loss of the batch is divided. Packed: in constant time; else in
 * time proportional to the batch. Errors: as loader_rows. */
enum status loader_valid(int64_t *valid, const struct loader *l, int64_t step);

/* Valid targets of rows first .. first + rows - 1 of that batch. Errors: as loader_rows. */
enum status loader_valid_rows(int64_t *valid, const struct loader *l, int64_t step, int64_t first,
                              int64_t rows);

/* Valid targets of the positions [begin, end). */
int64_t loader_valid_range(const struct loader *l, int64_t begin, int64_t end);

/* Epochs that have been used once `steps` steps are done: steps batch / samples. */
double loader_epochs(const struct loader *l, int64_t steps);

/* Batches that a whole evaluation takes: samples / batch rounded up. */
int64_t loader_batches(const struct loader *l);

#endif
