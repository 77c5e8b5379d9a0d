/* with: common/base common/tensor/dtype.c common/checkpoint/hf_config.c
 *     common/checkpoint/safetensors.c common/checkpoint/safetensors_values.c
 *     common/checkpoint/source.c common/checkpoint/source_bin.c common/checkpoint/folder.c
 *     common/model/config.c common/model/config_value.c common/model/nearest.c
 * seeds: tests/fuzz/model.bin
 *
 * Any bytes as a model of llama2.c: refused with a reason, or tensors that can be read whole. The
 * file is also tried with the size that its header asks for (zeros behind, or cut), so that a
 * changed number does not only meet the check of the size. */
#include "common/checkpoint/source.h"

#include "tests/fuzz/named.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n); /* NOLINT */

/* Bytes of a file with such a header, or 0 for one of no use: beyond a MiB, or wrong. */
static size_t size_of(const unsigned char *bytes, size_t n)
{
    int32_t w[7];
    double d, kv, f, layers, vocab, count;

    if (n < sizeof w)
        return 0;
    memcpy(w, bytes, sizeof w);
    if (w[3] < 1)
        return 0;
    d = w[0];
    f = w[1];
    layers = w[2];
    kv = d / w[3] * w[4];
    vocab = w[5] < 0 ? -(double)w[5] : w[5];
    count = layers * (2 * d + 2 * d * d + 2 * d * kv + 3 * d * f) + d + w[6] * (d / w[3]) +
            vocab * d * (w[5] < 0 ? 2 : 1);
    return count > 0 && count < 1 << 18 ? sizeof w + 4 * (size_t)count : 0;
}

static void use(const struct source *s)
{
    for (int i = 0; i < s->n; i++) {
        const struct source_tensor *t = &s->tensor[i];
        double *all = malloc((size_t)(t->rows * t->cols) * sizeof *all);

        if (!all || source_find(s, t->name) != t)
            abort();
        status_clear();
        if (source_read_all(all, DT_F64, t) != ST_OK && !*status_message())
            abort(); /* refused without a reason */
        free(all);
    }
}

static void try(const char *path)
{
    struct source s;
    struct config cfg;

    status_clear();
    config_default(&cfg);
    if (source_config(&cfg, path) != ST_OK && !*status_message())
        abort();
    status_clear();
    if (source_open(&s, path) == ST_OK) {
        use(&s);
        source_close(&s);
    } else if (!*status_message()) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n) /* NOLINT */
{
    char folder[NAMED], path[NAMED];
    size_t size = size_of(bytes, n);

    named_folder(folder);
    named_file(path, folder, "model.bin", bytes, n);
    try(path);
    if (size && (truncate(path, (off_t)size) != 0))
        abort();
    if (size)
        try(path);
    return 0;
}
