/* The parts of `narrows validate gradients`. */
#ifndef VALIDATION_GRADIENTS_H
#define VALIDATION_GRADIENTS_H

#include "validation/check.h"

/* Central differences of tiny models of every kind. */
enum status gradients_differences(const struct check_options *o, struct report *r,
                                  struct host *job);

/* Stored PyTorch values: the four witness models and stories260K (validation/data). */
enum status gradients_stored(const struct check_options *o, struct report *r, struct host *job);

/* stories260K as published: losses and logits of a stored text. */
enum status gradients_logits(const struct check_options *o, struct report *r, struct host *job);

#endif
