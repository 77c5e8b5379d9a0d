/* The settings of a saved model, for commands that use one. */
#ifndef COMMON_CLI_SAVED_H
#define COMMON_CLI_SAVED_H

#include "common/cli/options.h"

/* cfg = what the weights at `folder` (see weights_find) were saved with, for one rank; for a model
 * without narrows.yaml its shape, the tokenizer beside it, and defaults; then the words' overrides.
 * *framed (may be NULL): nonzero for such a model, whose prompts are framed as its tokenizer says;
 * a model that was trained here has not seen that. Errors: ST_ECONFIG when the tokenizer is not
 * known, saying how to name it; those of yaml_read, weights_config and options_override. */
enum status saved_settings(struct config *cfg, int *framed, const char *folder,
                           const struct options *words);

#endif
