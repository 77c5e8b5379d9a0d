/* with: common/base common/tensor/dtype.c common/checkpoint/hf_config.c common/model/config.c
 *     common/model/config_value.c common/model/nearest.c
 * seeds: validation/data/hf/llama/config.json validation/data/hf/qwen2/config.json
 *     validation/data/hf/cola/config.json validation/data/hf/svd/config.json
 *
 * Any bytes as a config.json: refused with a reason, or a shape within the bounds of its keys. */
#include "common/checkpoint/hf_config.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n); /* NOLINT */

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n) /* NOLINT */
{
    int fd = memfd_create("fuzz", 0);
    struct config cfg;
    char path[64];

    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    status_clear();
    config_default(&cfg);
    if (hf_config_read(&cfg, path) != ST_OK) {
        if (!*status_message())
            abort(); /* refused without a reason */
    } else if (cfg.model.width < 2 || cfg.model.heads < 1 || cfg.model.kv_heads < 1 ||
               cfg.model.vocab < 0 || cfg.train.seq < 2) {
        abort();
    }
    close(fd);
    return 0;
}
