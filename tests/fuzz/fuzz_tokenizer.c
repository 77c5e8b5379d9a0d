/* with: common/base common/tokenizer
 * seeds: tests/data/tokenizers/stories260k.model.gz tests/data/tokenizers/stories260k.bin.gz
 *     tests/fuzz/tokenizer.json
 *
 * Any bytes as a tokenizer file: refused with a reason, or a tokenizer that works, and whose
 * tokenizer.json, where one is made, is one too. */
#include "common/tokenizer/hf_write.h"
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

/* A file of those bytes, in path; its descriptor, to be closed. */
static int file_of(char path[64], const void *bytes, size_t n)
{
    int fd = memfd_create("fuzz", 0);

    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n)
        abort();
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

static void write_again(const struct tokenizer *t)
{
    struct tokenizer made;
    char path[64], *text;
    json_t *root;
    int fd;

    if (hf_write(&root, t, 1) != ST_OK || !root)
        return;
    text = json_dumps(root, 0);
    if (!text)
        abort();
    fd = file_of(path, text, strlen(text));
    if (tokenizer_open(&made, path) != ST_OK || made.vocab != t->vocab) {
        fprintf(stderr, "%s\n", status_message());
        abort(); /* it does not read what it made */
    }
    use(&made);
    tokenizer_close(&made);
    close(fd);
    free(text);
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t n) /* NOLINT */
{
    struct tokenizer t;
    char path[64];
    int fd = file_of(path, bytes, n);

    status_clear();
    if (tokenizer_open(&t, path) == ST_OK) {
        use(&t);
        write_again(&t);
        tokenizer_close(&t);
    } else if (!*status_message()) {
        abort(); /* refused without a reason */
    }
    close(fd);
    return 0;
}
