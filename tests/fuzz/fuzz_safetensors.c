/* with: common/base common/tensor/dtype.c common/checkpoint/safetensors.c
 *     common/checkpoint/safetensors_values.c
 * seeds: tests/data/safetensors/cases/all_dtypes.safetensors
 *     tests/data/safetensors/cases/metadata_and_tensor.safetensors
 *     tests/data/safetensors/cases/zero_sized_between.safetensors
 *
 * Any bytes as a safetensors file: refused with a reason, or tensors that can be read whole. */
#include "common/checkpoint/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n); /* NOLINT */

static void use(const struct safetensors *f)
{
    for (int i = 0; i < f->n; i++) {
        const struct safetensors_tensor *t = &f->tensor[i];

        if (safetensors_find(f, t->name) != t)
            abort();
        for (int64_t j = 0; j < t->count && t->type <= SAFETENSORS_BF16; j++) {
            double x;

            if (safetensors_read(&x, DT_F64, t, j, 1) != ST_OK)
                abort();
        }
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n) /* NOLINT */
{
    int fd = memfd_create("fuzz", 0);
    struct safetensors f;
    char path[64];

    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    status_clear();
    if (safetensors_open(&f, path) == ST_OK) {
        use(&f);
        safetensors_close(&f);
    } else if (!*status_message()) {
        abort(); /* refused without a reason */
    }
    close(fd);
    return 0;
}
