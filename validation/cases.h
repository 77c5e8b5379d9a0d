/* The tiny models and the data that validations run on. */
#ifndef VALIDATION_CASES_H
#define VALIDATION_CASES_H

#include "common/model/params.h"

enum { CASE_WORDS = 1024 };

/* The words that make the tiny model: 4 layers, width 64, 8 heads, FFN 192, rank 16, vocabulary
 * 259 (padded), sequences of 32 tokens, global batch 8. Each is key=value, one space between. */
#define CASE_TINY                                                                                 \
    "model.width=64 model.layers=4 model.heads=8 model.kv_heads=8 model.ffn=192 model.vocab=259 " \
    "train.seq=32 train.batch=8 train.steps=20 train.seed=1 parallel.dp=1 "

/* cfg = defaults, then `words`; resolved for as many ranks as tp x dp, and validated.
 * Errors: ST_ECONFIG. */
enum status case_config(struct config *cfg, const char *words);

/* As case_config, from a format. A key given twice: the later one wins. */
enum status case_configf(struct config *cfg, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* out [CASE_WORDS] = words without those that a later one overrides. Errors: ST_EINTERNAL. */
enum status case_words(char *out, const char *words);

/* Splits words at blanks, in place, into at most `room` of argv; returns how many. */
int case_split(const char **argv, int room, char *words);

/* Gains drawn from [0.5, 1.5) by name and column: all equal to 1 would hide which belongs where. */
enum status case_gains(struct params *p, struct device *dev);

/* Made-up tokens and targets for rows [first, first + rows) of step: [rows, seq] each. Targets are
 * the tokens that follow; one in eight is ignored, and of every third row the last half. The same
 * numbers in every layout. Returns how many targets of these rows count. */
int64_t case_batch(int32_t *tokens, int32_t *targets, const struct config *cfg, int64_t step,
                   int64_t first, int64_t rows);

/* Writes a text of documents of 3 to 60 letters between lines "--" to path. Errors: ST_EIO. */
enum status case_text(const char *path, int documents);

#endif
