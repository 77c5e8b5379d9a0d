/* with: common/base common/tokenizer
 * seeds: tests/fuzz/tokenizer_config.json
 *
 * Any bytes as the tokenizer_config.json beside a tokenizer.json: refused with a reason, or special
 * ids that the tokenizer has. */
#include "common/tokenizer/tokenizer.h"

#include "tests/fuzz/named.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n); /* NOLINT */

static int known(const struct tokenizer *t, int32_t id)
{
    struct token_piece piece;

    return id == -1 || tokenizer_piece(&piece, t, id) == ST_OK;
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n) /* NOLINT */
{
    static const char file[] =
        "{\"added_tokens\":[{\"id\":2,\"content\":\"<s>\",\"special\":true}],"
        "\"decoder\":{\"type\":\"ByteLevel\"},"
        "\"pre_tokenizer\":{\"type\":\"ByteLevel\"},"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},"
        "\"merges\":[]}}";
    char folder[NAMED], path[NAMED];
    struct tokenizer t;

    named_folder(folder);
    named_file(path, folder, "tokenizer.json", file, sizeof file - 1);
    named_file(path, folder, "tokenizer_config.json", bytes, n);
    status_clear();
    if (tokenizer_open(&t, folder) == ST_OK) {
        if (!known(&t, t.begin) || !known(&t, t.end) || !known(&t, t.pad))
            abort();
        tokenizer_close(&t);
    } else if (!*status_message()) {
        abort(); /* refused without a reason */
    }
    return 0;
}
