/* Reading stored values: a JSON file and what a session gives, compared. */
#ifndef VALIDATION_STORED_H
#define VALIDATION_STORED_H

#include "validation/session.h"

#include <jansson.h>

/* A stored training trace: [step, loss, grad norm] rows, and tensors by name. */
struct stored {
    json_t *root;
    char path[4096];
};

/* Opens dir/name. Errors: ST_EIO, ST_EFORMAT with the place. */
enum status stored_open(struct stored *f, const char *dir, const char *name);
void stored_close(struct stored *f);

/* A member of the root; NULL with ST_EFORMAT recorded when it is missing. */
json_t *stored_get(const struct stored *f, const char *key);

/* Number i of an array; NaN when there is none: no comparison with NaN passes. */
double stored_number(const json_t *array, size_t i);

/* |a - b| / scale; infinity when one is not finite. */
double stored_apart(double a, double b, double scale);

/* *worst grows to the largest difference between n values and the array, relative to the largest
 * stored value. Infinity when there are not exactly n. */
void stored_compare(double *worst, const double *values, int64_t n, const json_t *array);

/* *worst_norm and *worst_value grow to the differences of t from an object of norm, first[] and
 * last[] (either may be missing): of the norm relative to it, of values relative to the largest of
 * t. Real rows of t only. */
enum status stored_summary(double *worst_norm, double *worst_value, struct session *s,
                           const struct param *row, const struct tensor *t, const json_t *o);

/* Logits [real vocabulary] of token row `token` of the batch that stands in s->tokens, for each of
 * n token rows: out [n, vocab]. */
enum status stored_logits(struct session *s, double *out, const int64_t *token, int n);

#endif
