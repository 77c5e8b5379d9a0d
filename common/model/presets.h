/* Named model sizes: "60m-cola" is the size 60m with CoLA layers.
 *
 * Sizes come from the literature (docs/papers.md), and one is our own; the source stands in the
 * table. A size is combined with a kind of layer: -full, -cola or -svd.
 */
#ifndef COMMON_MODEL_PRESETS_H
#define COMMON_MODEL_PRESETS_H

#include "common/model/config.h"

struct preset {
    const char *size; /* "60m"; NULL ends the table */
    int64_t width, ffn, layers, heads, rank;
    bool tied;            /* one matrix for embedding and head */
    bool cola_outer_silu; /* CoLA at this size keeps the SiLU of SwiGLU */
    const char *source;
};

enum { PRESET_VOCAB = 32000 };

/* The table of sizes, smallest first. */
const struct preset *preset_sizes(void);

/* Gives the sizes of model.preset to the keys of model that its origin wins over (see enum
 * config_origin); nothing when it is "". Sets layer, width, ffn, layers, heads, kv_heads, rank,
 * vocab, tied and outer_silu. Errors: ST_ECONFIG for an unknown name, with the nearest. */
enum status preset_apply(struct config *cfg);

/* Parameters of a model of that size, embedding and head included:
 * V d (1 or 2) + L (attention + FFN + 2 d) + d, where a linear layer [in, out] counts in out for
 * LAYER_FULL and r (in + out) for the others. */
int64_t preset_parameters(const struct preset *p, enum layer_kind layer);

/* The largest tensor parallelism, a power of two up to 8, that divides heads and FFN units. */
int64_t preset_tp(const struct preset *p);

/* Prints the table of sizes with parameters in millions, for `narrows presets`. Errors: ST_EIO. */
enum status preset_table(FILE *out);

#endif
