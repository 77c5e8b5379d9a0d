/* with: common/base common/tensor/dtype.c common/cli/yaml.c common/model/config.c
 *     common/model/config_value.c common/model/nearest.c
 * seeds: examples/quickstart.yaml
 *
 * Any bytes as a configuration file: refused with a reason, or taken. */
#include "common/cli/yaml.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n); /* NOLINT */

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n) /* NOLINT */
{
    struct config cfg;

    status_clear();
    config_default(&cfg);
    if (yaml_read_text(&cfg, "fuzz.yaml", (const char *)bytes, n) != ST_OK && !*status_message())
        abort(); /* refused without a reason */
    return 0;
}
