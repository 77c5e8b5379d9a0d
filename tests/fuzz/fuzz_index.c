/* with: common/base common/tensor/dtype.c common/checkpoint/hf_config.c
 *     common/checkpoint/safetensors.c common/checkpoint/safetensors_values.c
 *     common/checkpoint/source.c common/checkpoint/source_bin.c common/checkpoint/folder.c
 *     common/model/config.c common/model/config_value.c common/model/nearest.c
 * seeds: tests/fuzz/model.safetensors.index.json
 *
 * Any bytes as the index of weights in several files: refused with a reason, or all that it names
 * is found. */
#include "common/checkpoint/source.h"

#include "tests/fuzz/named.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n); /* NOLINT */

/* A file with one tensor of one element. */
static void put_weights(const char *folder, const char *file, const char *tensor)
{
    char path[NAMED], text[NAMED];
    int n = snprintf(text + 8, sizeof text - 12,
                     "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", tensor);
    uint64_t header = (uint64_t)n;

    memcpy(text, &header, sizeof header);
    memset(text + 8 + n, 0, 4);
    named_file(path, folder, file, text, (size_t)n + 12);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n) /* NOLINT */
{
    static const char config[] = "{\"model_type\":\"llama\",\"hidden_size\":8,"
                                 "\"intermediate_size\":8,\"num_hidden_layers\":1,"
                                 "\"num_attention_heads\":2,\"vocab_size\":8}";
    char folder[NAMED], path[NAMED];
    struct source s;

    named_folder(folder);
    named_file(path, folder, "config.json", config, sizeof config - 1);
    put_weights(folder, "a", "x");
    put_weights(folder, "b", "y");
    named_file(path, folder, "model.safetensors.index.json", bytes, n);
    status_clear();
    if (source_open(&s, folder) == ST_OK) {
        for (int i = 0; i < s.n; i++)
            if (source_find(&s, s.tensor[i].name) != &s.tensor[i])
                abort();
        source_close(&s);
    } else if (!*status_message()) {
        abort(); /* refused without a reason */
    }
    return 0;
}
