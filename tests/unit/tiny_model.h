/* A small model in host memory for tests: configuration, device, weights. */
#ifndef TESTS_UNIT_TINY_MODEL_H
#define TESTS_UNIT_TINY_MODEL_H

#include "common/model/model.h"

struct tiny_model {
    struct config cfg;
    struct model m;
    struct device *dev;
    struct arena state;
};

/* Width 32, 2 layers, 4 heads, 2 heads of keys and values, FFN 48, rank 8, 70 tokens, 64 positions;
 * then `changes` (key=value, NULL-ended; may be NULL), resolved for `ranks` ranks. Failures end the
 * test. */
void tiny_model_config(struct config *cfg, const char *const *changes, int ranks);

/* Opens rank `rank` of `size` TP ranks of the model that t->cfg describes, on the ref backend of
 * its precision, and draws the start values of `seed`. training: with masters. */
void tiny_model_open(struct tiny_model *t, int rank, int size, int training, uint64_t seed);
void tiny_model_close(struct tiny_model *t);

#endif
