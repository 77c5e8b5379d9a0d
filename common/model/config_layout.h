/* The part of config_validate that asks whether a model and a batch can be laid out on ranks. */
#ifndef COMMON_MODEL_CONFIG_LAYOUT_H
#define COMMON_MODEL_CONFIG_LAYOUT_H

#include "common/model/config.h"

/* Whether a resolved configuration fits `ranks` ranks (0: any number): what tp and grains cut,
 * powers of two, batch and micro-batches, the pipeline. Errors: ST_ECONFIG, with key, value, limit
 * and a way out. */
enum status config_check_layout(const struct config *cfg, int64_t ranks);

#endif
