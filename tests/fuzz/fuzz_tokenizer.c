/* with: common/base common/tokenizer
 * seeds: tests/data/tokenizers/stories260k.model.gz tests/data/tokenizers/stories260k.bin.gz
 *     tests/fuzz/tokenizer.json
 *
 * Any bytes as a tokenizer file: refused with a reason, or a tokenizer that works. */
#include "common/tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n); /* NOLINT */

static void use(const struct tokenizer *t)
{
    static const char text[] =
        "Once upon a  time, it's 12345 <s>caf\xc3\xa9 \xe4\xb8\xad\xff\n\n a";
    struct token_list ids = {0};
    struct byte_list out = {0};

    if (tokenizer_encode(&ids, t, text, sizeof text - 1, TOKENIZER_SPECIAL | TOKENIZER_FRAME) ==
            ST_OK &&
        tokenizer_decode(&out, t, ids.ids, ids.count, TOKENIZER_SPECIAL) != ST_OK)
        abort(); /* it gave an id that it does not know */
    list_tokens_free(&ids);
    list_bytes_free(&out);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n) /* NOLINT */
{
    int fd = memfd_create("fuzz", 0);
    struct tokenizer t;
    char path[64];

    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    status_clear();
    if (tokenizer_open(&t, path) == ST_OK) {
        use(&t);
        tokenizer_close(&t);
    } else if (!*status_message()) {
        abort(); /* refused without a reason */
    }
    close(fd);
    return 0;
}
