/* The configuration of a run: struct config, its keys, defaults, checks and print-outs.
 *
 * The keys stand once, in config_keys.def; the struct, the reader, the checks, --print-config and
 * docs/config.md follow from that table. The life of a configuration:
 *
 *   config_default(&cfg);
 *   yaml_read(&cfg, path);                  common/cli/yaml.h, or config_set() key by key
 *   config_override(&cfg, "train.lr=1e-3"); arguments win over the file
 *   config_preset(&cfg);                    model.preset fills what nobody gave
 *   config_resolve(&cfg, ranks, vocab);     0 and auto become values
 *   config_validate(&cfg, ranks);           sizes against layout, before anything is allocated
 */
#ifndef COMMON_MODEL_CONFIG_H
#define COMMON_MODEL_CONFIG_H

#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { CONFIG_TEXT = 512 }; /* bytes of a text value, with its end */

/* The choices of each CHOICE key: code, as written in a file. */
#define LAYER_KIND(X)   X(LAYER_FULL, "full") X(LAYER_COLA, "cola") X(LAYER_SVD, "svd")
#define SWITCH_AUTO_(X) X(SWITCH_AUTO, "auto") X(SWITCH_ON, "on") X(SWITCH_OFF, "off")
#define INIT_KIND(X)    X(INIT_AUTO, "auto") X(INIT_COLA, "cola") X(INIT_STANDARD, "standard")
#define SCHEDULE_KIND(X)         \
    X(SCHEDULE_COSINE, "cosine") \
    X(SCHEDULE_LINEAR, "linear") X(SCHEDULE_WSD, "wsd") X(SCHEDULE_CONSTANT, "constant")
