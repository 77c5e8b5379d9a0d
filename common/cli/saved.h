/* The settings of a saved model, for commands that use one. */
#ifndef COMMON_CLI_SAVED_H
#define COMMON_CLI_SAVED_H

#include "common/cli/options.h"

/* cfg = defaults, then narrows.yaml of the folder; *found: there is one. Errors: those of
 * yaml_read. */
enum status saved_read(struct config *cfg, int *found, const char *folder);

/* cfg = what the weights at `folder` (see weights_find) were saved with, for one rank; for a model
 * without narrows.yaml its shape, the tokenizer beside it, sample.frame on (a model that was
 * trained here has seen no begin token), and defaults; then the words' overrides. Errors:
 * ST_ECONFIG when the tokenizer is not known, saying how to name it; those of yaml_read,
 * weights_config and options_override. */
enum status saved_settings(struct config *cfg, const char *folder, const struct options *words);

#endif
